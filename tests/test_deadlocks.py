"""Everything at once on a few tasks: no deadlock, no 5xx, and every promise holds afterwards."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx
import pytest
from django.db import OperationalError, connection
from psycopg.errors import DeadlockDetected

from coordination import sweeping, takeovers, tasks
from coordination.locks import hold_task
from coordination.models import Principal
from titen.api.doors import transact
from titen.api.envelope import as_refusal
from titen.errors import CODES, Refused

from .cast import Agent
from .clockwork import sql
from .locking import PATIENCE, together, until
from .plugin import FOLDER
from .scenes import Stage, question, set_stage
from .servers import Server

SEED = 20261129
AGENTS, HUMANS, SWEEPERS = 20, 8, 2
SECONDS = 10.0


class AnyAgent:
    """An agent that claims what it gets and then does anything with it."""

    def __init__(self, agent: Agent, known: list[str], seed: int) -> None:
        self.agent, self.known, self.random = agent, known, random.Random(seed)
        self.answers: Counter[str] = Counter()
        self.client = httpx.Client(
            base_url=agent.url, headers={"Authorization": f"Bearer {agent.secret}"}, timeout=40
        )
        self.claim: Any = None

    def send(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.client.post(f"/v1{path}", json=body)
        content = answer.json() if answer.content else {}
        self.answers[content["error"]["code"] if "error" in content else "ok"] += 1
        return content.get("data")

    def step(self) -> None:
        task = self.random.choice(self.known)
        if self.claim is None:
            wish: dict[str, Any] = {"ttl_seconds": 1} if self.random.random() < 0.5 else {}
            self.claim = self.send(
                "/tasks/claim", wish | ({"task_id": task} if self.random.random() < 0.5 else {})
            )
            return
        run, epoch = self.claim["run"]["id"], self.claim["lease"]["epoch"]
        verb = self.random.choice(
            [
                "heartbeat",
                "heartbeat",
                "complete",
                "fail",
                "release",
                "ask",
                "question",
                "cancel",
                "create",
                "comment",
            ]
        )
        if verb == "heartbeat":
            self.send(f"/runs/{run}/heartbeat", {"epoch": epoch, "progress": self.random.randint(1, 99)})
        elif verb == "ask":
            self.send("/approvals", question(self.claim, expires_in_seconds=1))
        elif verb == "question":
            body = {"body": "Which?", "blocking": True, "run_id": run, "epoch": epoch}
            self.send(f"/tasks/{self.claim['task']['id']}/comments", body)
        elif verb == "comment":
            self.send(f"/tasks/{task}/comments", {"body": "A note."})
        elif verb == "cancel":
            self.send(f"/tasks/{task}/cancel", {})
        elif verb == "create":
            self.send("/tasks", {"title": "After", "depends_on": self.random.sample(self.known, 2)})
        else:
            more = {"error": "x"} if verb == "fail" else {}
            self.claim = self.send(
                f"/runs/{run}/{verb}", {"epoch": epoch, "claim_next": self.random.random() < 0.5, **more}
            )
            self.claim = (self.claim or {}).get("next")


class AnyHuman:
    """A human who does anything to any of the tasks."""

    def __init__(self, stage: Stage, known: list[str], seed: int) -> None:
        self.caller, self.random = stage.human.caller, random.Random(seed)
        self.me = Principal.objects.get(pk=self.caller.principal_id)
        self.agent = stage.other.principal
        self.ids = [stage.company.organization.pk, *known]
        self.answers: Counter[str] = Counter()

    def step(self) -> None:
        rows = sql(
            "SELECT t.id, r.epoch FROM coordination_task t JOIN coordination_resource r ON r.id = t.resource_id"
            " WHERE t.organization_id = %s ORDER BY t.id LIMIT 8",
            self.ids[0],
        )
        task, epoch = self.random.choice(rows)
        to = self.random.choice([None, self.me, self.agent])
        moves: list[Callable[[], Any]] = [
            lambda: takeovers.take_over(self.caller, task, to=to, reason="Mine.", epoch=epoch),
            lambda: tasks.block(self.caller, task, sentence="Stop."),
            lambda: tasks.unblock(self.caller, task),
            lambda: tasks.reopen(self.caller, task),
            lambda: tasks.reopen(self.caller, task),
            lambda: tasks.cancel(self.caller, task),
            lambda: tasks.set_priority(self.caller, task, priority=self.random.randint(-9, 9)),
        ]
        try:
            transact(self.random.choice(moves))
            self.answers["ok"] += 1
        except Refused as refused:
            self.answers[refused.code] += 1


def deadlocks() -> int:
    """How many the server has counted in this database."""
    sql("SELECT pg_stat_force_next_flush()")
    return int(sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0])


def logged_deadlocks(begin: int = 0) -> str:
    """What the server's log tells of deadlocks from `begin` on, where it is ours to read."""
    log = FOLDER / "database" / "postgres.log"
    text = log.read_text(errors="replace")[begin:] if log.exists() else ""
    return text[max(text.find("deadlock detected") - 100, 0) :][:6000] if "deadlock detected" in text else ""


