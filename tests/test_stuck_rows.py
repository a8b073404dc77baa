"""One task row stays locked by somebody who does not go on: only those who want that row wait for it."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from approvals.jobs import expire
from approvals.models import Approval
from titen.postgres.limits import wait_for_locks

from .cast import Agent
from .clockwork import let_approval_run_out, uuid_of
from .locking import LOCK_TASK, Work, second_connection
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


def recorded(approval: str) -> str:
    status: str = Approval.objects.get(pk=uuid_of(approval)).status
    return status


def test_a_sweep_goes_on_behind_a_locked_task(agent: Agent, ask: Any) -> None:
    """Approvals of two tasks run out; the older one's task is locked."""
    claims = [agent.claim(task_id=agent.create(title)["id"]) for title in ("Stuck", "Behind it")]
    approvals = [ask(claim)["id"] for claim in claims]
    for approval in approvals:
        let_approval_run_out(approval)

    def expire_soon() -> int:
        wait_for_locks(0.2)
        return expire()

    with second_connection() as other:
        other.lock_task(uuid_of(claims[0]["task"]["id"]))
        Work(expire_soon).outcome()
        assert [recorded(one) for one in approvals] == ["pending", "expired"]
    expire()
    assert recorded(approvals[0]) == "expired"


def test_who_sends_slowly_takes_no_thread(stack: Stack, firm: Founded) -> None:
    """More clients than there are threads announce a body and do not send all of it."""
    holder = firm.agents[1]
    head = "POST /v1/runs/run_1/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
    head += f"Content-Type: application/json\r\nAuthorization: Bearer {holder.secret}\r\n\r\n{{"
    with ExitStack() as slow:
        for _ in range(24):
            client = slow.enter_context(socket.create_connection(("127.0.0.1", stack.port)))
            client.sendall(head.encode())
        holder.create("Held")
        held = holder.claim()
        beat = {"epoch": held["lease"]["epoch"]}
        took = [timed(lambda: holder.post(f"/runs/{held['run']['id']}/heartbeat", beat)) for _ in range(5)]
        assert max(took) < SOON, took


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
