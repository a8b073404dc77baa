"""200 tasks passed on at random by agents that answer, refuse, vanish: one holds at a time, and nothing is lost."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connection

from coordination import handoffs, sweeping
from titen.api.doors import transact

from .cases.tools import together
from .cast import Agent, found_company
from .clockwork import sql
from .servers import Server
from .test_deadlocks import deadlocks, log_size, logged_deadlocks

SEED = 20261130
AGENTS, TASKS_EACH = 8, 25

# Two leases on one resource whose times overlap. A lease that was written down as expired ended then.
_OVERLAPPING = """
SELECT a.id FROM coordination_lease a JOIN coordination_lease b
    ON b.resource_id = a.resource_id AND b.epoch > a.epoch
WHERE a.organization_id = %s AND (a.ended_at IS NULL OR b.granted_at < a.ended_at)"""

_REST = """
UPDATE coordination_task SET backoff_until = NULL, reserved_until = NULL, reserved_for_id = NULL
WHERE organization_id = %s AND status = 'todo'"""


class Crowd:
    """Agents that pass tasks on, and what they were answered."""

    def __init__(self, agents: list[Agent]) -> None:
        self.agents = agents
        self.answers: Counter[str] = Counter()
        self.questions: list[tuple[Agent, str, str]] = []
        self.lock = threading.Lock()
        self.over = threading.Event()

    def send(self, agent: Agent, path: str, body: Any) -> Any:
        """The data, or None where it was refused; whatever came back is counted."""
        answer = agent.client.post(f"/v1{path}", json=body)
        content = answer.json() if answer.content else {}
        with self.lock:
            self.answers[content["error"]["code"] if "error" in content else path.rpartition("/")[2]] += 1
        assert answer.status_code < 500, answer.text
        return content.get("data")

    def somebody_else(self, agent: Agent, chance: random.Random) -> Agent:
        return chance.choice([one for one in self.agents if one is not agent])

    def offer(self, agent: Agent, claim: Any, chance: random.Random, *, seconds: int) -> Any:
        body = {
            "to_principal": self.somebody_else(agent, chance).principal.name,
            "run_id": claim["run"]["id"],
            "epoch": claim["lease"]["epoch"],
            "expires_in_seconds": seconds,
        }
        return self.send(agent, "/handoffs", body)

    def pass_on(self, number: int) -> None:
        """Hold a task, maybe ask something, offer the task, and then do anything at all, or nothing."""
        agent, chance = self.agents[number], random.Random(SEED + number)
        for _ in range(TASKS_EACH):
            claim = None
            while claim is None:
                task = self.send(agent, "/tasks", {"title": "To be passed on", "max_attempts": 100})
                ttl = chance.choice([1, 60, 60, 60])
                claim = self.send(agent, "/tasks/claim", {"task_id": task["id"], "ttl_seconds": ttl})
            run, epoch = claim["run"]["id"], {"epoch": claim["lease"]["epoch"]}
            self.send(agent, f"/runs/{run}/heartbeat", {**epoch, "progress": 10})
            if chance.random() < 0.25:
                body = {"body": "Which?", "blocking": True, "run_id": run, **epoch}
                asked = self.send(agent, f"/tasks/{task['id']}/comments", body)
                if asked:
                    self.questions.append((agent, task["id"], asked["id"]))
            made = self.offer(agent, claim, chance, seconds=chance.choice([1, 600, 600]))
            what = chance.choice(
                ["vanish", "vanish", "heartbeat", "heartbeat", "withdraw", "complete", "release"]
            )
            if what == "withdraw" and made:
                self.send(agent, f"/handoffs/{made['handoff_id']}/withdraw", {})
            elif what in ("heartbeat", "complete", "release"):
                self.send(agent, f"/runs/{run}/{what}", epoch)
            if self.questions and chance.random() < 0.5:
                self.answer_one(chance)

    def answer_one(self, chance: random.Random) -> None:
        with self.lock:
            asker, task, comment = self.questions.pop(chance.randrange(len(self.questions)))
        body = {"body": "That one."}
        self.send(self.somebody_else(asker, chance), f"/tasks/{task}/comments/{comment}/answer", body)

    def take_in(self, number: int) -> None:
        """Answer what is offered, or leave it; then work, pass it on, give it back or vanish."""
        agent, chance = self.agents[number], random.Random(-SEED - number)
        left: set[str] = set()
        while not self.over.wait(0.03):
            found = agent.client.get("/v1/handoffs").json()["data"]["handoffs"]
            for one in found:
                if one["handoff_id"] not in left:
                    self.resolve(agent, one["handoff_id"], chance, left)
            if chance.random() < 0.1:
                # Whatever came back is anybody's.
                self.finish(agent, self.send(agent, "/tasks/claim", {"ttl_seconds": 2}), chance)

    def resolve(self, agent: Agent, handoff: str, chance: random.Random, left: set[str]) -> None:
        what = chance.choice(["accepted", "accepted", "accepted", "rejected", "leave"])
        if what == "leave":
            left.add(handoff)
            return
        ttl = {"ttl_seconds": chance.choice([1, 60])} if what == "accepted" else {}
        taken = self.send(agent, f"/handoffs/{handoff}/resolve", {"status": what, **ttl})
        if taken is not None:
            self.finish(agent, taken["claim"], chance)

    def finish(self, agent: Agent, claim: Any, chance: random.Random) -> None:
        if claim is None:
            return
        epoch = {"epoch": claim["lease"]["epoch"]}
        what = chance.choice(["complete", "complete", "hand on", "release", "fail", "vanish"])
        if what == "hand on":
            self.offer(agent, claim, chance, seconds=600)
        elif what != "vanish":
            more = {"error": "no network"} if what == "fail" else {}
            self.send(agent, f"/runs/{claim['run']['id']}/{what}", {**epoch, **more})

    def sweep(self) -> None:
        try:
            while not self.over.wait(0.1):
                sweeping.sweep()
                transact(handoffs.expire_due)
        finally:
            connection.close()

    def all_pass_on(self) -> None:
        try:
            together([partial(self.pass_on, number) for number in range(AGENTS)])
        finally:
            self.over.set()


def overlapping(organization: Any) -> list[Any]:
    return sql(_OVERLAPPING, organization)


def drain(crowd: Crowd, organization: Any) -> None:
    """All leases and offers run out, all questions are answered, and one agent does what is left."""
    sql(
        "UPDATE coordination_lease SET expires_at = greatest(clock_timestamp(), granted_at + interval '1 ms')"
        " WHERE organization_id = %s AND ended_at IS NULL AND expires_at > clock_timestamp()",
        organization,
    )
    sweeping.sweep()
    chance, worker = random.Random(SEED), crowd.agents[0]
    while crowd.questions:
        crowd.answer_one(chance)
    sql(_REST, organization)
    while claim := crowd.send(worker, "/tasks/claim", {}):
        epoch = {"epoch": claim["lease"]["epoch"]}
        assert crowd.send(worker, f"/runs/{claim['run']['id']}/complete", epoch)


def test_200_tasks_are_passed_on_at_random_and_none_is_lost_or_held_twice(web: Server) -> None:
    company = found_company(web.url)
    organization = company.organization.pk
    crowd = Crowd([company.agent(f"passer-{number}") for number in range(AGENTS)])
    before, begin = deadlocks(), log_size()
    takers: list[Callable[[], None]] = [partial(crowd.take_in, number) for number in range(AGENTS)]
    together([*takers, crowd.all_pass_on, crowd.sweep, crowd.sweep])

    assert overlapping(organization) == []
    ends = dict(
        sql(
            "SELECT status, count(*) FROM coordination_handoff WHERE organization_id = %s GROUP BY status",
            organization,
        )
    )
    assert sum(ends.values()) >= AGENTS * TASKS_EACH * 0.9, ends
    assert min(ends.get(end, 0) for end in ("accepted", "rejected", "withdrawn", "expired")) > 0, ends
    waiting = sql(
        "SELECT count(*) FROM coordination_run WHERE organization_id = %s AND has_asked AND lease_id IN ("
        " SELECT id FROM coordination_lease WHERE granted_because = 'handoff')",
        organization,
    )
    assert waiting > [(0,)]

    drain(crowd, organization)
    assert overlapping(organization) == []
    fates = dict(
        sql(
            "SELECT status, count(*) FROM coordination_run WHERE organization_id = %s GROUP BY status",
            organization,
        )
    )
    assert min(fates.get(fate, 0) for fate in ("handed_off", "abandoned", "succeeded")) > 0, fates
    left = sql(
        "SELECT status, count(*) FROM coordination_task WHERE organization_id = %s GROUP BY status",
        organization,
    )
    assert [status for status, _ in left] == ["done"], left
    twice = sql(
        "SELECT task_id FROM coordination_run WHERE organization_id = %s AND status = 'succeeded'"
        " GROUP BY task_id HAVING count(*) > 1",
        organization,
    )
    assert twice == []
    assert deadlocks() == before, logged_deadlocks(begin)
    for agent in crowd.agents:
        agent.close()