def log_size() -> int:
    """Where the server's log ends now."""
    log = FOLDER / "database" / "postgres.log"
    return len(log.read_text(errors="replace")) if log.exists() else 0


def test_random_moves_on_few_tasks_never_deadlock(web: Server) -> None:
    stage = set_stage(web.url)
    known = [stage.holder.create(f"Task {number}")["id"] for number in range(3)]
    known += [stage.holder.create(f"Task {number}", depends_on=known[:2])["id"] for number in range(2)]
    before, begin, end = deadlocks(), log_size(), time.monotonic() + SECONDS
    problems: list[BaseException] = []
    agents: list[AnyAgent] = [
        AnyAgent(stage.company.agent(), known, SEED + number) for number in range(AGENTS)
    ]
    humans = [AnyHuman(stage, known, SEED - number) for number in range(HUMANS)]

    def repeat(step: Callable[[], Any]) -> None:
        try:
            while time.monotonic() < end:
                step()
        except BaseException as problem:
            problems.append(problem)
        finally:
            connection.close()

    actors: list[AnyAgent | AnyHuman] = [*agents, *humans]
    steps: list[Callable[[], Any]] = [actor.step for actor in actors]
    steps += [sweeping.sweep] * SWEEPERS
    threads = [threading.Thread(target=repeat, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers: Counter[str] = sum((actor.answers for actor in actors), Counter())
    assert not problems, problems[:3]
    assert not {code for code in answers if code != "ok" and CODES[code].status >= 500}, answers
    assert answers["ok"] > 200, answers
    assert not logged_deadlocks(begin), logged_deadlocks(begin)
    assert deadlocks() == before
    for actor in agents:
        actor.client.close()
    stage.holder.close()


def test_a_deadlock_is_retried_once_at_the_door(web: Server) -> None:
    """Two moves that lock two tasks crosswise, as no rule does: one is undone by the server, both succeed."""
    stage = set_stage(web.url)
    one, two = (tasks.create(stage.holder.caller, title="Crossed").pk for _ in range(2))
    organization, before = stage.company.organization.pk, deadlocks()
    both_hold_one, one_is_through = threading.Barrier(2), threading.Event()
    tries: Counter[str] = Counter()

    def cross(name: str, first: UUID, second: UUID) -> Callable[[], Any]:
        def work() -> None:
            tries[name] += 1
            if tries[name] > 1:
                # A row's lock has no queue: this retry could take it from the one that has just been woken.
                one_is_through.wait(PATIENCE)
            hold_task(organization, first)
            if tries[name] == 1:
                both_hold_one.wait(PATIENCE)
            hold_task(organization, second)

        def whole() -> None:
            transact(work)
            one_is_through.set()

        return whole

    assert together(cross("there", one, two), cross("back", two, one)) == [None, None]
    assert sum(tries.values()) == 3
    until(lambda: deadlocks() == before + 1, "a counted deadlock")


def test_a_second_deadlock_is_told_as_overload() -> None:
    tries = []

    def unlucky() -> None:
        tries.append(1)
        raise OperationalError("deadlock detected") from DeadlockDetected("deadlock detected")

    with pytest.raises(OperationalError) as problem:
        transact(unlucky)
    refused = as_refusal(problem.value)
    assert (len(tries), refused.code, refused.retry_after) == (2, "OVERLOADED", 1)
