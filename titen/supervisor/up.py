"""`manage.py up`: the order of things.

Start: database, broker, static files, migrations, then web, express, hub, worker, beat and front; `ready`
when the front answers /readyz. Stop, on Ctrl-C or SIGTERM: front, our other processes, broker, database.
What DATABASE_URL or CELERY_BROKER_URL name is used and left alone.
"""

import asyncio
import math
import os
import resource
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil

from titen.supervisor import external, postgres, services, valkey
from titen.supervisor.child import Child
from titen.supervisor.guard import Guard
from titen.supervisor.programs import Program
from titen.supervisor.progress import Progress
from titen.supervisor.setup import collect_static, manage
from titen.supervisor.state import Lock, State, UpError, given_url

START_SECONDS = 120.0
LOCK_SECONDS = 15.0
# A process that dies this often before we are ready will not get better.
HOPELESS_EXITS = 4
SAME_WISH_SECONDS = 1.0
OPEN_FILES = 65_536
# Lowest first; everything that is not named stops at 2. Agents first: they give back what they hold.
STOP_STAGE = {**dict.fromkeys(services.DEMO_AGENTS, 0), "front": 1, "valkey": 3, "postgres": 4}


def serve(*, port: int, var: Path, demo: bool) -> int:
    """Runs everything until it is told to stop; gives the exit status."""
    progress = Progress(steps=6 if demo else 5)
    try:
        state = State.open(var)
        address = f"http://127.0.0.1:{port}"
        if "TITEN_PUBLIC_URL" not in {**state.environment(), **os.environ}:
            os.environ["TITEN_PUBLIC_URL"] = address  # for our children
        locks = [_take_state(state, address)]
        _check_port(port)
        if not given_url("DATABASE_URL"):
            locks.append(_take_database(state))
        _raise_file_limit()
        guard = Guard(tuple(lock.descriptor for lock in locks))
        return asyncio.run(_until_asked(Up(state, port, address, guard, progress), demo=demo))
    except UpError as error:
        progress.line(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def _take_state(state: State, address: str) -> Lock:
    """The lock of the one `up` of this folder. Raises UpError when another holds it."""
    lock = Lock(state.var / "up.lock")
    deadline = time.monotonic() + LOCK_SECONDS
    while not lock.take():
        pid, _, other = lock.signature().partition(" ")
        if pid.isdigit() and psutil.pid_exists(int(pid)):
            raise UpError(
                f"Titen already runs from {state.var}: {other} (process {pid}). "
                "Stop it first, or choose another state folder with VAR=."
            )
        # It was killed, and its guard is still stopping what it had started.
        if time.monotonic() > deadline:
            raise UpError(
                f"What the last `up` started from {state.var} has not ended yet; try again in a moment."
            )
        time.sleep(0.1)
    lock.sign(f"{os.getpid()} {address}")
    return lock


def _take_database(state: State) -> Lock:
    """The right to run the folder's PostgreSQL. A command such as `make key` may hold it for a moment."""
    lock = Lock(state.var / "postgres.lock")
    deadline = time.monotonic() + LOCK_SECONDS
    while not lock.take():
        if time.monotonic() > deadline:
            raise UpError(
                f"Another command still works with the database in {state.var}; try again when it has ended."
            )
        time.sleep(0.1)
    return lock


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise UpError(
                f"Port {port} of 127.0.0.1 can't be used ({error}); choose another, as in: make up PORT=8123"
            ) from error


def _raise_file_limit() -> None:
    """A stream takes two descriptors in the hub and two in the front; many systems start with 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


async def _until_asked(up: "Up", *, demo: bool) -> int:
    """Runs `up` until a signal asks it to stop, then stops what it started."""
    asked = asyncio.Event()
    patient_until = math.inf

    def ask() -> None:
        # `make` passes on a signal that the terminal or a script has sent to us as well: the same wish twice.
        nonlocal patient_until
        if time.monotonic() > patient_until:
            up.kill()
        patient_until = min(patient_until, time.monotonic() + SAME_WISH_SECONDS)
        asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ask)
    work = asyncio.create_task(up.work(demo=demo))
    end = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()  # it never ends by itself, so this raises
    finally:
        end.cancel()
        work.cancel()
        await asyncio.wait({work})
        await up.stop()
    return 0


class Up:
    """The running children."""

    def __init__(self, state: State, port: int, address: str, guard: Guard, progress: Progress) -> None:
        self._state = state
        self._port = port
        self._address = address
        self._guard = guard
        self._progress = progress
        self._children: dict[Child, asyncio.Task[None]] = {}

    async def work(self, *, demo: bool) -> None:
        """Starts everything, then watches. Raises UpError when the start fails."""
        started = time.monotonic()
        state, step = self._state, self._progress.step
        state.keep({})
        with step("database"):
            await self._database()
        with step("broker"):
            await self._broker()
        with step("static files"):
            await collect_static(state)
        with step("migrations"):
            await manage(state, "migrate", "--noinput")
        with step("web, express, hub, worker, beat and front"):
            for program in (
                services.web(state),
                services.express(state),
                services.hub(state),
                services.worker(state),
                services.beat(state),
                services.front(state, self._port),
            ):
                self._start(program)
            await self._ready()
        self._progress.result(f"ready {self._address}")
        if demo:
            with step("demo data and agents"):
                logins = await manage(state, "demo_data", environment={"TITEN_URL": self._address})
                for program in services.demo_agents(state, self._address):
                    self._start(program)
            self._progress.result(logins.rstrip())
        self._progress.line(
            f"started in {time.monotonic() - started:.1f} s; Ctrl-C stops it; logs: {state.var}/log"
        )
        # Not gather(): cancelled, it would cancel the children's tasks, and so kill what is to stop in order.
        await asyncio.wait(self._children.values(), return_when=asyncio.FIRST_COMPLETED)
        self._check_tasks()

    async def stop(self) -> None:
        """Stops the children, stage by stage; kills what takes longer than it may."""
        if not self._children:
            return
        started = time.monotonic()
        self._progress.line("stopping")
        for stage in range(max(STOP_STAGE.values()) + 1):
            children = [child for child in self._children if STOP_STAGE.get(child.program.name, 2) == stage]
            for child in children:
                child.stop()
            await asyncio.gather(*(self._end(child) for child in children))
        await asyncio.to_thread(self._guard.close)
        self._progress.line(f"stopped in {time.monotonic() - started:.1f} s")

    def kill(self) -> None:
        """Ends all children at once: the answer to a second Ctrl-C."""
        for child in self._children:
            child.kill()

    def _start(self, program: Program) -> Child:
        child = Child(program, self._state.begin_log(program.name), self._guard, self._progress.line)
        self._children[child] = asyncio.create_task(child.run())
        return child

    def _check_tasks(self) -> None:
        """Raises what made a child's task end."""
        for task in self._children.values():
            if task.done():
                task.result()

    async def _end(self, child: Child) -> None:
        task = self._children[child]
        done, _ = await asyncio.wait({task}, timeout=child.program.stop_seconds)
        if not done:
            self._progress.line(
                f"{child.program.name} did not stop in {child.program.stop_seconds:.0f} s; killing it"
            )
            child.kill()
            await asyncio.wait({task})

    async def _database(self) -> None:
        if url := given_url("DATABASE_URL"):
            await asyncio.to_thread(external.check_database, url)
            return
        data = self._state.data
        await asyncio.to_thread(postgres.make, data)
        child = self._start(postgres.program(data))
        await self._until(lambda: None if postgres.answers(data) else "PostgreSQL does not answer", [child])
        await asyncio.to_thread(postgres.make_database, data)
        self._state.keep({"DATABASE_URL": postgres.url(data)})

    async def _broker(self) -> None:
        if url := given_url("CELERY_BROKER_URL"):
            await asyncio.to_thread(external.check_broker, url)
            return
        folder = self._state.sockets
        child = self._start(valkey.program(folder))
        await self._until(lambda: None if valkey.answers(folder) else "Valkey does not answer", [child])
        self._state.keep({"CELERY_BROKER_URL": valkey.url(folder)})

    async def _ready(self) -> None:
        await self._until(lambda: _unready(self._address), list(self._children))

    async def _until(self, problem: Callable[[], str | None], children: list[Child]) -> None:
        """Returns when `problem` gives None. Raises UpError when `children` keep dying, or after two minutes."""
        deadline = time.monotonic() + START_SECONDS
        while found := await asyncio.to_thread(problem):
            self._check_tasks()
            dying = [child for child in children if child.exits >= HOPELESS_EXITS]
            if dying or time.monotonic() > deadline:
                words = "".join(f"\n  {child.log}: {child.last_words()}" for child in dying)
                raise UpError(f"Titen did not start: {found}.{words}")
            await asyncio.sleep(0.03)


def _unready(address: str) -> str | None:
    """None when the front answers /readyz with 200, else what is wrong."""
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=10):  # noqa: S310 our own http address
            return None
    except urllib.error.HTTPError as error:
        return f"/readyz answers {error.code} {error.read(300).decode(errors='replace')}"
    except OSError as error:
        return f"the front does not answer ({error})"
