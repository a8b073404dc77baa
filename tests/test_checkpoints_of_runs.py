"""Checkpoints under the fence: the word of a task's holder, and of nobody who was it once."""

from typing import Any

import pytest

from coordination.canonical import digest

from .cases.tools import events_of
from .cast import Agent
from .clockwork import bring_into_jeopardy, let_lease_run_out
from .keeping import word


def test_a_holder_leaves_word_about_its_task(agent: Agent, claimed: Any) -> None:
    made = agent.post("/checkpoints", word(claimed, {"at": 3}))
    task, run, epoch = claimed["task"]["id"], claimed["run"]["id"], claimed["lease"]["epoch"]
    assert made["subject_id"] == made["task_id"] == task
    assert (made["run_id"], made["epoch"]) == (run, epoch)
    assert agent.get(f"/runs/{run}")["checkpoint"] == {"at": 3}
    (event,) = events_of(agent, kind="checkpoint.written")
    assert (event["subject_id"], event["task_id"], event["run_id"]) == (made["checkpoint_id"], task, run)
    assert (event["lease_id"], event["epoch"]) == (claimed["lease"]["lease_id"], epoch)
    assert event["data"] == {"version": 1, "state_hash": made["state_hash"]}
    named = agent.post("/checkpoints", word(claimed, 4, subject_id="customer-7", kind="notes"))
    assert (named["subject_id"], named["task_id"], named["kind"]) == ("customer-7", task, "notes")
    assert agent.get(f"/tasks/{task}/context")["checkpoint"]["checkpoint_id"] == named["checkpoint_id"]


def test_jeopardy_is_no_obstacle(agent: Agent, claimed: Any) -> None:
    bring_into_jeopardy(claimed)
    assert agent.post("/checkpoints", word(claimed, {"at": 3}))["version"] == 1


def _ends(verb: str) -> Any:
    return lambda agent, claim: agent.post(f"/runs/{claim['run']['id']}/{verb}", {"epoch": 1})


LOST: dict[str, tuple[str, Any]] = {
    "run out": ("LEASE_EXPIRED", lambda agent, claim: let_lease_run_out(claim)),
    "completed": ("ALREADY_COMPLETED", _ends("complete")),
    "released": ("CONFLICT", _ends("release")),
    "cancelled": (
        "TASK_CANCELLED",
        lambda agent, claim: agent.post(f"/tasks/{claim['task']['id']}/cancel"),
    ),
    "another epoch": ("STALE_EPOCH", lambda agent, claim: claim["lease"].update(epoch=7)),
}


@pytest.mark.parametrize("how", LOST)
def test_a_run_that_has_lost_its_lease_is_refused_and_leaves_a_trace(
    agent: Agent, claimed: Any, how: str
) -> None:
    code, lose = LOST[how]
    lose(agent, claimed)
    agent.refused(code, "/checkpoints", word(claimed, {"by": "zombie"}))
    assert agent.get("/checkpoints")["checkpoints"] == []
    (trace,) = events_of(agent, kind="run.refused")
    assert (trace["run_id"], trace["data"]) == (claimed["run"]["id"], {"code": code, "verb": "checkpoint"})


def test_anothers_run_is_not_ones_own(other: Agent, claimed: Any) -> None:
    other.refused("NOT_HOLDER", "/checkpoints", word(claimed, 1))


def test_the_next_holder_finds_the_newest_word_and_whose_it_was(agent: Agent, other: Agent) -> None:
    agent.create()
    mine = agent.claim()
    agent.post("/checkpoints", word(mine, {"at": 1}))
    agent.post(f"/runs/{mine['run']['id']}/release", {"epoch": 1, "checkpoint": {"at": 2}})
    theirs = other.claim(task_id=mine["task"]["id"])
    found = theirs["context"]["checkpoint"]
    assert (found["author"], found["author_kind"], found["kind"]) == ("ada", "agent", "work")
    assert (found["state"], found["version"], found["state_hash"]) == ({"at": 2}, 2, digest({"at": 2}))
    assert [run["checkpoint"] for run in theirs["context"]["attempts"]] == [{"at": 2}]
    # It goes on from there, in a checkpoint of its own.
    own = other.post("/checkpoints", word(theirs, {"at": 3}))
    assert (own["version"], own["checkpoint_id"] == found["checkpoint_id"]) == (3, False)
    context = other.get(f"/tasks/{mine['task']['id']}/context")
    assert context["checkpoint"]["state"] == {"at": 3}
    other.post(f"/runs/{theirs['run']['id']}/complete", {"epoch": 2})
    assert agent.get(f"/runs/{mine['run']['id']}")["checkpoint"] == {"at": 2}
