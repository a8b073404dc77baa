"""Checkpoints: versions that nobody overwrites unseen, under the fence where a run speaks."""

import secrets
from typing import Any

import pytest

from coordination import checkpoints
from coordination.canonical import digest
from coordination.models import Checkpoint
from titen.api.doors import transact

from .cases.tools import at_once
from .cast import Agent
from .clockwork import uuid_of
from .keeping import keep, versions, word
from .locking import Work, second_connection, wait_until_blocked

LIMIT = 256 * 1024


def test_the_first_write_makes_it_and_the_next_ones_are_versions_of_it(agent: Agent) -> None:
    first = agent.send("POST", "/checkpoints", {"subject_id": "customer-7", "state": {"b": 1, "a": [2.0]}})
    assert (first.status_code, first.headers["ETag"]) == (201, '"1"')
    made = first.json()["data"]
    assert made["state_hash"] == digest({"a": [2], "b": 1})
    assert (made["kind"], made["agent"]) == ("work", agent.get("/principal")["principal_id"])
    assert (made["task_id"], made["run_id"], made["epoch"], made["expires_at"]) == (None, None, None, None)
    again = agent.send("POST", "/checkpoints", {"subject_id": "customer-7", "state": None})
    assert (again.status_code, again.headers["ETag"]) == (200, '"2"')
    assert again.json()["data"]["checkpoint_id"] == made["checkpoint_id"]
    path = f"/checkpoints/{made['checkpoint_id']}"
    assert agent.get(path) == {**again.json()["data"], "state": None}
    assert agent.get(path, params={"version": 1})["state"] == {"b": 1, "a": [2.0]}
    assert agent.send("GET", path).headers["ETag"] == '"2"'
    agent.refused("NOT_FOUND", f"{path}?version=3", method="GET")


def test_an_equal_state_is_a_new_version_too(agent: Agent, kept: Any) -> None:
    again = keep(agent, {"step": 1})
    assert (again["version"], again["state_hash"]) == (2, kept["state_hash"])


def test_subject_agent_and_kind_make_it_another_checkpoint(agent: Agent, other: Agent, kept: Any) -> None:
    made = [
        keep(agent, 1, kind="notes"),
        keep(other, 1),
        agent.post("/checkpoints", {"subject_id": "customer-8", "state": 1}),
    ]
    assert {each["version"] for each in made} == {1}
    assert len({each["checkpoint_id"] for each in [kept, *made]}) == 4


