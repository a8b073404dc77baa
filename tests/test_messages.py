"""Messages: to a principal, or to whoever holds a resource, whom the sender never learns."""

from typing import Any

import pytest

from .cases.tools import at_once, events_of
from .cast import Agent, Company, found_company
from .clockwork import let_lease_run_out, sql, uuid_of

TEXT = "When will you be done with it?"
DEPLOY = {"resource_type": "deploy", "resource_id": "checkout-service"}


@pytest.fixture
def leased(other: Agent) -> Any:
    """`other` holds a deployment."""
    return other.post("/leases", {**DEPLOY, "ttl_seconds": 600})


@pytest.fixture
def asked(agent: Agent, leased: Any) -> Any:
    """`agent` has asked whoever holds it."""
    return agent.post("/messages", {**DEPLOY, "body": TEXT})


def fields_of(error: Any) -> list[str]:
    return list(error["details"]["fields"])


def place(message: Any, verb: str = "") -> str:
    return f"/messages/{message['message_id']}" + (f"/{verb}" if verb else "")


def test_a_message_goes_to_a_principal_by_name_or_id(agent: Agent, other: Agent) -> None:
    me, them = (one.get("/principal")["principal_id"] for one in (agent, other))
    for address in ("bert", "BERT", them):
        sent = agent.post("/messages", {"to_principal": address, "body": TEXT})
        assert (sent["to_principal"], sent["to_name"], sent["resource"]) == (them, "bert", None)
        assert (sent["from_principal"], sent["from_name"], sent["body"]) == (me, "ada", TEXT)
        assert other.get(place(sent)) == sent


def test_the_inbox_shows_the_newest_first_and_what_is_unread(agent: Agent, other: Agent) -> None:
    sent = [agent.post("/messages", {"to_principal": "bert", "body": str(n)}) for n in range(3)]
    ids = [one["message_id"] for one in reversed(sent)]
    assert [one["message_id"] for one in other.get("/messages")["messages"]] == ids
    other.post(place(sent[1], "read"))

    def listed(query: str) -> list[str]:
        return [one["body"] for one in other.get(f"/messages?{query}")["messages"]]

    assert listed("unread=true") == ["2", "0"]
    assert listed("unread=false") == ["1"]
    first = other.get("/messages?limit=2")
    rest = other.get(f"/messages?limit=2&cursor={first['next_cursor']}")
    assert [one["message_id"] for one in first["messages"] + rest["messages"]] == ids
    assert agent.get("/messages")["messages"] == []
    assert [one["message_id"] for one in agent.get("/messages?box=sent")["messages"]] == ids
    assert other.get("/messages?box=sent")["messages"] == []


def test_the_recipient_marks_it_as_read_once_and_the_sender_is_not_told(agent: Agent, other: Agent) -> None:
    sent = agent.post("/messages", {"to_principal": "bert", "body": TEXT})
    error = agent.refused("VALIDATION_ERROR", place(sent, "read"))
    assert error["message"] == "Only the recipient can mark a message as read."
    first = other.post(place(sent, "read"))
    assert first["read_at"]
    assert at_once(range(4), lambda _: other.post(place(sent, "read"))) == [first] * 4
    assert other.get(place(sent)) == first
    assert agent.get(place(sent))["read_at"] is None
    assert [one["read_at"] for one in agent.get("/messages?box=sent")["messages"]] == [None]
    assert fields_of(agent.refused("VALIDATION_ERROR", "/messages?box=sent&unread=true", method="GET")) == [
        "unread"
    ]
    assert [event["kind"] for event in events_of(agent)][-1] == "message.sent"


def test_nobody_else_finds_it(agent: Agent, other: Agent, third: Agent) -> None:
    sent = agent.post("/messages", {"to_principal": "bert", "body": TEXT})
    unknown = third.refused("NOT_FOUND", f"/messages/msg_{'0' * 32}", method="GET")
    assert third.refused("NOT_FOUND", place(sent), method="GET") == unknown
    assert third.refused("NOT_FOUND", place(sent, "read")) == unknown
    assert third.get("/messages")["messages"] == third.get("/messages?box=sent")["messages"] == []


# -- Asking a holder ---------------------------------------------------------------------------------------


def test_the_holder_gets_it_with_the_resource_and_the_sender_learns_nobodys_name(
    agent: Agent, other: Agent, asked: Any
) -> None:
    (received,) = other.get("/messages")["messages"]
    assert (received["from_name"], received["resource"], received["body"]) == ("ada", DEPLOY, TEXT)
    assert received["to_principal"] == other.get("/principal")["principal_id"]
    other.post(place(asked, "read"))
    hidden = ("bert", other.principal.pk.hex)
    for shown in (
        asked,
        agent.get(place(asked)),
        agent.get("/messages?box=sent"),
        events_of(agent, kind="message.sent"),
    ):
        assert not any(name in str(shown) for name in hidden)
    assert (asked["to_principal"], asked["to_name"], asked["resource"]) == (None, None, DEPLOY)


