"""How handoffs of a subject end: once, by who may, by the clock; and what the log tells of it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from coordination import handoffs, identity
from titen.api.doors import transact

from .cases.tools import at_once, events_of
from .cast import Agent, Company
from .clockwork import sql
from .locking import together
from .passing import accept, hand, let_offer_run_out, path, refused_acceptance

TEXT = "xylophone"


@pytest.fixture
def offered(agent: Agent, other: Agent) -> Any:
    """A pending handoff from `agent` to `other`."""
    return hand(agent, other, message=TEXT)


def fields_of(error: Any) -> list[str]:
    return list(error["details"]["fields"])


def test_a_rejection_keeps_its_reason_and_an_acceptance_takes_none(
    agent: Agent, other: Agent, offered: Any
) -> None:
    both = {"status": "accepted", "reason": "Gladly."}
    assert fields_of(other.refused("VALIDATION_ERROR", path(offered, "resolve"), both)) == ["reason"]
    timed = {"status": "rejected", "ttl_seconds": 60}
    assert fields_of(other.refused("VALIDATION_ERROR", path(offered, "resolve"), timed)) == ["ttl_seconds"]
    assert fields_of(refused_acceptance(other, offered, "VALIDATION_ERROR", ttl_seconds=60)) == [
        "ttl_seconds"
    ]
    told = other.post(path(offered, "resolve"), {"status": "rejected", "reason": f"No {TEXT}."})
    assert (told["status"], told["reason"], told["claim"]) == ("rejected", f"No {TEXT}.", None)
    assert agent.get(path(offered))["reason"] == f"No {TEXT}."


def test_only_the_sender_withdraws(agent: Agent, other: Agent, offered: Any) -> None:
    error = other.refused("VALIDATION_ERROR", path(offered, "withdraw"), {})
    assert error["message"] == "Only the sending principal can withdraw a handoff."
    told = agent.post(path(offered, "withdraw"), {"reason": "Done meanwhile."})
    assert (told["status"], told["reason"]) == ("withdrawn", "Done meanwhile.")
    assert other.get("/handoffs")["handoffs"] == []


ENDS: dict[str, Callable[[Agent, Agent, Any], Any]] = {
    "accepted": lambda sender, target, one: accept(target, one),
    "rejected": lambda sender, target, one: target.post(path(one, "resolve"), {"status": "rejected"}),
    "withdrawn": lambda sender, target, one: sender.post(path(one, "withdraw"), {}),
    "expired": lambda sender, target, one: let_offer_run_out(one),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_has_ended_says_how_and_never_changes(
    agent: Agent, other: Agent, offered: Any, end: str
) -> None:
    ENDS[end](agent, other, offered)
    ended = agent.get(path(offered))
    for who, verb, body in (
        (other, "resolve", {"status": "accepted"}),
        (other, "resolve", {"status": "rejected"}),
        (agent, "withdraw", {}),
    ):
        error = who.refused("NOT_FOUND", path(offered, verb), body)
        assert error["details"] == {"state": end}
    transact(handoffs.expire_due)
    assert agent.get(path(offered)) == ended
    assert (ended["status"], ended["ended_at"] is not None) == (end, True)


def test_twenty_resolutions_at_once_are_one(agent: Agent, other: Agent, offered: Any) -> None:
    bodies = [{"status": status} for status in ["accepted", "rejected"] * 10]
    answers = at_once(bodies, lambda body: other.client.post(f"/v1{path(offered, 'resolve')}", json=body))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 404: 19}
    (won,) = [answer.json()["data"]["status"] for answer in answers if answer.status_code == 200]
    assert agent.get(path(offered))["status"] == won
    kinds = [event["kind"] for event in events_of(agent) if event["subject_id"] == offered["handoff_id"]]
    assert kinds == ["handoff.created", f"handoff.{won}"]


def test_a_repeat_with_its_key_gets_the_first_answer(agent: Agent, other: Agent, offered: Any) -> None:
    key = {"Idempotency-Key": "once"}
    first, second = (
        other.post(path(offered, "resolve"), {"status": "accepted"}, headers=key) for _ in range(2)
    )
    assert first == second
    body = {"to_principal": "bert", "subject_id": "rollout"}
    made = {agent.post("/handoffs", body, headers=key)["handoff_id"] for _ in range(3)}
    assert len(made) == 1


def test_one_whose_time_is_over_has_expired_though_nobody_swept(
    agent: Agent, other: Agent, offered: Any
) -> None:
    let_offer_run_out(offered)
    assert other.get("/handoffs")["handoffs"] == []
    shown = agent.get(path(offered))
    assert (shown["status"], shown["ended_at"]) == ("expired", shown["expires_at"])
    assert [one["status"] for one in agent.get("/handoffs?box=sent")["handoffs"]] == ["expired"]
    assert events_of(agent, kind="handoff.expired") == []


def test_sweepers_write_down_each_expiry_once(agent: Agent, other: Agent) -> None:
    made = [hand(agent, other) for _ in range(30)]
    left = hand(agent, other)
    for one in made:
        let_offer_run_out(one)
    together(*[lambda: transact(handoffs.expire_due)] * 4)
    events = events_of(agent, kind="handoff.expired")
    assert sorted(event["subject_id"] for event in events) == sorted(one["handoff_id"] for one in made)
    assert {event["actor_id"] for event in events} == {None}
    assert other.get("/handoffs")["handoffs"] == [left]
    rows = sql(
        "SELECT count(*) FROM coordination_handoff WHERE from_principal_id = %s AND status = 'expired'"
        " AND ended_at = expires_at",
        agent.principal.pk,
    )
    assert rows == [(30,)]


def test_who_loses_access_takes_its_offers_along(
    company: Company, agent: Agent, other: Agent, third: Agent
) -> None:
    """What it offered is withdrawn; what was offered to it can be accepted by nobody, and has expired."""
    sent, received, between = hand(agent, other), hand(third, agent), hand(third, other)
    transact(lambda: identity.disable_principal(agent.principal))
    assert other.get("/handoffs")["handoffs"] == [between]
    refused = other.refused("NOT_FOUND", path(sent, "resolve"), {"status": "accepted"})
    assert refused["details"] == {"state": "withdrawn"}
    assert third.get(path(received))["status"] == "expired"


def test_events_name_ids_and_never_the_text(agent: Agent, other: Agent) -> None:
    note = agent.post("/checkpoints", {"subject_id": TEXT, "kind": TEXT, "state": TEXT})
    for end in ("withdrawn", "rejected"):
        made = hand(agent, other, subject_id=TEXT, message=TEXT, checkpoint_id=note["checkpoint_id"])
        if end == "withdrawn":
            agent.post(path(made, "withdraw"), {"reason": TEXT})
        else:
            other.post(path(made, "resolve"), {"status": "rejected", "reason": TEXT})
        created, ended = (event for event in events_of(agent) if event["subject_id"] == made["handoff_id"])
        assert created["data"] == {"to": made["to_principal_id"], "checkpoint_id": note["checkpoint_id"]}
        assert (ended["kind"], ended["data"]) == (f"handoff.{end}", {"to": made["to_principal_id"]})
        actor = agent if end == "withdrawn" else other
        assert ended["actor_id"] == actor.get("/principal")["principal_id"]
    assert TEXT not in str(events_of(agent))


def test_scopes_say_who_may_look_and_who_may_act(company: Company, agent: Agent, other: Agent) -> None:
    made = hand(agent, other)
    _, secret = identity.issue_key(other.principal, scopes=["handoffs:read"])
    reader = Agent(other.principal, secret, other.url)
    assert reader.get(path(made)) == made
    error = reader.refused("FORBIDDEN", path(made, "resolve"), {"status": "accepted"})
    assert error["details"] == {"scope": "handoffs:write"}
    reader.close()
