"""One task row stays locked by somebody who does not go on: only those who want that row wait for it."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from .cast import Agent
from .locking import LOCK_TASK
from .processes import eventually
from .stack import Founded, Stack

pytestmark = pytest.mark.alone

PLAIN, WAITING = 20, 6
SOON = 1.5


@pytest.fixture
def firm(stack: Stack) -> Iterator[Founded]:
    firm = stack.found(3)
    yield firm
    firm.close()


@contextmanager
def locked(stack: Stack, task: dict[str, Any]) -> Iterator[None]:
    """The task's row is locked by a session that does nothing more."""
    with psycopg.connect(stack.database) as other:
        other.execute(LOCK_TASK, [UUID(task["id"].removeprefix("task_"))])
        yield
        other.rollback()


def timed(work: Any) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_others_heartbeats_waits_and_reads_go_on(stack: Stack, firm: Founded) -> None:
    claimer, holder, waiter = firm.agents
    holder.create("Held")
    held = holder.claim()
    run = f"/runs/{held['run']['id']}"
    stuck = holder.create("Stuck", required_capabilities=["stuck"])
    headers = {"Authorization": f"Bearer {claimer.secret}"}

    def claim(wait: str) -> httpx.Response:
        return httpx.post(
            f"{stack.address}/v1/tasks/claim{wait}",
            headers=headers,
            json={"task_id": stuck["id"]},
            timeout=40,
        )

    with ThreadPoolExecutor(PLAIN + WAITING + 1) as pool, locked(stack, stuck):
        waits = [pool.submit(claim, "?wait=6") for _ in range(WAITING)]
        plain = [pool.submit(claim, "") for _ in range(PLAIN)]
        eventually(lambda: stack.query("SELECT FROM pg_locks WHERE NOT granted HAVING count(*) > 8"))
        beats = [
            timed(lambda: holder.post(f"{run}/heartbeat", {"epoch": held["lease"]["epoch"]}))
            for _ in range(5)
        ]
        other = pool.submit(waiter.post, "/tasks/claim?wait=5", {})
        made = holder.create("Free")
        assert other.result(5)["task"]["id"] == made["id"]
        done = timed(lambda: holder.post(f"{run}/complete", {"epoch": held["lease"]["epoch"]}))
        answers = [future.result() for future in plain + waits]
    assert max(*beats, done) < SOON, (beats, done)
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["details"]) == (
            503,
            "OVERLOADED",
            {"reason": "locked"},
        )
        assert int(answer.headers["Retry-After"]) == 1


def test_who_waits_for_the_row_gets_it_once_it_is_free(stack: Stack, firm: Founded) -> None:
    claimer, holder, _ = firm.agents
    stuck = holder.create("Stuck for a while")
    with ThreadPoolExecutor(1) as pool:
        with locked(stack, stuck):
            waiting = pool.submit(claimer.post, "/tasks/claim?wait=20", {"task_id": stuck["id"]})
            eventually(lambda: stack.query("SELECT FROM pg_locks WHERE NOT granted"))
        assert waiting.result(15)["task"]["id"] == stuck["id"]


def test_work_is_completed_whatever_holds_the_next_task(stack: Stack, firm: Founded) -> None:
    holder: Agent = firm.agents[1]
    holder.create("Held")
    held = holder.claim()
    stuck = holder.create("Next")
    body = {"epoch": held["lease"]["epoch"], "claim_next": True}
    with locked(stack, stuck):
        ended = holder.post(f"/runs/{held['run']['id']}/complete", body)
    assert ended["next"] is None
    assert holder.get(f"/tasks/{held['task']['id']}")["status"] == "done"


def test_every_connection_has_its_limits(stack: Stack, firm: Founded) -> None:
    """A statement, a lock and a transaction whose process has stopped: none of them can be waited for without end."""
    code = (
        "import django; django.setup()\n"
        "from django.db import connection as c\n"
        "with c.cursor() as cursor:\n"
        "    for name in ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout'):\n"
        "        cursor.execute(f'SHOW {name}'); print(cursor.fetchone()[0])"
    )
    assert stack.python(code).split() == ["1500ms", "30s", "1min"]
