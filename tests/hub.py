"""What tests of the hub need: the hub as a process, a board's stream, and a database that misbehaves."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
from django.db import connection

from .plugin import FOLDER
from .servers import REPOSITORY, Server, await_answer, free_port


@contextmanager
def run_hub(application: str = "titen.asgi:application", **environment: str) -> Iterator[Server]:
    """The hub, as in production, on a port of its own."""
    port = free_port()
    log = FOLDER / f"hub-{port}.log"
    arguments = (
        f"--interface asgi --workers 1 --http 1 --no-ws --backpressure 8192 --host 127.0.0.1 --port {port}"
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "granian", *arguments.split(), "--log-level", "warning", application],
            cwd=REPOSITORY,
            env={**os.environ, "PGAPPNAME": f"hub-{port}", **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = Server(f"http://127.0.0.1:{port}", process, log)
    try:
        await_answer(f"{server.url}/healthz", process, log)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def connections_of(hub: Server) -> list[str]:
    """The states of the hub's database connections, as the database's owner sees them."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as owner:
        found = owner.execute(
            "SELECT state FROM pg_stat_activity WHERE application_name = %s AND backend_type = 'client backend'",
            [f"hub-{urlsplit(hub.url).port}"],
        )
        return [row[0] for row in found]


def looks_of(hub: Server) -> set[Any]:
    """When the hub's last look for waiting claims began: another set after each look."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as owner:
        found = owner.execute(
            "SELECT query_start FROM pg_stat_activity WHERE application_name = %s AND query LIKE %s",
            [f"hub-{urlsplit(hub.url).port}", "%%jsonb_to_recordset%%"],
        )
        return {row[0] for row in found}


def eventually[T](look: Callable[[], T], within: float = 20.0) -> T:
    """The first true value of `look`."""
    deadline = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < deadline, f"not true within {within} s; the last value was {found!r}"
        time.sleep(0.02)
    return found


class Stream:
    """A reader of server-sent events: `events` are (name, data), `pings` counts signs of life."""

    def __init__(self, url: str, session: str, **query: str) -> None:
        self._client = httpx.Client(timeout=httpx.Timeout(40, read=None))
        self.events: list[tuple[str, str]] = []
        self.pings = 0
        self.ended = threading.Event()
        request = self._client.build_request(
            "GET",
            url,
            params=query,
            headers={"Accept": "text/event-stream"},
            cookies={"sessionid": session} if session else {},
        )
        self.answer = self._client.send(request, stream=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        name, data = "", list[str]()
        with contextlib.suppress(httpx.HTTPError, OSError):
            for line in self.answer.iter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data" or line == "data:":
                    data.append(value)
                elif not line and data:
                    if name == "alive":
                        self.pings += 1
                    else:
                        self.events.append((name, "\n".join(data)))
                    name, data = "", []
        self.ended.set()

    def has(self, text: str) -> bool:
        """True when an event that came so far holds `text`."""
        return any(text in data for _, data in self.events)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self.answer.close()
        self._client.close()


class DatabaseProxy:
    """Stands between a server and PostgreSQL. `url` is the database through it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._open = threading.Event()
        self._open.set()
        self.refusing = False
        self.connected = 0
        port = self._listener.getsockname()[1]
        parts = urlsplit(os.environ["DATABASE_URL"])
        user = parts.netloc.rpartition("@")[0] or "postgres"
        self.url = urlunsplit(("postgresql", f"{user}@127.0.0.1:{port}", parts.path, "", ""))
        threading.Thread(target=self._accept, daemon=True).start()

    def _connect(self) -> socket.socket:
        params = connection.get_connection_params()
        host, port = str(params.get("host", "localhost")), int(params.get("port", 5432))
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            pair = (client, self._connect())
            self.connected += 1
            self._pairs.append(pair)
            threading.Thread(target=self._relay, args=pair, daemon=True).start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with contextlib.suppress(OSError, ValueError):
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    self._open.wait()
                    if not data:
                        raise OSError
                    other[source].sendall(data)
        client.close()
        server.close()

    def cut(self) -> None:
        """Close every connection, as a restart of PostgreSQL does; `refusing` keeps new ones out."""
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def freeze(self) -> None:
        """No byte passes, nothing is closed."""
        self._open.clear()

    def thaw(self) -> None:
        """Bytes pass again."""
        self._open.set()

    def __enter__(self) -> "DatabaseProxy":
        return self

    def __exit__(self, *error: object) -> None:
        self.thaw()
        self._listener.close()
        self.cut()
