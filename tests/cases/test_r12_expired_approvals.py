"""R12: an approval whose time is over is neither approved nor kept in limbo."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from approvals.jobs import expire
from tests.cast import Agent, Human
from tests.processes import eventually
from tests.servers import Server
from tests.sessions import Session

from .tools import events_of, swept


@pytest.mark.parametrize("options", [["Approve", "Deny"], ["Deny", "Approve"]])
def test_it_is_refused_without_a_sweeper_and_written_down_once_with_one(
    options: list[str], agent: Agent, approver: Human, claimed: Any, ask: Callable[..., Any], web: Server
) -> None:
    asked = ask(claimed, options=options, expires_in_seconds=2)
    session = Session(approver, web.url)

    def read() -> Any:
        return agent.get(f"/approvals/{asked['id']}")

    eventually(lambda: read()["status"] == "expired")
    for option in options:
        refused = session.decide(asked, option)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "APPROVAL_EXPIRED")
        assert refused.json()["error"]["details"] == {"state": "expired", "decision": None}
    agent.refused("APPROVAL_EXPIRED", f"/approvals/{asked['id']}/cancel")
    # The agent can tell it from a denial.
    seen = read()
    assert (seen["status"], seen["decision"], seen["decided_by_user_id"]) == ("expired", None, None)
    assert agent.get(f"/tasks/{claimed['task']['id']}")["status"] == "blocked"

    expire()
    expire()
    assert read() == seen
    assert session.decide(asked, "Approve").json()["error"]["code"] == "APPROVAL_EXPIRED"
    assert len(events_of(agent, kind="approval.expired")) == 1
    assert events_of(agent, kind="approval.decided") == []
    # The run goes on, told so by its heartbeat, and may ask again.
    assert agent.get(f"/tasks/{claimed['task']['id']}")["status"] == "in_progress"
    told = agent.post(f"/runs/{claimed['run']['id']}/heartbeat", {"epoch": claimed["lease"]["epoch"]})
    assert [(one["id"], one["status"]) for one in told["resolved_approvals"]] == [(asked["id"], "expired")]
    assert told["run"]["status"] == "running"
    again = ask(claimed, options=options)
    assert session.decide(again, "Approve").status_code == 200
    session.client.close()


def test_it_does_not_hold_the_lease(agent: Agent, other: Agent, ask: Callable[..., Any]) -> None:
    """Without heartbeats the run is parked; when the approval expires, the task goes back to the queue."""
    agent.create()
    claim = agent.claim(ttl_seconds=1)
    asked = ask(claim, expires_in_seconds=2)
    assert swept(agent, claim["run"]["id"])["status"] == "parked"
    assert agent.get(f"/tasks/{claim['task']['id']}")["status"] == "blocked"
    eventually(lambda: agent.get(f"/approvals/{asked['id']}")["status"] == "expired")
    expire()
    task = agent.get(f"/tasks/{claim['task']['id']}")
    assert (task["status"], task["attempt_count"]) == ("todo", 0)
    # For two minutes it is kept for who asked.
    assert other.claim() is None
    assert agent.claim()["task"]["id"] == task["id"]


def test_a_decision_just_before_the_deadline_counts(
    agent: Agent, approver: Human, claimed: Any, ask: Callable[..., Any], web: Server
) -> None:
    session = Session(approver, web.url)
    session.client.get("/healthz")
    began = time.monotonic()
    asked = ask(claimed, expires_in_seconds=4)
    time.sleep(max(0.0, began + 3 - time.monotonic()))
    answer = session.decide(asked, "Deny")
    assert answer.status_code == 200, answer.text
    eventually(lambda: time.monotonic() > began + 4.1)
    expire()
    seen = agent.get(f"/approvals/{asked['id']}")
    assert (seen["status"], seen["decision"]) == ("decided", "Deny")
    session.client.close()


def test_the_run_in_which_it_was_asked_may_be_over(
    agent: Agent, approver: Human, claimed: Any, ask: Callable[..., Any], web: Server
) -> None:
    """An approval belongs to the task: released, its question stays open and decidable."""
    asked = ask(claimed)
    agent.post(f"/runs/{claimed['run']['id']}/release", {"epoch": claimed["lease"]["epoch"]})
    session = Session(approver, web.url)
    assert session.decide(asked, "Approve").status_code == 200
    session.client.close()
    next_claim = eventually(agent.claim)
    assert [one["decision"] for one in next_claim["context"]["approvals"]] == ["Approve"]
