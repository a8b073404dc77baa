"""An agent whose approver is away, against a real server: it waits, and no attempt is counted."""

from collections.abc import Iterator
from typing import Any

import pytest

from approvals.requests import PENDING_OF_A_PRINCIPAL
from titen.client import Run, Titen
from titen.client import worker as client_worker

from . import acting, effecting
from .cast import Agent, Human
from .deploying import decide, deploying, pending
from .locking import Work, until

pytestmark = pytest.mark.alone


@pytest.fixture
def titen(agent: Agent) -> Iterator[Titen]:
    with Titen(agent.url, agent.secret, retry_for=5) as client:
        yield client


@pytest.fixture
def unanswered(agent: Agent) -> list[Any]:
    """As many questions of the agent as may be pending."""
    claims = [effecting.hold(agent) for _ in range(5)]
    return [
        effecting.ask(agent, claims[number % 5], acting.deploy()) for number in range(PENDING_OF_A_PRINCIPAL)
    ]


def test_a_worker_over_the_limit_releases_and_waits_for_a_decision(
    titen: Titen,
    agent: Agent,
    approver: Human,
    unanswered: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_worker, "ROOM_PAUSE", 0.01)
    task = agent.create("Roll out")["id"]
    runs: list[Run] = []
    done: list[str] = []

    def handler(run: Run) -> None:
        runs.append(run)
        deploying(run, done)()
        run.complete()

    working = Work(lambda: titen.work(handler, until_empty=True))
    until(lambda: runs and runs[0].outcome == "released", "the release")
    found = agent.get(f"/tasks/{task}")
    assert (found["status"], found["attempt_count"], len(runs)) == ("todo", 0, 1)
    effecting.decide(approver, unanswered[7], "deny")
    until(lambda: len(runs) == 2, "another claim")
    decide(approver, pending(runs[1]), "approve")
    assert working.outcome() == 2
    found = agent.get(f"/tasks/{task}")
    assert (found["status"], found["attempt_count"], len(done)) == ("done", 0, 1)
