"""R17: retries, crashes and identity of deliveries, with real workers; R07, R09 and R11 as a receiver sees them."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cast import Agent, Company
from tests.locking import together
from tests.processes import eventually
from tests.servers import REPOSITORY
from tests.sinks import Request, Sink, deliver, deliveries, hang, hook, sink
from tests.stack import Stack, retried

from .tools import at_once, events_of, sweepers

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("nothing_owed")]

EVENTS = 20
TIMEOUT = 2
QUICK = {"TITEN_WEBHOOK_TIMEOUT": str(TIMEOUT), "TITEN_WEBHOOK_FIRST_RETRY": "0.2"}


class Worker:
    """A Celery worker with beat inside, in a process group of its own."""

    def __init__(self, folder: Path, number: int) -> None:
        self.log = folder / f"worker-{number}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "titen", "worker", "--pool", "threads"),
                    *("--concurrency", "2", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"),
                    *("-n", f"delivering-{number}@%h", "-B", "--scheduler", "celery.beat:Scheduler"),
                ],
                cwd=REPOSITORY,
                env={**os.environ, **QUICK},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """`kill -9` of it and of all that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def working(folder: Path, count: int) -> Iterator[list[Worker]]:
    """Workers, killed at the end if not before."""
    workers = [Worker(folder, number) for number in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.kill()
        for worker in workers:
            assert "Traceback" not in worker.log.read_text()


def whole(receiver: Sink, webhook: Any, tasks: set[str]) -> dict[str, list[Request]]:
    """Each task's event has come, each delivery with one body, signed for its moment; the deliveries."""
    found = receiver.by_id()
    about: Counter[str] = Counter()
    for attempts in found.values():
        assert len({request.body for request in attempts}) == 1
        for request in attempts:
            content = request.verified(webhook["secret"])
            assert abs(int(request.headers["webhook-timestamp"]) - request.at) < TIMEOUT + 3
        about[content["data"]["object"]["task_id"]] += 1
    assert about == dict.fromkeys(tasks, 1)
    return found


def test_one_fails_one_hangs_one_is_fine_and_the_worker_is_killed(agent: Agent, tmp_path: Path) -> None:
    attempts: Counter[str] = Counter()

    def failing(handler: Any) -> None:
        """500 twice, then 200, for each delivery."""
        name = handler.headers["webhook-id"]
        attempts[name] += 1
        handler.answer(500 if attempts[name] <= 2 else 200)

    def slow(handler: Any) -> None:
        """Fine, and slow enough to die in the middle."""
        time.sleep(0.3)
        handler.answer(200)

    with (
        sink(failing) as first,
        sink(hang) as second,
        sink(slow) as third,
    ):
        hooks = [hook(agent, one, kinds=["task.created"]) for one in (first, second, third)]
        began = time.monotonic()
        tasks = {agent.create(f"Task {number}")["id"] for number in range(EVENTS)}
        # Nobody who causes an event waits for a receiver.
        assert time.monotonic() - began < 5
        (tmp_path / "one").mkdir()
        with working(tmp_path / "one", 1) as (worker,):
            eventually(lambda: 4 <= len(third.requests) < EVENTS, within=30)
            worker.kill()
        assert len(third.by_id()) < EVENTS
        with working(tmp_path, 2):
            # What the killed one had in hand comes back after three times the longest attempt.
            eventually(lambda: len(third.by_id()) == EVENTS, within=20)
            eventually(
                lambda: all(one["status"] == "delivered" for one in deliveries(agent, hooks[0])), within=30
            )
            eventually(
                lambda: all(one["status"] == "delivered" for one in deliveries(agent, hooks[2])), within=10
            )
        at_third = whole(third, hooks[2], tasks)
        at_first = whole(first, hooks[0], tasks)
    # Only what was under way when the worker died may have come twice.
    assert sum(len(requests) - 1 for requests in at_third.values()) <= 4
    assert {len(requests) for requests in at_first.values()} <= {3, 4}
    owed = deliveries(agent, hooks[1])
    assert {one["problem"] for one in owed if one["attempt_count"] > 1} <= {"timeout", None}
    assert {one["status"] for one in owed} == {"pending"}


def test_two_workers_send_each_delivery_once(agent: Agent, tmp_path: Path) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        with working(tmp_path, 2):
            tasks = {agent.create(f"Task {number}")["id"] for number in range(40)}
            eventually(lambda: len(receiver.by_id()) == 40, within=30)
            eventually(
                lambda: all(one["status"] == "delivered" for one in deliveries(agent, made)), within=10
            )
        found = whole(receiver, made, tasks)
    assert {len(requests) for requests in found.values()} == {1}
    assert {one["attempt_count"] for one in deliveries(agent, made)} == {1}


def test_r07_three_sweepers_and_one_webhook_for_each_run(company: Company, agent: Agent) -> None:
    runs = 40
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.abandoned"])
        for number in range(runs):
            agent.create(f"Task {number}")
        claims = [agent.claim(ttl_seconds=1) for _ in range(runs)]
        with sweepers(3) as three:
            for sweeper in three:
                sweeper.order(do="sweep", every=0.01)
            eventually(lambda: len(events_of(agent, kind="task.abandoned")) == runs)
            together(deliver, deliver)
        deliver()
        contents = [request.verified(made["secret"]) for request in receiver.requests]
    told = Counter(content["data"]["object"]["run_id"] for content in contents)
    assert told == dict.fromkeys((claim["run"]["id"] for claim in claims), 1)


def test_r09_what_is_owed_survives_the_death_of_everything_and_an_empty_broker(stack: Stack) -> None:
    firm = stack.found(1)
    (agent,) = firm.agents
    with sink(503, 200) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        task = agent.create()
        eventually(lambda: receiver.requests, within=20)
        stack.freeze()
        try:
            for name in ("web", "hub", "worker", "beat", "valkey"):
                stack.kill_all(name)
        finally:
            stack.thaw()
        eventually(stack.answers, within=40)
        eventually(
            retried(lambda: [one["status"] for one in deliveries(agent, made)] == ["delivered"] or None),
            within=60,
        )
        first, *others = receiver.requests
        assert others
        for request in others:
            assert (request.id, request.body) == (first.id, first.body)
            assert request.verified(made["secret"])["data"]["object"]["task_id"] == task["id"]
    assert stack.trouble() == []
    firm.close()


@pytest.mark.parametrize("option", ["Approve", "Deny"])
def test_r11_one_decision_and_one_webhook(
    company: Company, agent: Agent, awaiting_approval: Any, option: str
) -> None:
    from tests.sessions import Session

    people = [company.human("approver") for _ in range(2)]
    with sink() as receiver, ExitStack() as open_sessions:
        made = hook(agent, receiver, kinds=["approval.*"])
        sessions = [open_sessions.enter_context(Session(one, agent.url)) for one in people]
        answers = at_once(sessions * 5, lambda session: session.decide(awaiting_approval, option).status_code)
        assert sorted(answers) == [200] + [409] * 9
        deliver()
        contents = [request.verified(made["secret"]) for request in receiver.requests]
    decided = [content for content in contents if content["type"] == "approval.decided"]
    assert [content["data"]["object"]["subject_id"] for content in decided] == [awaiting_approval["id"]]