def test_the_history_is_newest_first_and_paged(agent: Agent, kept: Any) -> None:
    for step in range(2, 8):
        keep(agent, {"step": step})
    path, seen, cursor = f"/checkpoints/{kept['checkpoint_id']}/history", [], None
    while True:
        page = agent.get(path, params={"limit": 3} | ({"cursor": cursor} if cursor else {}))
        seen += page["versions"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [each["version"] for each in seen] == [7, 6, 5, 4, 3, 2, 1]
    assert [each["state_hash"] for each in seen] == [digest({"step": step}) for step in range(7, 0, -1)]


def test_lists_are_filtered_and_hold_no_state(agent: Agent, claimed: Any, kept: Any) -> None:
    keep(agent, {"step": 2})
    notes = keep(agent, "x", kind="notes")
    of_task = agent.post("/checkpoints", word(claimed, {"at": 3}))
    me = agent.get("/principal")["principal_id"]
    for query, expected in (
        ("", [of_task, notes, kept]),
        ("?subject_id=customer-7", [notes, kept]),
        ("?kind=notes", [notes]),
        (f"?agent={me}&kind=work", [of_task, kept]),
        (f"?task={claimed['task']['id']}", [of_task]),
        ("?limit=1", [of_task]),
    ):
        shown = agent.get(f"/checkpoints{query}")["checkpoints"]
        assert [one["checkpoint_id"] for one in shown] == [one["checkpoint_id"] for one in expected], query
        assert not any("state" in one for one in shown)
    assert agent.get("/checkpoints?subject_id=customer-7&kind=work")["checkpoints"][0]["version"] == 2


# The writers


def test_parallel_writers_get_a_version_each(agent: Agent) -> None:
    body = {"subject_id": "customer-7"}
    answers = at_once(
        range(12), lambda step: agent.client.post("/v1/checkpoints", json={**body, "state": step})
    )
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
    made = [answer.json()["data"] for answer in answers]
    assert sorted(each["version"] for each in made) == list(range(1, 13))
    for step, each in enumerate(made):
        found = agent.get(f"/checkpoints/{each['checkpoint_id']}?version={each['version']}")
        assert (found["state"], found["state_hash"]) == (step, each["state_hash"])


@pytest.mark.parametrize("expected", [0, 1, 2])
def test_of_parallel_writers_with_one_expectation_exactly_one_writes(agent: Agent, expected: int) -> None:
    for step in range(expected):
        keep(agent, step)
    body = {"subject_id": "customer-7", "expected_version": expected}
    answers = at_once(
        range(8), lambda step: agent.client.post("/v1/checkpoints", json={**body, "state": f"mine {step}"})
    )
    (won,) = [answer.json()["data"] for answer in answers if answer.status_code < 300]
    assert won["version"] == expected + 1
    for answer in answers:
        if answer.status_code >= 300:
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (409, "VERSION_MISMATCH")
            assert error["details"] == {"current_version": expected + 1, "state_hash": won["state_hash"]}
    assert versions(agent, won) == list(range(expected + 1, 0, -1))


def test_a_writer_that_waited_for_the_row_judges_what_stands_then(agent: Agent, kept: Any) -> None:
    """Somebody else's version is committed between this write's first look and its lock."""
    caller, row = agent.caller, uuid_of(kept["checkpoint_id"])
    with second_connection() as holder:
        holder.run("UPDATE coordination_checkpoint SET version = 2 WHERE id = %s", row)
        holder.run(
            "INSERT INTO coordination_checkpointversion (checkpoint_id, version, state, state_hash)"
            " VALUES (%s, 2, '2', repeat('a', 64))",
            row,
        )
        write: dict[str, Any] = {"subject_id": "customer-7", "state": 3}
        works = [
            Work(lambda: transact(lambda: checkpoints.write(caller, **write))),
            Work(lambda: transact(lambda: checkpoints.write(caller, **write, expected_version=1))),
        ]
        wait_until_blocked(holder, count=2)
        holder.commit()
    assert works[0].outcome().version == 3
    with pytest.raises(Exception, match="VERSION_MISMATCH"):
        works[1].outcome()


def test_two_who_make_the_same_checkpoint_make_one(agent: Agent) -> None:
    """The row that another has inserted and not committed is waited for."""
    me = agent.principal
    with second_connection() as holder:
        holder.run(
            "INSERT INTO coordination_checkpoint (organization_id, principal_id, subject_id, kind, version)"
            " VALUES (%s, %s, 'customer-7', 'work', 0)",
            me.organization_id,
            me.pk,
        )
        caller = agent.caller
        write = Work(lambda: transact(lambda: checkpoints.write(caller, subject_id="customer-7", state=1)))
        wait_until_blocked(holder)
        holder.commit()
    assert write.outcome().version == 1
    assert Checkpoint.objects.filter(principal=me).count() == 1


MISMATCHES: list[tuple[dict[str, Any], str | None]] = [
    ({"expected_version": 0}, None),
    ({"expected_version": 1}, None),
    ({"expected_version": 3}, None),
    ({}, '"1"'),
    ({}, '"0"'),
    ({"expected_version": 3}, '"3"'),
]


@pytest.mark.parametrize(("body", "header"), MISMATCHES)
def test_another_version_is_refused_with_the_current_one(
    agent: Agent, kept: Any, body: dict[str, Any], header: str | None
) -> None:
    two = keep(agent, {"step": 2})
    headers = {"If-Match": header} if header else {}
    error = agent.refused(
        "VERSION_MISMATCH", "/checkpoints", {"subject_id": "customer-7", "state": 3, **body}, headers=headers
    )
    assert error["details"] == {"current_version": 2, "state_hash": two["state_hash"]}
    assert "2" in error["message"]
    assert versions(agent, kept) == [2, 1]


def test_if_match_is_what_the_etag_gave(agent: Agent, kept: Any) -> None:
    tag = agent.send("GET", f"/checkpoints/{kept['checkpoint_id']}").headers["ETag"]
    body = {"subject_id": "customer-7", "state": 2}
    assert agent.post("/checkpoints", body, headers={"If-Match": tag})["version"] == 2
    error = agent.refused(
        "VALIDATION_ERROR", "/checkpoints", {**body, "expected_version": 1}, headers={"If-Match": '"2"'}
    )
    assert list(error["details"]["fields"]) == ["expected_version"]
    for wild in ("2", "*", 'W/"2"', '"2", "3"', '"-1"', f'"{2**31}"', f'"{10**40}"', '"1.5"', '""', ""):
        error = agent.refused("VALIDATION_ERROR", "/checkpoints", body, headers={"If-Match": wild})
        assert list(error["details"]["fields"]) == ["If-Match"], wild


def test_if_none_match_means_that_there_must_be_none_yet(agent: Agent, kept: Any) -> None:
    none = {"If-None-Match": "*"}
    body = {"subject_id": "customer-7", "state": 2}
    agent.refused("VERSION_MISMATCH", "/checkpoints", body, headers=none)
    assert agent.post("/checkpoints", {**body, "subject_id": "customer-8"}, headers=none)["version"] == 1
    for wild in ({"If-None-Match": '"1"'}, {**none, "If-Match": '"1"'}):
        error = agent.refused("VALIDATION_ERROR", "/checkpoints", body, headers=wild)
        assert list(error["details"]["fields"]) == ["If-None-Match"]
    assert versions(agent, kept) == [1]


def test_a_repeat_with_its_key_writes_once(agent: Agent, kept: Any) -> None:
    body, key = {"subject_id": "customer-7", "state": 2}, {"Idempotency-Key": secrets.token_hex(8)}
    first, second = (agent.send("POST", "/checkpoints", body, headers=key) for _ in range(2))
    assert first.json()["data"] == second.json()["data"]
    assert first.headers["ETag"] == second.headers["ETag"] == '"2"'
    assert versions(agent, kept) == [2, 1]
