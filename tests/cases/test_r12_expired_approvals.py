"""R12: an approval whose time is over is neither approved nor kept in limbo."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from approvals.jobs import expire
from approvals.models import PolicyRule
from tests.acting import ABOUT, effect, request
from tests.cast import Agent, Human
from tests.clockwork import let_approval_run_out
from tests.processes import eventually
from tests.servers import Server
from tests.sessions import Session

from .tools import events_of, swept

FIRST = {"Approve": [0, 1], "Deny": [1, 0]}


@pytest.mark.parametrize("about", ABOUT)
@pytest.mark.parametrize("first", FIRST)
def test_it_is_refused_without_a_sweeper_and_written_down_once_with_one(
    first: str, about: str, agent: Agent, approver: Human, claimed: Any, ask: Callable[..., Any], web: Server
) -> None:
    words = {**ABOUT[about], "options": [ABOUT[about]["options"][place] for place in FIRST[first]]}
    asked = ask(claimed, **words, expires_in_seconds=2, on_expiry="Deny")
    session = Session(approver, web.url)

    def read() -> Any:
        return agent.get(f"/approvals/{asked['id']}")

    eventually(lambda: read()["status"] == "expired")
    for option in ("Approve", "Deny"):
        assert session.click(asked, option).status_code == 409
        refused = session.decide(asked, option)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "APPROVAL_EXPIRED")
        assert refused.json()["error"]["details"] == {"state": "expired", "decision": None}
    agent.refused("APPROVAL_EXPIRED", f"/approvals/{asked['id']}/cancel")
    # The agent can tell it from a denial.
    seen = read()
    assert (seen["status"], seen["decision"], seen["decided_by_user_id"]) == ("expired", None, None)
    # What it falls back to is told, and is nobody's decision.
    assert (seen["fallback"], seen["granted"], seen["final"]) == ("Deny", None, False)
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
    if asked["action"]:
        agent.refused("APPROVAL_EXPIRED", "/effects", effect(claimed, asked["action"]))
    again = ask(claimed, **words)
    assert session.decide(again, "Approve").status_code == 200
    session.client.close()


def test_nor_is_it_allowed_always(
    agent: Agent, admin: Human, claimed: Any, ask: Callable[..., Any], web: Server
) -> None:
    asked = ask(claimed, **ABOUT["an action"])
    let_approval_run_out(asked["id"])
    with Session(admin, web.url) as session:
        assert session.always_allow(asked).status_code == 409
    assert not PolicyRule.objects.filter(organization=admin.organization).exists()
    assert agent.get(f"/approvals/{asked['id']}")["status"] == "expired"


@pytest.mark.parametrize("fallback", ["Approve", "Ship it", "deny", "Maybe", "", None, 1, ["Deny"]])
def test_what_it_falls_back_to_is_an_option_that_grants_nothing(
    fallback: Any, agent: Agent, claimed: Any
) -> None:
    body = request(claimed, **ABOUT["an action"], on_expiry=fallback)
    error = agent.refused("VALIDATION_ERROR", "/approvals", body)
    assert list(error["details"]["fields"]) == ["on_expiry"]


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
    decided = answer.json()["data"]
    assert decided["ended_at"] < decided["expires_at"]
    eventually(lambda: time.monotonic() > began + 4.1)
    expire()
    seen = agent.get(f"/approvals/{asked['id']}")
    # Nor does the passed deadline change what is read of it.
    assert seen == decided
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
