"""Races at the edge of a lease, and of two people who decide at once."""

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.cast import Agent, Company
from tests.clockwork import sql
from tests.servers import Server, run_web
from tests.sessions import Session

from .tools import LONG, at_once, events_of, spread, sweepers, together

pytestmark = pytest.mark.alone

WORKERS = 30
ROUNDS = 40 if LONG else 10
TOO_LATE = """SELECT r.id FROM coordination_run r JOIN coordination_lease l ON l.id = r.lease_id
WHERE r.organization_id = %s AND r.status IN ('succeeded', 'failed', 'released') AND r.ended_at >= l.expires_at"""


def test_what_ends_at_the_edge_is_ended_once_and_for_ever(company: Company, agent: Agent) -> None:
    """300 runs with a lease of a second end around its expiry, while two sweepers run."""
    workers = [company.agent() for _ in range(WORKERS)]
    spread(workers, lambda one: one.get("/principal"))
    spread(range(WORKERS * ROUNDS), lambda number: agent.create(f"Task {number}", max_attempts=100))
    chance = random.Random(1)
    plans = [
        [
            (chance.choice(["complete", "beat", "fail", "release"]), chance.uniform(0.55, 1.1))
            for _ in range(ROUNDS)
        ]
        for _ in workers
    ]
    endings: list[dict[str, Any]] = []

    def work(number: int) -> None:
        one = workers[number]
        for verb, after in plans[number]:
            claim = one.client.post("/v1/tasks/claim", json={"ttl_seconds": 1}).json()["data"]
            path, epoch = f"/v1/runs/{claim['run']['id']}", {"epoch": claim["lease"]["epoch"]}
            granted = datetime.fromisoformat(claim["server_time"]).timestamp()
            time.sleep(max(0.0, granted + after - time.time()))
            until = claim["lease"]["expires_at"]
            if verb == "beat":
                beat = one.client.post(f"{path}/heartbeat", json=epoch)
                if beat.status_code == 200:
                    until = beat.json()["data"]["lease"]["expires_at"]
                else:
                    assert beat.json()["error"]["code"] == "LEASE_EXPIRED", beat.text
            end = "complete" if verb == "beat" else verb
            more = {"error": "No luck"} if end == "fail" else {}
            answer = one.client.post(f"{path}/{end}", json={**epoch, **more})
            endings.append({"run": claim["run"]["id"], "end": end, "answer": answer, "until": until})

    with sweepers(2) as two:
        for sweeper in two:
            sweeper.order(do="sweep", every=0.01)
        at_once(range(WORKERS), work)
        time.sleep(1.1)  # the last leases run out too
        deadline = time.monotonic() + 20
        while agent.get("/runs", params={"status": "running"})["runs"] and time.monotonic() < deadline:
            time.sleep(0.1)
    ended = {"complete": "succeeded", "fail": "failed", "release": "released"}
    fates: Counter[str] = Counter()
    for ending in endings:
        run, answer = agent.get(f"/runs/{ending['run']}"), ending["answer"]
        if answer.status_code == 200:
            # A success that was told is never undone.
            assert run["status"] == ended[ending["end"]], run
            # To the millisecond; to the microsecond below.
            assert run["ended_at"] <= run["lease"]["expires_at"], run
            fates[run["status"]] += 1
            continue
        code = answer.json()["error"]["code"]
        assert code in ("LEASE_EXPIRED", "LEASE_IN_JEOPARDY"), answer.text
        assert run["status"] == "abandoned", (code, run)
        # Nor is a renewal that was told: the run ended when its last lease ran out, not before.
        assert run["ended_at"] == run["lease"]["expires_at"] == ending["until"], run
        fates[code] += 1
    assert sql(TOO_LATE, agent.principal.organization_id) == []
    assert sum(fates.values()) == WORKERS * ROUNDS
    assert min(fates[fate] for fate in ("succeeded", "released", "failed", "LEASE_EXPIRED")) > 5, fates
    done = [event["task_id"] for event in events_of(agent, kind="task.completed")]
    assert len(done) == len(set(done)) == fates["succeeded"]
    for task in done:
        assert agent.get(f"/tasks/{task}")["status"] == "done"


def test_two_approvers_at_once_wake_the_task(
    company: Company, web: Server, agent: Agent, ask: Callable[..., Any]
) -> None:
    """A run that asked twice goes on when both are decided, in whatever order they arrive."""
    people = [Session(company.human("approver"), web.url) for _ in range(2)]
    for _ in range(60 if LONG else 15):
        task = agent.create()
        claim = agent.claim()
        questions = [ask(claim), ask(claim)]
        pairs = list(zip(people, questions, strict=True))
        answers = at_once(pairs, lambda pair: pair[0].decide(pair[1], "Approve"))
        assert [answer.status_code for answer in answers] == [200, 200]
        stands = agent.get(f"/tasks/{task['id']}")
        assert (stands["status"], stands["open_blockers"]) == ("in_progress", 0)
        assert agent.get(f"/runs/{claim['run']['id']}")["status"] == "running"
    for person in people:
        person.client.close()


def test_a_decision_against_the_end_of_its_lease_never_loses_the_task(
    company: Company, web: Server, agent: Agent, ask: Callable[..., Any]
) -> None:
    """Decided just as the lease runs out: the run goes on, or is parked and the task is back in the queue."""
    person = Session(company.human("approver"), web.url)
    person.client.get("/healthz")
    chance = random.Random(2)
    fates: Counter[str] = Counter()
    with sweepers(2) as two:
        for sweeper in two:
            sweeper.order(do="sweep", every=0.01)
        for _ in range(60 if LONG else 12):
            task = agent.create()
            claim = agent.claim(task_id=task["id"], ttl_seconds=1)
            asked = ask(claim)
            granted = datetime.fromisoformat(claim["server_time"]).timestamp()
            time.sleep(max(0.0, granted + chance.uniform(0.9, 1.1) - time.time()))
            assert person.decide(asked, "Deny").status_code == 200
            stands = agent.get(f"/tasks/{task['id']}")
            fates[stands["status"]] += 1
            assert stands["status"] in ("in_progress", "todo"), stands
            assert stands["open_blockers"] == 0
    assert fates["todo"], fates
    person.client.close()


def test_20_who_cancel_and_20_who_complete_end_a_task_once(agent: Agent, claimed: Any) -> None:
    run, task = claimed["run"]["id"], claimed["task"]["id"]

    def post(path: str, body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {agent.secret}"}
        with httpx.Client(base_url=agent.url, headers=headers, timeout=30) as client:
            return client.post(f"/v1{path}", json=body)

    answers = together(
        [lambda: post(f"/tasks/{task}/cancel", {}), lambda: post(f"/runs/{run}/complete", {"epoch": 1})] * 10
    )
    won = [answer.json()["data"] for answer in answers if answer.status_code == 200]
    assert len(won) == 1
    assert {answer.status_code for answer in answers} == {200, 409}
    status = agent.get(f"/tasks/{task}")["status"]
    codes = {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409}
    assert codes <= (
        {"TASK_CANCELLED", "CONFLICT"} if status == "cancelled" else {"ALREADY_COMPLETED", "CONFLICT"}
    )


def test_eight_first_readers_of_the_api_document_all_get_it(database: None) -> None:
    with run_web(workers=1, threads=8) as server:

        def read() -> int:
            return httpx.get(f"{server.url}/api/openapi.json", timeout=30).status_code

        assert together([read] * 8) == [200] * 8
        assert not server.trouble()