def test_the_event_tells_the_resource_or_whom_it_was_addressed_to(
    agent: Agent, other: Agent, asked: Any
) -> None:
    named = agent.post("/messages", {"to_principal": "bert", "body": TEXT})
    of_holder, of_name = events_of(agent, kind="message.sent")
    assert (of_holder["subject_id"], of_holder["data"]) == (asked["message_id"], DEPLOY)
    assert (of_name["subject_id"], of_name["data"]) == (named["message_id"], {"to": named["to_principal"]})
    assert {one["actor_id"] for one in (of_holder, of_name)} == {asked["from_principal"]}
    assert TEXT not in str((of_holder, of_name))


def test_whoever_holds_a_task_can_be_asked(agent: Agent, other: Agent) -> None:
    agent.create()
    claim = other.claim()
    task = {"resource_type": "task", "resource_id": claim["task"]["id"]}
    agent.post("/messages", {**task, "body": TEXT})
    assert [one["resource"] for one in other.get("/messages")["messages"]] == [task]


def test_whoever_holds_a_section_can_be_asked(agent: Agent, other: Agent) -> None:
    other.client.post(
        "/api/v1/documents/handbook/sections/intro/lease", json={"leaseDurationSeconds": 60}
    ).raise_for_status()
    section = {"resource_type": "section", "resource_id": "handbook/intro"}
    agent.post("/messages", {**section, "body": TEXT})
    assert [one["resource"] for one in other.get("/messages")["messages"]] == [section]


def test_a_resource_that_nobody_holds_is_like_one_that_never_was(
    agent: Agent, other: Agent, leased: Any
) -> None:
    ended = other.send("DELETE", f"/leases/{leased['lease_id']}")
    assert ended.status_code == 200
    agent.create()
    claim = other.claim()
    let_lease_run_out(claim)
    stranger = found_company(agent.url).agent("stranger")
    foreign = {"resource_type": "deploy", "resource_id": "theirs"}
    stranger.post("/leases", foreign)
    stranger.close()
    errors = [
        agent.refused("CONFLICT", "/messages", {**resource, "body": TEXT})
        for resource in (
            DEPLOY,
            foreign,
            {"resource_type": "deploy", "resource_id": "never-was"},
            {"resource_type": "task", "resource_id": claim["task"]["id"]},
        )
    ]
    assert all(error == errors[0] for error in errors)
    assert errors[0]["message"].startswith("Nobody holds this resource now")
    assert other.get("/messages")["messages"] == []


def test_it_goes_to_whoever_holds_it_now(agent: Agent, other: Agent, third: Agent, leased: Any) -> None:
    sql(
        "UPDATE coordination_lease SET expires_at = clock_timestamp() WHERE id = %s",
        uuid_of(leased["lease_id"]),
    )
    third.post("/leases", DEPLOY)
    agent.post("/messages", {**DEPLOY, "body": TEXT})
    assert len(third.get("/messages")["messages"]) == 1
    assert other.get("/messages")["messages"] == []


# -- Bad input ---------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"body": TEXT}, "to_principal"),
    ({"body": TEXT, "resource_type": "deploy"}, "resource_id"),
    ({"body": TEXT, "resource_id": "checkout-service"}, "resource_type"),
    ({"body": TEXT, "to_principal": "bert", "resource_type": "deploy"}, "to_principal"),
    ({"body": TEXT, "to_principal": "bert", **DEPLOY}, "to_principal"),
    ({"body": TEXT, "to_principal": "nobody"}, "to_principal"),
    ({"body": TEXT, "to_principal": "ada"}, "to_principal"),
    ({"body": "", "to_principal": "bert"}, "body"),
    ({"body": "x" * 8001, "to_principal": "bert"}, "body"),
    ({"to_principal": "bert"}, "body"),
    ({"body": TEXT, "to_principal": "bert", "read": True}, "read"),
]


@pytest.mark.parametrize(("body", "field"), WRONG, ids=lambda part: str(part)[:40])
def test_what_cannot_be_meant_is_refused_by_name(
    agent: Agent, other: Agent, body: dict[str, Any], field: str
) -> None:
    assert fields_of(agent.refused("VALIDATION_ERROR", "/messages", body)) == [field]
    assert other.get("/messages")["messages"] == []


def test_nobody_asks_themselves(agent: Agent) -> None:
    agent.post("/leases", DEPLOY)
    error = agent.refused("VALIDATION_ERROR", "/messages", {**DEPLOY, "body": TEXT})
    assert fields_of(error) == ["resource_id"]


def test_a_repeat_with_its_key_sends_once(agent: Agent, other: Agent) -> None:
    key = {"Idempotency-Key": "once"}
    body = {"to_principal": "bert", "body": TEXT}
    assert agent.post("/messages", body, headers=key) == agent.post("/messages", body, headers=key)
    assert len(other.get("/messages")["messages"]) == 1


def test_scopes_say_who_reads_and_who_writes(company: Company, other: Agent) -> None:
    writer = company.agent("writer", scopes="messages:write")
    sent = writer.post("/messages", {"to_principal": "bert", "body": TEXT})
    assert writer.refused("FORBIDDEN", place(sent), method="GET")["details"] == {"scope": "messages:read"}
    reader = company.agent("reader", scopes="messages:read")
    refused = reader.refused("FORBIDDEN", "/messages", {"to_principal": "bert", "body": TEXT})
    assert refused["details"] == {"scope": "messages:write"}
