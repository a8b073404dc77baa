"""Handoffs of a subject: offering one, and the boxes in which it is found."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordination import handoffs, identity
from titen.api.doors import transact

from .cast import Agent, Company, Human, found_company
from .clockwork import uuid_of
from .passing import accept, hand, let_offer_run_out, path

TEXT = "xylophone"


@pytest.fixture
def stranger(agent: Agent) -> Iterator[Agent]:
    """An agent of another organization."""
    stranger = found_company(agent.url).agent("stranger")
    yield stranger
    stranger.close()


@pytest.fixture
def offered(agent: Agent, other: Agent) -> Any:
    """A pending handoff from `agent` to `other`."""
    return hand(agent, other, message=TEXT)


def fields_of(error: Any) -> list[str]:
    return list(error["details"]["fields"])


def test_the_target_is_named_by_id_or_by_any_spelling_of_its_name(agent: Agent, company: Company) -> None:
    target = company.agent("Straße-ﬁx")
    printed = target.get("/principal")["principal_id"]
    for address in (printed, "Straße-ﬁx", "STRASSE-FIX", "strasse-fix"):
        made = agent.post("/handoffs", {"to_principal": address, "subject_id": "rollout"})
        assert (made["to_principal"], made["to_principal_id"], made["to_name"]) == (
            address,
            printed,
            "Straße-ﬁx",
        )
    assert len(target.get("/handoffs")["handoffs"]) == 4


def test_a_target_that_cannot_take_it_is_refused_by_name_and_all_alike(
    agent: Agent, company: Company, stranger: Agent
) -> None:
    gone, left = company.agent("gone"), company.human()
    transact(lambda: identity.disable_principal(gone.principal))
    transact(lambda: identity.end_membership(left.user.memberships.get()))
    me = agent.get("/principal")
    addresses = [
        "nobody",
        f"agent_{'0' * 32}",
        f"agent_{stranger.principal.pk.hex}",
        stranger.principal.name,
        "gone",
        f"agent_{gone.principal.pk.hex}",
        left.user.email,
        me["name"],
        me["principal_id"],
    ]
    errors = [
        agent.refused("VALIDATION_ERROR", "/handoffs", {"to_principal": address, "subject_id": "rollout"})
        for address in addresses
    ]
    assert all(error == errors[0] for error in errors)
    assert fields_of(errors[0]) == ["to_principal"]
    assert agent.get("/handoffs?box=sent")["handoffs"] == []


def test_a_human_can_be_the_target(agent: Agent, admin: Human) -> None:
    made = agent.post("/handoffs", {"to_principal": admin.user.email, "subject_id": "rollout"})
    taken = transact(lambda: handoffs.reject(admin.caller, uuid_of(made["handoff_id"]), reason="Not now."))
    assert taken.status == "rejected"
    assert agent.get(path(made))["reason"] == "Not now."


def test_what_is_named_must_be_readable_and_foreign_is_like_unknown(
    agent: Agent, other: Agent, third: Agent, stranger: Agent
) -> None:
    note = {"subject_id": "rollout", "kind": "note", "state": 1}
    private, foreign = (one.post("/checkpoints", note)["checkpoint_id"] for one in (third, stranger))
    item = [{"type": "checkpoint", "id": private}]
    pack = third.post("/contexts", {"items": item})["context_id"]
    theirs = stranger.post("/contexts", {"items": [{"type": "checkpoint", "id": foreign}]})["context_id"]
    for field, ids in (
        ("checkpoint_id", [private, foreign, f"ckpt_{'0' * 32}"]),
        ("context_id", [pack, theirs, f"ctx_{'0' * 32}"]),
    ):
        errors = [
            agent.refused(
                "VALIDATION_ERROR",
                "/handoffs",
                {"to_principal": "bert", "subject_id": "rollout", field: printed},
            )
            for printed in ids
        ]
        assert all(error == errors[0] for error in errors)
        assert fields_of(errors[0]) == [field]
    assert other.get("/handoffs")["handoffs"] == []


def test_the_checkpoint_is_pinned_as_it_stood(agent: Agent, other: Agent) -> None:
    body = {"subject_id": "rollout", "kind": "note"}
    first = agent.post("/checkpoints", {**body, "state": "first"})
    made = hand(agent, other, checkpoint_id=first["checkpoint_id"])
    agent.post("/checkpoints", {**body, "state": "second"})
    assert made["checkpoint_version"] == other.get(path(made))["checkpoint_version"] == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"subject_id": None}, "subject_id"),
    ({"subject_id": ""}, "subject_id"),
    ({"subject_id": "x" * 201}, "subject_id"),
    ({"subject_id": "two\nlines"}, "subject_id"),
    ({"message": "x" * 8001}, "message"),
    ({"to_principal": ""}, "to_principal"),
    ({"to_principal": "x" * 121}, "to_principal"),
    ({"checkpoint_id": "ckpt_1"}, "checkpoint_id"),
    ({"context_id": f"ckpt_{'0' * 32}"}, "context_id"),
    ({"run_id": f"run_{'0' * 32}"}, "epoch"),
    ({"epoch": 1}, "run_id"),
    ({"expires_in_seconds": 0}, "expires_in_seconds"),
    ({"expires_in_seconds": 30 * 86_400 + 1}, "expires_in_seconds"),
    ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ({"expires_in_seconds": 60, "expires_at": "2020-01-01T00:00:00Z"}, "expires_in_seconds"),
    ({"surprise": 1}, "surprise"),
]


@pytest.mark.parametrize(("change", "field"), WRONG, ids=lambda part: str(part)[:40])
def test_what_cannot_be_meant_is_refused_by_name(
    agent: Agent, other: Agent, change: dict[str, Any], field: str
) -> None:
    body = {"to_principal": "bert", "subject_id": "rollout", **change}
    assert fields_of(agent.refused("VALIDATION_ERROR", "/handoffs", body)) == [field]


def test_a_subject_is_needed_where_no_task_is_handed_off(agent: Agent, other: Agent) -> None:
    error = agent.refused("VALIDATION_ERROR", "/handoffs", {"to_principal": "bert"})
    assert fields_of(error) == ["subject_id"]


def test_it_ends_after_a_day_or_when_it_says(agent: Agent, other: Agent) -> None:
    def lasts(**more: Any) -> timedelta:
        made = hand(agent, other, **more)
        return datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])

    assert lasts() == timedelta(days=1)
    assert lasts(expires_in_seconds=1) == timedelta(seconds=1)
    assert lasts(expires_in_seconds=30 * 86_400) == timedelta(days=30)
    soon = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    assert hand(agent, other, expires_at=soon.isoformat())["expires_at"] == soon.strftime(
        "%Y-%m-%dT%H:%M:%S.000Z"
    )


def test_the_sent_box_shows_all_that_was_sent_newest_first_and_filters_by_status(
    agent: Agent, other: Agent
) -> None:
    made = [hand(agent, other) for _ in range(4)]
    accept(other, made[0])
    let_offer_run_out(made[1])
    agent.post(path(made[2], "withdraw"), {"reason": "Done meanwhile."})
    sent = agent.get("/handoffs?box=sent")["handoffs"]
    assert [one["handoff_id"] for one in sent] == [one["handoff_id"] for one in reversed(made)]
    assert [one["status"] for one in sent] == ["pending", "withdrawn", "expired", "accepted"]
    for shown in sent:
        found = agent.get(f"/handoffs?box=sent&status={shown['status']}")["handoffs"]
        assert found == [shown]
    assert other.get("/handoffs?box=sent")["handoffs"] == []


def test_the_inbox_is_paged(agent: Agent, other: Agent) -> None:
    made = [hand(agent, other)["handoff_id"] for _ in range(3)]
    first = other.get("/handoffs?limit=2")
    rest = other.get(f"/handoffs?limit=2&cursor={first['next_cursor']}")
    assert [one["handoff_id"] for one in first["handoffs"] + rest["handoffs"]] == made[::-1]
    assert rest["next_cursor"] is None


def test_the_target_finds_what_it_has_resolved_by_its_status(agent: Agent, other: Agent) -> None:
    taken, left = hand(agent, other), hand(agent, other)
    accept(other, taken)
    ids = {
        status: [one["handoff_id"] for one in other.get(f"/handoffs?status={status}")["handoffs"]]
        for status in ("accepted", "pending", "rejected")
    }
    assert ids == {"accepted": [taken["handoff_id"]], "pending": [left["handoff_id"]], "rejected": []}


@pytest.mark.parametrize(
    ("query", "field"), [("box=out", "box"), ("status=open", "status"), ("to=bert", "to"), ("box=", "box")]
)
def test_a_filter_that_means_nothing_is_refused(agent: Agent, query: str, field: str) -> None:
    assert fields_of(agent.refused("VALIDATION_ERROR", f"/handoffs?{query}", method="GET")) == [field]


def test_sender_and_target_read_it_and_nobody_else(
    agent: Agent, other: Agent, third: Agent, offered: Any
) -> None:
    assert agent.get(path(offered)) == other.get(path(offered)) == offered
    unknown = third.refused("NOT_FOUND", f"/handoffs/hoff_{'0' * 32}", method="GET")
    for method, verb, body in (
        ("GET", "", None),
        ("POST", "resolve", {"status": "accepted"}),
        ("POST", "resolve", {"status": "rejected"}),
        ("POST", "withdraw", {}),
    ):
        assert third.refused("NOT_FOUND", path(offered, verb), body, method=method) == unknown
    assert agent.get(path(offered)) == offered
