"""Context packs: they pin what they name, and each reader reads them under its own rights."""

import uuid
from typing import Any

import pytest
from django.test import override_settings

from coordination.jobs import clean_up

from .cases.tools import events_of
from .cast import Agent, found_company
from .keeping import expire, hand, keep
from .locking import Work, second_connection, wait_until_blocked

LIMIT = 256 * 1024


def pack_of(agent: Agent, *items: Any, **more: Any) -> Any:
    """Make a pack of (type, id) or (type, id, version)."""
    names = ("type", "id", "version")
    return agent.post(
        "/contexts", {"items": [dict(zip(names, item, strict=False)) for item in items], **more}
    )


def contents(reader: Agent, pack: Any) -> list[Any]:
    """What each item of a pack says to a reader; None for one that it may not read."""
    return [item.get("content") for item in reader.get(f"/contexts/{pack['context_id']}")["items"]]


@pytest.fixture
def kept_twice(agent: Agent, kept: Any) -> Any:
    """The same in its second version."""
    return keep(agent, {"step": 2})


def test_a_pack_pins_what_it_names(agent: Agent, claimed: Any, kept_twice: Any) -> None:
    task, run = claimed["task"]["id"], claimed["run"]["id"]
    comment = agent.post(f"/tasks/{task}/comments", {"body": "Mind the index."})
    named = [
        ("task", task),
        ("run", run),
        ("comment", comment["id"]),
        ("checkpoint", kept_twice["checkpoint_id"]),
        ("checkpoint", kept_twice["checkpoint_id"], 1),
    ]
    made = pack_of(agent, *named, subject_id="customer-7", task_id=task, note="Start here.")
    assert (made["subject_id"], made["task_id"], made["note"]) == ("customer-7", task, "Start here.")
    assert (made["author"], made["author_id"]) == ("ada", agent.get("/principal")["principal_id"])
    assert [item["version"] for item in made["items"]] == [None, None, None, 2, 1]
    agent.post("/checkpoints", {"subject_id": "customer-7", "state": {"step": 3}})
    shown = agent.get(f"/contexts/{made['context_id']}")
    assert {name: shown[name] for name in made if name != "items"} == {
        name: made[name] for name in made if name != "items"
    }
    assert [(item["type"], item["id"]) for item in shown["items"]] == [item[:2] for item in named]
    assert all(item["readable"] for item in shown["items"])
    first, second, third, fourth, fifth = contents(agent, made)
    assert first.items() <= agent.get(f"/tasks/{task}").items()
    assert first["payload"] == {}
    assert second["checkpoint"] is None
    assert third == comment
    assert (fourth["state"], fifth["state"]) == ({"step": 2}, {"step": 1})
    (event,) = events_of(agent, kind="context.created")
    assert (event["subject_id"], event["task_id"]) == (made["context_id"], task)
    assert event["data"] == {"items": 5}


def test_a_reader_reads_it_under_its_own_rights(agent: Agent, other: Agent, kept_twice: Any) -> None:
    """The target may read the pack and what it pins of checkpoints, but not the task's private parts."""
    task = agent.create("Private", payload={"is": "private"})["id"]
    foreign = other.post("/checkpoints", {"subject_id": "own", "state": "theirs"})
    made = pack_of(agent, ("task", task), ("checkpoint", kept_twice["checkpoint_id"], 1))
    other.refused("NOT_FOUND", f"/contexts/{made['context_id']}", method="GET")
    offer = hand(other, agent, context=made["context_id"])
    assert "payload" in contents(agent, made)[0]
    shown, pinned = contents(other, made)
    assert shown["title"] == "Private"
    assert "payload" not in shown
    assert pinned["state"] == {"step": 1}
    other.refused("NOT_FOUND", f"/checkpoints/{kept_twice['checkpoint_id']}?version=2", method="GET")
    # It makes one of its own, which names what its reader may not read.
    offer.delete()
    mine = pack_of(other, ("checkpoint", foreign["checkpoint_id"]), task_id=task)
    (item,) = agent.get(f"/contexts/{mine['context_id']}")["items"]
    assert item == {"type": "checkpoint", "id": foreign["checkpoint_id"], "version": 1, "readable": False}


