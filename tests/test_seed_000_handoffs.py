"""What the page "Leases & handoffs" says of handoffs, line by line."""

from typing import Any

import pytest

from .cases.tools import events_of
from .cast import Agent, Company
from .passing import accept, hand, path

MESSAGE = "Smoke passed, needs approval to promote."


@pytest.fixture
def reviewer(company: Company) -> Agent:
    return company.agent("agent_reviewer")


@pytest.fixture
def checkpoint(agent: Agent) -> Any:
    return agent.post("/checkpoints", {"subject_id": "user_rama", "kind": "smoke", "state": {"passed": True}})


@pytest.fixture
def offered(agent: Agent, reviewer: Agent, checkpoint: Any) -> Any:
    """The page's own request."""
    return agent.post(
        "/handoffs",
        {
            "to_principal": "agent_reviewer",
            "subject_id": "user_rama",
            "checkpoint_id": checkpoint["checkpoint_id"],
            "message": MESSAGE,
        },
    )


def test_a_handoff_says_who_should_continue_about_which_subject(offered: Any) -> None:
    assert offered["handoff_id"].startswith("hoff_")
    assert offered["status"] == "pending"


def test_a_context_pack_and_a_checkpoint_can_be_attached(
    agent: Agent, reviewer: Agent, checkpoint: Any
) -> None:
    item = {"type": "checkpoint", "id": checkpoint["checkpoint_id"]}
    pack = agent.post("/contexts", {"subject_id": "user_rama", "items": [item]})
    named = {"context_id": pack["context_id"], "checkpoint_id": checkpoint["checkpoint_id"]}
    made = hand(agent, reviewer, **named)
    assert {name: made[name] for name in named} == named


def test_the_list_returns_pending_handoffs_addressed_to_the_caller(
    agent: Agent, reviewer: Agent, checkpoint: Any, offered: Any
) -> None:
    (shown,) = reviewer.get("/handoffs")["handoffs"]
    page = {
        "handoff_id": offered["handoff_id"],
        "from_principal": agent.get("/principal")["principal_id"],
        "to_principal": "agent_reviewer",
        "subject_id": "user_rama",
        "context_id": None,
        "checkpoint_id": checkpoint["checkpoint_id"],
        "message": MESSAGE,
        "status": "pending",
        "created_at": offered["created_at"],
    }
    assert {name: shown[name] for name in page} == page


def test_the_senders_own_list_comes_back_empty(agent: Agent, offered: Any) -> None:
    assert agent.get("/handoffs")["handoffs"] == []


def test_a_dispatcher_can_subscribe_to_handoff_created(agent: Agent, offered: Any) -> None:
    (event,) = events_of(agent, kind="handoff.created")
    assert event["subject_id"] == offered["handoff_id"]
    assert event["data"]["to"] == offered["to_principal_id"]
    assert MESSAGE not in str(event)


@pytest.mark.parametrize("status", ["accepted", "rejected"])
def test_resolve_takes_accepted_or_rejected(reviewer: Agent, offered: Any, status: str) -> None:
    assert reviewer.post(path(offered, "resolve"), {"status": status})["status"] == status
    assert reviewer.get("/handoffs")["handoffs"] == []


@pytest.mark.parametrize("status", ["withdrawn", "expired", "pending", "ACCEPTED", "", None, True])
def test_resolve_takes_nothing_else(reviewer: Agent, offered: Any, status: Any) -> None:
    error = reviewer.refused("VALIDATION_ERROR", path(offered, "resolve"), {"status": status})
    assert list(error["details"]["fields"]) == ["status"]


def test_only_the_target_principal_may_resolve(agent: Agent, offered: Any) -> None:
    answer = agent.send("POST", path(offered, "resolve"), {"status": "accepted"})
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "code": "VALIDATION_ERROR",
        "message": "Only the target principal can resolve a handoff.",
    }


@pytest.mark.parametrize("first", ["accepted", "rejected"])
@pytest.mark.parametrize("second", ["accepted", "rejected"])
def test_a_second_resolve_returns_404_and_flips_nothing(
    reviewer: Agent, offered: Any, first: str, second: str
) -> None:
    reviewer.post(path(offered, "resolve"), {"status": first})
    error = reviewer.refused("NOT_FOUND", path(offered, "resolve"), {"status": second})
    assert error["details"] == {"state": first}
    assert reviewer.get(path(offered))["status"] == first


@pytest.mark.parametrize("status", ["accepted", "rejected"])
def test_each_transition_emits_its_event(reviewer: Agent, offered: Any, status: str) -> None:
    reviewer.post(path(offered, "resolve"), {"status": status})
    kinds = [event["kind"] for event in events_of(reviewer) if event["subject_id"] == offered["handoff_id"]]
    assert kinds == ["handoff.created", f"handoff.{status}"]


def test_receiving_an_event_never_becomes_membership(agent: Agent, other: Agent, offered: Any) -> None:
    """Who reads the handoff's id in the log has no part in it."""
    assert events_of(other, kind="handoff.created")
    other.refused("NOT_FOUND", path(offered), method="GET")
    other.refused("NOT_FOUND", path(offered, "resolve"), {"status": "accepted"})
    assert other.get("/handoffs")["handoffs"] == []
    assert agent.get(path(offered))["status"] == "pending"


def test_the_receiver_accepts_acquires_the_lease_and_compiles_context_itself(
    reviewer: Agent, offered: Any, checkpoint: Any
) -> None:
    """handoff, accept, lease, work, checkpoint, release: each under its own credential."""
    assert accept(reviewer, offered)["claim"] is None
    lease = reviewer.post(
        "/leases", {"resource_type": "deploy", "resource_id": "checkout-service", "ttl_seconds": 600}
    )
    read = reviewer.get(f"/checkpoints/{checkpoint['checkpoint_id']}")
    assert read["state"] == {"passed": True}
    reviewer.post("/checkpoints", {"subject_id": "user_rama", "kind": "promotion", "state": {"step": 1}})
    assert reviewer.send("DELETE", f"/leases/{lease['lease_id']}").status_code == 200


def test_a_handoff_takes_to_principal_subject_id_and_an_optional_message(
    agent: Agent, reviewer: Agent
) -> None:
    """All that the page's MCP tool sends."""
    for body in ({}, {"message": "Over to you."}):
        made = agent.post("/handoffs", {"to_principal": "agent_reviewer", "subject_id": "user_rama", **body})
        assert made["message"] == body.get("message", "")
    assert len(reviewer.get("/handoffs")["handoffs"]) == 2
