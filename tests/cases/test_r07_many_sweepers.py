"""R07: three sweepers at once, one of them killed on the way: everything ends exactly once."""

import signal
from collections import Counter
from typing import Any

import psycopg
import pytest
from django.conf import settings

from tests.cast import Agent, Company
from tests.processes import eventually

from .tools import events_of, spread, sweepers, waiting_for_locks

RUNS = 200
APPROVALS = 60


@pytest.fixture
def fleet(company: Company) -> list[Agent]:
    """Some agents."""
    return [company.agent() for _ in range(8)]


def claim_all(fleet: list[Agent], count: int, ttl_seconds: int) -> list[tuple[Agent, Any]]:
    """New tasks, each claimed by somebody."""
    spread(range(count), lambda number: fleet[number % 8].create(f"Task {number}"))

    def claim(number: int) -> tuple[Agent, Any]:
        return fleet[number % 8], fleet[number % 8].claim(ttl_seconds=ttl_seconds)

    return spread(range(count), claim)


def statuses(agent: Agent, noun: str) -> Counter[str]:
    """How many of a list stand in which state."""
    found: Counter[str] = Counter()
    cursor = None
    while True:
        page = agent.get(f"/{noun}", params={"limit": 200, **({"cursor": cursor} if cursor else {})})
        found += Counter(item["status"] for item in page[noun])
        if not (cursor := page["next_cursor"]):
            return found


def ended_once(agent: Agent, runs: int) -> None:
    """Every run is abandoned, counted once and logged once; its task is back in the queue."""
    assert statuses(agent, "runs") == {"abandoned": runs}
    assert statuses(agent, "tasks") == {"todo": runs}
    events = events_of(agent, kind="task.abandoned")
    assert Counter(event["run_id"] for event in events) == dict.fromkeys({e["run_id"] for e in events}, 1)
    assert len(events) == runs
    assert {event["data"]["attempt_count"] for event in events} == {1}


def test_200_expired_runs_are_abandoned_once_each(fleet: list[Agent]) -> None:
    claims = claim_all(fleet, RUNS, ttl_seconds=1)
    assert len({claim["run"]["id"] for _, claim in claims}) == RUNS
    with sweepers(3) as three:
        for sweeper in three:
            sweeper.order(do="sweep", every=0.01)
        eventually(lambda: statuses(fleet[0], "runs")["abandoned"] == RUNS)
        assert [sweeper.end() for sweeper in three] == [0, 0, 0]
    ended_once(fleet[0], RUNS)


def test_a_sweeper_killed_in_the_middle_loses_and_doubles_nothing(fleet: list[Agent]) -> None:
    claims = claim_all(fleet, RUNS, ttl_seconds=1)
    stuck = claims[RUNS // 2][1]["run"]["id"]
    with sweepers(3) as (first, *others), psycopg.connect(settings.DATABASE_URL) as lock:
        # Somebody holds one run's row, so the first sweeper stands in the middle of its work.
        lock.execute("SELECT FROM coordination_run WHERE id = %s FOR UPDATE", [stuck.removeprefix("run_")])
        eventually(lambda: fleet[0].get(f"/runs/{stuck}")["lease"]["certainty"] == "expired")
        first.order(do="sweep", every=0.01)
        eventually(lambda: waiting_for_locks("due AS MATERIALIZED"))
        first.signal(signal.SIGKILL)
        for other in others:
            other.order(do="sweep", every=0.01)
        lock.rollback()
        eventually(lambda: statuses(fleet[0], "runs")["abandoned"] == RUNS)
    ended_once(fleet[0], RUNS)


def test_approvals_expire_once_each_and_their_runs_go_on(fleet: list[Agent]) -> None:
    claims = claim_all(fleet, APPROVALS, ttl_seconds=300)

    def ask(pair: tuple[Agent, Any]) -> Any:
        agent, claim = pair
        return agent.post(
            "/approvals",
            {
                "run_id": claim["run"]["id"],
                "epoch": claim["lease"]["epoch"],
                "question": "Go?",
                "options": ["Yes", "No"],
                "expires_in_seconds": 1,
            },
        )

    spread(claims, ask)
    with sweepers(3) as three:
        for sweeper in three:
            sweeper.order(do="sweep", every=0.01)
        eventually(lambda: statuses(fleet[0], "tasks")["in_progress"] == APPROVALS)
        assert [sweeper.end() for sweeper in three] == [0, 0, 0]
    assert statuses(fleet[0], "approvals") == {"expired": APPROVALS}
    assert statuses(fleet[0], "runs") == {"running": APPROVALS}
    events = events_of(fleet[0], kind="approval.expired")
    assert len(events) == len({event["subject_id"] for event in events}) == APPROVALS