def test_pins_survive_newer_versions_the_clean_up_and_an_expiry(
    agent: Agent, other: Agent, kept_twice: Any
) -> None:
    made = pack_of(agent, ("checkpoint", kept_twice["checkpoint_id"]))
    hand(other, agent, context=made["context_id"])
    for step in range(3, 9):
        agent.post("/checkpoints", {"subject_id": "customer-7", "state": {"step": step}})
    with override_settings(CHECKPOINT_VERSIONS_KEPT=1):
        clean_up()
    expire(kept_twice)
    clean_up()
    for reader in (agent, other):
        assert [content["state"] for content in contents(reader, made)] == [{"step": 2}]
        reader.refused("NOT_FOUND", f"/checkpoints/{kept_twice['checkpoint_id']}", method="GET")


def test_what_pins_a_version_waits_for_the_clean_up(agent: Agent, kept_twice: Any) -> None:
    """The clean-up has locked the row and dropped the version: the pack finds it gone, it does not dangle."""
    row = kept_twice["checkpoint_id"].removeprefix("ckpt_")
    with second_connection() as cleaner:
        cleaner.run("SELECT id FROM coordination_checkpoint WHERE id = %s FOR UPDATE", row)
        cleaner.run(
            "DELETE FROM coordination_checkpointversion WHERE checkpoint_id = %s AND version = 1", row
        )
        body = {"items": [{"type": "checkpoint", "id": kept_twice["checkpoint_id"], "version": 1}]}
        making = Work(lambda: agent.client.post("/v1/contexts", json=body))
        wait_until_blocked(cleaner)
        cleaner.commit()
    answer = making.outcome()
    assert (answer.status_code, list(answer.json()["error"]["details"]["fields"])) == (400, ["items"])


def test_what_the_author_may_not_read_is_refused_like_what_does_not_exist(
    agent: Agent, other: Agent, kept_twice: Any
) -> None:
    elsewhere = found_company(agent.url)
    stranger = elsewhere.agent("xena")
    task = stranger.create()["id"]
    claim = stranger.claim()
    comment = stranger.post(f"/tasks/{task}/comments", {"body": "Ours."})["id"]
    foreign = stranger.post("/checkpoints", {"subject_id": "x", "state": 1})["checkpoint_id"]
    private = other.post("/checkpoints", {"subject_id": "own", "state": "theirs"})["checkpoint_id"]
    refusals = set()
    for item in (
        *(("task", each) for each in (task, f"task_{uuid.uuid4().hex}")),
        *(("run", each) for each in (claim["run"]["id"], f"run_{uuid.uuid4().hex}")),
        *(("comment", each) for each in (comment, f"cmt_{uuid.uuid4().hex}")),
        *(("checkpoint", each) for each in (foreign, private, f"ckpt_{uuid.uuid4().hex}")),
        ("checkpoint", foreign, 1),
        ("checkpoint", kept_twice["checkpoint_id"], 3),
    ):
        names = dict(zip(("type", "id", "version"), item, strict=False))
        refused = agent.refused("VALIDATION_ERROR", "/contexts", {"items": [names]})
        refusals.add((refused["message"], str(refused["details"])))
    assert len(refusals) == 1
    assert "items" in refusals.pop()[0]
    both = [
        agent.refused(
            "VALIDATION_ERROR",
            "/contexts",
            {"task_id": each, "items": [{"type": "checkpoint", "id": kept_twice["checkpoint_id"]}]},
        )
        for each in (task, f"task_{uuid.uuid4().hex}")
    ]
    assert both[0] == both[1]
    assert list(both[0]["details"]["fields"]) == ["task_id"]
    for each in elsewhere.agents:
        each.close()


