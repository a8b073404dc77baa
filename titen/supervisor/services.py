"""The command lines of Titen's own processes, and how the front routes between them.

front    the one public address (Caddy); requests that wait and streams go to the hub, what keeps or ends a
         lease to express, the rest to web
web      requests and answers: WSGI with persistent threads and database connections
express  the same for heartbeats, renewals, completions and outcomes, on threads that nothing else can take
hub      waits and streams: asyncio
worker   Celery, in threads
beat     Celery's clock
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from titen.supervisor.programs import Program
from titen.supervisor.state import REPOSITORY, State, UpError

# `python -m titen.demo.agents NAME` for each; their keys are in `<var>/demo.json`, written by `demo_data`.
DEMO_AGENTS = ("linter", "archivist", "scribe", "janitor")

WEB_WORKERS = 2
WEB_THREADS = 8
EXPRESS_WORKERS = 2
EXPRESS_THREADS = 4
WORKER_THREADS = 2


def django_environment(state: State) -> dict[str, str]:
    """What every Python process of ours needs; settings read the rest from the state folder."""
    return {"TITEN_VAR": str(state.var), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}


def _python(name: str, *arguments: str, state: State, before: Callable[[], None] | None = None) -> Program:
    return Program(
        name=name,
        argv=(sys.executable, "-m", *arguments),
        folder=REPOSITORY,
        environment=django_environment(state),
        before=before,
    )


def _granian(name: str, *arguments: str, state: State) -> Program:
    socket = state.sockets / f"{name}.sock"
    return _python(
        name,
        "granian",
        *("--uds", str(socket)),
        *("--http", "1"),
        "--no-ws",
        # Longer than the front keeps an idle connection, so that it is never the server that hangs up
        # just as a request is on its way.
        *("--http1-header-read-timeout", "60000"),
        "--respawn-failed-workers",
        *("--respawn-interval", "0.2"),
        *("--workers-kill-timeout", "5"),
        *("--log-level", "warning"),
        *arguments,
        state=state,
        before=lambda: socket.unlink(missing_ok=True),  # granian won't bind over what a killed one left
    )


def _wsgi(name: str, *, workers: int, threads: int, state: State) -> Program:
    return _granian(
        name,
        *("--interface", "wsgi"),
        *("--workers", str(workers)),
        *("--blocking-threads", str(threads)),
        # A thread that ends takes its database connection along; 600 is the longest granian allows.
        *("--blocking-threads-idle-timeout", "600"),
        "titen.wsgi:application",
        state=state,
    )


def web(state: State) -> Program:
    return _wsgi("web", workers=WEB_WORKERS, threads=WEB_THREADS, state=state)


def express(state: State) -> Program:
    return _wsgi("express", workers=EXPRESS_WORKERS, threads=EXPRESS_THREADS, state=state)


def hub(state: State) -> Program:
    return _granian(
        "hub",
        *("--interface", "asgi"),
        *("--workers", "1"),
        # How many streams and waits may be open at once.
        *("--backpressure", "8192"),
        "titen.asgi:application",
        state=state,
    )


def worker(state: State) -> Program:
    return _python(
        "worker",
        *("celery", "-A", "titen", "worker"),
        *("--pool", "threads"),
        *("--concurrency", str(WORKER_THREADS)),
        *("--loglevel", "WARNING"),
        "--without-gossip",
        "--without-mingle",
        state=state,
    )


def beat(state: State) -> Program:
    return _python(
        "beat",
        *("celery", "-A", "titen", "beat"),
        *("--schedule", str(state.var / "beat-schedule")),
        *("--pidfile", ""),
        *("--loglevel", "WARNING"),
        state=state,
    )


def front(state: State, port: int) -> Program:
    caddy = shutil.which("caddy", path=str(Path(sys.executable).parent)) or shutil.which("caddy")
    if caddy is None:
        raise UpError("The program caddy is missing; install requirements.txt.")
    sockets = state.sockets
    return Program(
        name="front",
        argv=(caddy, "run", "--config", str(Path(__file__).with_name("Caddyfile")), "--adapter", "caddyfile"),
        folder=state.var,
        environment={
            "TITEN_SITE": f"http://:{port}",
            "TITEN_BIND": "127.0.0.1",
            "TITEN_WEB": f"unix/{sockets}/web.sock",
            "TITEN_EXPRESS": f"unix/{sockets}/express.sock",
            "TITEN_HUB": f"unix/{sockets}/hub.sock",
            "XDG_DATA_HOME": str(state.var / "front"),
            "XDG_CONFIG_HOME": str(state.var / "front"),
            # Beside web and hub on a small machine: one thread and a lazier collector cost a fifth less
            # CPU per request than Go's defaults.
            "GOMAXPROCS": "1",
            "GOGC": "400",
        },
        stop_seconds=5.0,
    )


def demo_agents(state: State, address: str) -> list[Program]:
    """The demo's agents: ordinary clients, each with its own key. `address` is the front's URL."""
    return [
        Program(
            name=name,
            argv=(sys.executable, "-m", "titen.demo.agents", name),
            folder=REPOSITORY,
            environment={**django_environment(state), "TITEN_URL": address},
            stop_seconds=5.0,
        )
        for name in DEMO_AGENTS
    ]
