"""A second connection that holds real locks, and threads whose waiting is observed, not slept for."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection

LOCK_TASK = "SELECT id FROM coordination_task WHERE id = %s FOR NO KEY UPDATE"
LOCK_LEASE = "SELECT id FROM coordination_lease WHERE id = %s FOR NO KEY UPDATE"
COMMENT = """
INSERT INTO coordination_comment (organization_id, task_id, author_id, body, blocking, answer)
SELECT organization_id, id, created_by_id, 'A note.', false, '' FROM coordination_task WHERE id = %s"""
PATIENCE = 20.0


class Connection:
    """A transaction of its own, open until `commit` or the block's end."""

    def __init__(self) -> None:
        self.connection = psycopg.connect(os.environ["DATABASE_URL"], options="-c timezone=UTC")
        self.pid = self.connection.info.backend_pid

    def run(self, statement: str, *params: Any) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, params)
            return cursor.fetchall() if cursor.description else []

    def lock_task(self, task_id: UUID) -> None:
        assert self.run(LOCK_TASK, task_id)

    def commit(self) -> None:
        self.connection.commit()


@contextmanager
def second_connection() -> Iterator[Connection]:
    """Another transaction; what it has not committed at the block's end is undone."""
    other = Connection()
    try:
        yield other
    finally:
        other.connection.close()


class Work:
    """Something done in a thread, on a connection of its own; `outcome` gives its result or raises."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._do, daemon=True)
        self._thread.start()

    def _do(self) -> None:
        try:
            self._result = self._work()
        except BaseException as problem:
            self._problem = problem
        finally:
            connection.close()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def outcome(self) -> Any:
        self._thread.join(PATIENCE)
        assert self.over, "the work does not end"
        if self._problem is not None:
            raise self._problem
        return self._result


@cache
def _observer() -> Any:
    """Looks from outside of every transaction: inside one, PostgreSQL shows the sessions of its beginning."""
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def waiting(holder: int | None = None) -> int:
    """How many connections wait for a lock: of anybody, or of the one with the process id `holder`."""
    found = _observer().execute(
        "SELECT count(*) FROM pg_stat_activity, pg_blocking_pids(pid) AS blockers"
        " WHERE cardinality(blockers) > 0 AND (%s::int IS NULL OR %s::int = ANY (blockers))",
        [holder, holder],
    )
    return int(found.fetchone()[0])


def wait_until_blocked(holder: Connection | None = None, *, count: int = 1) -> None:
    """Until somebody waits for `holder` (for this thread's own transaction when None).

    With a `count` so many wait, whoever for: who queues behind a waiter waits for that one.
    """
    pid = holder.pid if holder else connection.connection.info.backend_pid
    until(lambda: waiting(pid) and waiting() >= count, f"{count} waiting")


def until(look: Callable[[], Any], what: str) -> None:
    """Until `look` is true."""
    deadline = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < deadline, f"it did not come to {what}"
        time.sleep(0.005)


def together(*works: Callable[[], Any]) -> list[Any]:
    """Do all at once; each one's result, or what it raised."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], Any]) -> Callable[[], Any]:
        def whole() -> Any:
            barrier.wait()
            return work()

        return whole

    running = [Work(begin(work)) for work in works]
    found = []
    for work in running:
        try:
            found.append(work.outcome())
        except Exception as problem:
            found.append(problem)
    return found