GOOD = {"type": "checkpoint", "id": f"ckpt_{'0' * 32}"}
WILD_VERSIONS: list[Any] = [0, -1, 2**31, 2**63, 1.5, "1", None, True, []]
BAD: list[tuple[str, Any]] = [
    ("items", []),
    ("items", [GOOD] * 51),
    ("items", {}),
    ("items", None),
    ("items", ["x"]),
    ("items", [{"type": "secret", "id": GOOD["id"]}]),
    ("items", [{"type": "task", "id": GOOD["id"]}]),
    ("items", [{"id": GOOD["id"]}]),
    ("items", [{**GOOD, "state": 1}]),
    ("items", [{"type": "task", "id": f"task_{'0' * 32}", "version": 1}]),
    *(("items", [{**GOOD, "version": wild}]) for wild in WILD_VERSIONS),
    ("note", "x" * 8001),
    ("subject_id", ""),
    ("task_id", "task_1"),
    ("author", "me"),
]


@pytest.mark.parametrize(("field", "value"), BAD, ids=lambda part: str(part)[:60])
def test_a_bad_body_is_refused_and_the_field_named(agent: Agent, field: str, value: Any) -> None:
    error = agent.refused("VALIDATION_ERROR", "/contexts", {"items": [GOOD], field: value})
    assert list(error["details"]["fields"]) == [field], error


def test_what_does_not_fit_into_256_kib_is_a_link(agent: Agent) -> None:
    big = [
        agent.post("/checkpoints", {"subject_id": f"big-{number}", "state": "x" * 150_000})["checkpoint_id"]
        for number in range(2)
    ]
    small = agent.post("/checkpoints", {"subject_id": "small", "state": "fits"})["checkpoint_id"]
    made = pack_of(agent, *(("checkpoint", each) for each in (*big, small)), note="é" * 8000)
    answer = agent.send("GET", f"/contexts/{made['context_id']}")
    assert len(answer.content) <= LIMIT + 200
    first, second, third = answer.json()["data"]["items"]
    assert (len(first["content"]["state"]), third["content"]["state"]) == (150_000, "fits")
    assert (second["readable"], second["content"], second["truncated"]) == (True, None, True)
    assert agent.get(second["href"].removeprefix("/v1"))["state"] == "x" * 150_000


def test_every_link_leads_to_what_it_names(agent: Agent, claimed: Any) -> None:
    """A full pack of large things: whatever is cut can be read at its `href`."""
    task = agent.create("Large", payload={"is": "x" * 250_000})["id"]
    comment = agent.post(f"/tasks/{task}/comments", {"body": "é" * 8000})["id"]
    run = claimed["run"]["id"]
    agent.post("/checkpoints", {"run_id": run, "epoch": 1, "state": "x" * 20_000})
    made = pack_of(agent, ("task", task), ("run", run), ("comment", comment))
    first, second, third = agent.get(f"/contexts/{made['context_id']}")["items"]
    assert first["content"]["payload"] == {"is": "x" * 250_000}
    assert agent.get(second["href"].removeprefix("/v1"))["id"] == run
    assert agent.get(third["href"].removeprefix("/v1"))["id"] == comment


# The working context of a task holds a checkpoint as well.


def test_a_state_that_does_not_fit_leaves_its_id(agent: Agent, claimed: Any) -> None:
    task = claimed["task"]["id"]
    run = {"run_id": claimed["run"]["id"], "epoch": 1}
    made = agent.post("/checkpoints", {**run, "state": "x" * (LIMIT - 100)})
    for number in range(3):
        agent.post(f"/tasks/{task}/comments", {"body": f"Note {number}"})
    shown = agent.get(f"/tasks/{task}/context")
    found = shown["checkpoint"]
    assert (found["checkpoint_id"], found["version"], found["state"]) == (made["checkpoint_id"], 1, None)
    assert shown["truncated"] == ["checkpoint"]
    assert len(shown["comments"]) == 3
    assert len(agent.get(f"/checkpoints/{found['checkpoint_id']}?version=1")["state"]) == LIMIT - 100


def test_the_states_of_earlier_attempts_make_room_first(agent: Agent, claimed: Any) -> None:
    task = claimed["task"]["id"]
    agent.post(f"/runs/{claimed['run']['id']}/release", {"epoch": 1, "checkpoint": "x" * 140_000})
    again = agent.claim(task_id=task)["context"]
    assert again["truncated"] == ["attempts"]
    assert [attempt["checkpoint"] for attempt in again["attempts"]] == [None]
    assert len(again["checkpoint"]["state"]) == 140_000
