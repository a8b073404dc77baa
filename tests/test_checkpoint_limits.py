"""What a checkpoint may hold, how long it stays, and what the clean-up leaves."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.test import override_settings

from coordination import takeovers
from coordination.jobs import clean_up
from coordination.models import Checkpoint, Principal
from titen.api.doors import transact

from .cast import Agent, Human
from .clockwork import sql, uuid_of
from .keeping import OVER, expire, hand, keep, versions, word
from .scenes import human_ends

LIMIT = 256 * 1024
WILD = [-1, 2**31, 2**63, 10**30, 1.5, "1", None, True, []]


def refused(agent: Agent, field: str, path: str, body: Any = None, **more: Any) -> None:
    """A 400 that names the field and nothing else."""
    error = agent.refused("VALIDATION_ERROR", path, body, **more)
    assert list(error["details"]["fields"]) == [field], error


# Size and numbers


def test_a_state_of_256_kib_is_the_largest(agent: Agent) -> None:
    """Counted as canonical JSON: the two quotes of the string, and each of its bytes in UTF-8."""
    assert keep(agent, "é" * (LIMIT // 2 - 1))["version"] == 1
    for state in ("é" * (LIMIT // 2 - 1) + "x", [0] * (LIMIT // 2), [1e300] * 1000):
        error = agent.refused(
            "PAYLOAD_TOO_LARGE", "/checkpoints", {"subject_id": "customer-7", "state": state}
        )
        assert list(error["details"]["fields"]) == ["state"]
        assert "state" in error["message"]
    assert agent.get("/checkpoints")["checkpoints"][0]["version"] == 1


def test_a_release_with_a_checkpoint_that_is_too_large_releases_nothing(agent: Agent, claimed: Any) -> None:
    run = f"/runs/{claimed['run']['id']}"
    error = agent.refused("PAYLOAD_TOO_LARGE", f"{run}/release", {"epoch": 1, "checkpoint": "x" * LIMIT})
    assert list(error["details"]["fields"]) == ["checkpoint"]
    assert agent.get(run)["status"] == "running"


def test_numbers_come_back_digit_by_digit(agent: Agent) -> None:
    state: dict[str, Any] = {
        "ids": [1234567890123456789, 1234567890123456788, 10**40, -(2**63)],
        "share": 0.1,
    }
    made = keep(agent, state)
    assert agent.get(f"/checkpoints/{made['checkpoint_id']}")["state"] == state
    assert keep(agent, {**state, "ids": [n + 1 for n in state["ids"]]})["state_hash"] != made["state_hash"]


def test_numbers_out_of_range_are_refused(agent: Agent, claimed: Any, kept: Any) -> None:
    body = {"subject_id": "customer-7", "state": 2}
    for value in WILD:
        refused(agent, "expected_version", "/checkpoints", {**body, "expected_version": value})
    for value in [*WILD, 0]:
        refused(agent, "expires_in_seconds", "/checkpoints", {**body, "expires_in_seconds": value})
    for value in [0, -1, 2**53, 2**63, 1.0, "1", None, True, []]:
        refused(agent, "epoch", "/checkpoints", {**word(claimed, 2), "epoch": value})
    path = f"/checkpoints/{kept['checkpoint_id']}"
    for value in ("0", "-1", str(2**31), str(2**63), str(10**40), "1.5", "x", "", "%20", "1%0A", "٣"):
        refused(agent, "version", f"{path}?version={value}", method="GET")
    for value in ("0", "-1", "201", str(2**63), "1.5", "", "٣"):
        refused(agent, "limit", f"{path}/history?limit={value}", method="GET")
        refused(agent, "limit", f"/checkpoints?limit={value}", method="GET")
    for value in ("0", "-1", str(2**63), "A" * 23):
        refused(agent, "cursor", f"{path}/history?cursor={value}", method="GET")
    # One that is none of ours, but has the form of one.
    assert [each["version"] for each in agent.get(f"{path}/history?cursor={'_' * 21}w")["versions"]] == [1]
    assert versions(agent, kept) == [1]


BAD_BODIES: list[tuple[str, dict[str, Any]]] = [
    ("subject_id", {"state": 1}),
    ("state", {"subject_id": "x"}),
    ("subject_id", {"subject_id": "", "state": 1}),
    ("subject_id", {"subject_id": "x" * 201, "state": 1}),
    ("subject_id", {"subject_id": "a\nb", "state": 1}),
    ("kind", {"subject_id": "x", "state": 1, "kind": ""}),
    ("kind", {"subject_id": "x", "state": 1, "kind": "k" * 81}),
    ("epoch", {"state": 1, "run_id": f"run_{'0' * 32}"}),
    ("run_id", {"state": 1, "epoch": 1}),
    ("run_id", {"state": 1, "epoch": 1, "run_id": "run_1"}),
    ("agent", {"subject_id": "x", "state": 1, "agent": f"agent_{'0' * 32}"}),
]


@pytest.mark.parametrize(("field", "body"), BAD_BODIES)
def test_a_bad_body_is_refused_and_the_field_named(agent: Agent, field: str, body: dict[str, Any]) -> None:
    refused(agent, field, "/checkpoints", body)


# Time


def test_the_end_is_the_same_instant_in_whatever_zone_it_was_written(agent: Agent) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    for zone in (UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=9))):
        made = keep(agent, 1, expires_at=end.astimezone(zone).isoformat())
        assert made["expires_at"] == end.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    soon = keep(agent, 1, expires_in_seconds=3600)
    assert datetime.fromisoformat(soon["expires_at"]) - datetime.fromisoformat(
        soon["updated_at"]
    ) == timedelta(hours=1)
    assert keep(agent, 1)["expires_at"] is None


BAD_ENDS = [
    "2100-01-01T00:00:00",
    "2100-01-01T00:00:00Z",
    "2020-01-01T00:00:00Z",
    "9999-12-31T23:59:59-12:00",
    "tomorrow",
    "",
    4102444800,
    None,
    True,
]


@pytest.mark.parametrize("end", BAD_ENDS)
def test_an_end_that_is_none_is_refused(agent: Agent, end: Any) -> None:
    refused(agent, "expires_at", "/checkpoints", {"subject_id": "x", "state": 1, "expires_at": end})


def test_one_of_the_two_ends_is_enough(agent: Agent) -> None:
    end = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    both = {"subject_id": "x", "state": 1, "expires_at": end, "expires_in_seconds": 60}
    refused(agent, "expires_in_seconds", "/checkpoints", both)


def test_an_expired_one_is_unknown_everywhere_at_once_and_nobody_had_to_sweep(
    agent: Agent, other: Agent, claimed: Any
) -> None:
    made = agent.post("/checkpoints", word(claimed, {"at": 3}, expires_in_seconds=3600))
    path = f"/checkpoints/{made['checkpoint_id']}"
    expire(made)
    for gone in (path, f"{path}?version=1", f"{path}/history"):
        agent.refused("NOT_FOUND", gone, method="GET")
    assert agent.get("/checkpoints")["checkpoints"] == []
    assert agent.get(f"/runs/{claimed['run']['id']}")["checkpoint"] is None
    assert agent.get(f"/tasks/{claimed['task']['id']}/context")["checkpoint"] is None
    pin = {"items": [{"type": "checkpoint", "id": made["checkpoint_id"]}]}
    refused(agent, "items", "/contexts", pin)
    # Who expects the old version learns that there is none; the numbers go on.
    error = agent.refused("VERSION_MISMATCH", "/checkpoints", word(claimed, 4, expected_version=1))
    assert error["details"] == {"current_version": 0, "state_hash": None}
    back = agent.post("/checkpoints", word(claimed, 4, expected_version=0))
    assert (back["checkpoint_id"], back["version"], back["expires_at"]) == (made["checkpoint_id"], 2, None)
    assert versions(agent, made) == [2, 1]


# The clean-up


def states(agent: Agent, kept: Any) -> list[int]:
    """The versions that the database still has."""
    found = sql(
        "SELECT version FROM coordination_checkpointversion WHERE checkpoint_id = %s ORDER BY version",
        uuid_of(kept["checkpoint_id"]),
    )
    return [version for (version,) in found]


def test_the_clean_up_leaves_the_newest_versions_and_what_is_pinned(
    agent: Agent, other: Agent, kept: Any
) -> None:
    few = keep(agent, "alone", kind="few")
    for step in range(2, 13):
        keep(agent, {"step": step})
    pin = {"type": "checkpoint", "id": kept["checkpoint_id"]}
    pack = agent.post("/contexts", {"items": [{**pin, "version": 2}]})
    named = {"checkpoint": kept["checkpoint_id"]}
    hand(other, agent, **named, version=4)
    hand(other, agent, **named, version=5, status="accepted")
    for version, status in enumerate([*OVER, "run out"], start=6):
        hand(other, agent, **named, version=version, status=status)
    with override_settings(CHECKPOINT_VERSIONS_KEPT=3):
        clean_up()
    assert states(agent, kept) == [2, 4, 5, 10, 11, 12]
    assert states(agent, few) == [1]
    path = f"/checkpoints/{kept['checkpoint_id']}"
    assert agent.get(path)["state"] == {"step": 12}
    agent.refused("NOT_FOUND", f"{path}?version=3", method="GET")
    assert agent.get(f"/contexts/{pack['context_id']}")["items"][0]["content"]["state"] == {"step": 2}
    assert other.get(path)["version"] == 5
    assert keep(agent, {"step": 13})["version"] == 13


@pytest.mark.parametrize(
    "pinned", ["by nothing", "by a pack", "by a live handoff", "by a handoff that is over"]
)
def test_the_clean_up_drops_an_expired_one_unless_it_is_pinned(
    agent: Agent, other: Agent, kept: Any, pinned: str
) -> None:
    keep(agent, {"step": 2})
    named = {"checkpoint": kept["checkpoint_id"], "version": 1}
    if pinned == "by a pack":
        agent.post(
            "/contexts", {"items": [{"type": "checkpoint", "id": kept["checkpoint_id"], "version": 1}]}
        )
    elif pinned != "by nothing":
        hand(other, agent, **named, status="withdrawn" if "over" in pinned else "pending")
    expire(kept)
    clean_up()
    assert states(agent, kept) == ([1] if pinned in ("by a pack", "by a live handoff") else [])
    row = Checkpoint.objects.filter(pk=uuid_of(kept["checkpoint_id"]))
    assert row.exists() == (pinned != "by nothing")
    again = keep(agent, {"step": 3})
    assert again["version"] == (1 if pinned == "by nothing" else 3)


# A human's


def test_what_a_human_leaves_is_a_checkpoint_too(agent: Agent, admin: Human, claimed: Any) -> None:
    task, me = uuid_of(claimed["task"]["id"]), Principal.objects.get(pk=admin.caller.principal_id)
    transact(lambda: takeovers.take_over(admin.caller, task, to=me, reason="I do it myself.", epoch=1))
    (run,) = (run for run in agent.get("/runs")["runs"] if run["ended_at"] is None)
    human_ends(admin, "release", uuid_of(run["id"]), 2, checkpoint={"at": 9}, reason="Your turn.")
    found = agent.get(f"/tasks/{claimed['task']['id']}/context")["checkpoint"]
    assert (found["author_kind"], found["state"]) == ("human", {"at": 9})
