"""Where a cycle's time goes: the same requests run in this process, without a server."""

import io
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

from titen.wsgi import application

from .load import BEAT, DONE, run_and_epoch

# Part of a path -> what its time counts as; the first that fits.
PARTS = (
    ("/psycopg", "psycopg"),
    ("/rest_framework/", "Django REST framework"),
    ("/django/", "Django"),
    ("/titen/", "Titen"),
    ("/coordination/", "Titen"),
)


def post(key: str, path: str, body: bytes = b"{}") -> bytes:
    """One request through the whole WSGI application."""
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost",
        "HTTP_AUTHORIZATION": f"Bearer {key}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.url_scheme": "http",
    }
    statuses: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:
        statuses.append(status)

    response: Any = application(environ, start_response)
    content = b"".join(response)
    response.close()
    if not statuses[0].startswith("200"):
        raise RuntimeError(f"{path}: {statuses[0]} {content[:300]!r}")
    return content


def cycle(key: str) -> None:
    """Claim, heartbeat, complete."""
    run, epoch = run_and_epoch(post(key, "/v1/tasks/claim"))
    post(key, f"{run.decode()}/heartbeat", BEAT % epoch)
    post(key, f"{run.decode()}/complete", DONE % epoch)


@contextmanager
def timed_statements() -> Iterator[list[float]]:
    """Gathers the seconds of every statement that psycopg runs inside the block."""
    seconds: list[float] = []
    genuine = psycopg.Cursor.execute

    def execute(self: Any, *args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return genuine(self, *args, **options)
        finally:
            seconds.append(time.perf_counter() - began)

    psycopg.Cursor.execute = execute  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        psycopg.Cursor.execute = genuine  # type: ignore[method-assign]


def measure(work: Callable[[], None], count: int) -> tuple[float, float]:
    """Microseconds for one `work`: as a whole, and in statements."""
    for _ in range(20):
        work()
    with timed_statements() as statements:
        began = time.perf_counter()
        for _ in range(count):
            work()
        whole = time.perf_counter() - began
    return whole / count * 1e6, sum(statements) / count * 1e6


def measure_commit(work: Callable[[], None], count: int) -> float:
    """Microseconds of one `work` that go into waiting until commits are on the disk."""
    durable = relaxed = 0.0
    for _ in range(2):
        durable += measure(work, count // 2)[1]
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
        relaxed += measure(work, count // 2)[1]
        with connection.cursor() as cursor:
            cursor.execute("RESET synchronous_commit")
    return max(0.0, (durable - relaxed) / 2)


def shares(work: Callable[[], None], count: int) -> dict[str, float]:
    """Which share of the time is spent in whose code, statements left out, by pyinstrument's samples."""
    from pyinstrument import Profiler

    profiler = Profiler(interval=0.0002)
    with profiler:
        for _ in range(count):
            work()
    session = profiler.last_session
    found: dict[str, float] = defaultdict(float)
    waits = ("psycopg/cursor.py", "psycopg/connection.py", "psycopg/waiting.py")

    def add(frame: Any, inside_statement: bool) -> None:
        path = Path(frame.file_path or "").as_posix()
        inside = inside_statement or (frame.function == "execute" and path.endswith(waits))
        if not inside:
            part = next((name for mark, name in PARTS if mark in path), "Python itself (json, hashlib, …)")
            found[part] += frame.absorbed_time + sum(
                child.time for child in frame.children if child.is_synthetic
            )
        for child in frame.children:
            if not child.is_synthetic:
                add(child, inside)

    root = session.root_frame() if session else None
    if root is not None:
        add(root, False)
    whole = sum(found.values()) or 1.0
    return {part: seconds / whole for part, seconds in sorted(found.items(), key=lambda item: -item[1])}
