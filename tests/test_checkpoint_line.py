"""A task's checkpoint is one line of versions: the next holder goes on from the one before it."""

from typing import Any

import pytest
from django.test import override_settings

from coordination.jobs import clean_up
from titen.client import NotHolder, Titen, VersionMismatch

from .cases.tools import events_of
from .cast import Agent, Company
from .clockwork import let_lease_run_out
from .keeping import expire, versions, word


@pytest.fixture
def passed_on(agent: Agent, other: Agent, claimed: Any) -> tuple[list[Any], Any]:
    """Three versions that `agent` left, and the claim of `other`, who goes on."""
    left = [agent.post("/checkpoints", word(claimed, {"at": at})) for at in (1, 2, 3)]
    let_lease_run_out(claimed)
    return left, other.claim(task_id=claimed["task"]["id"])


def test_the_next_holder_writes_on_top_of_what_it_found(
    agent: Agent, other: Agent, passed_on: tuple[list[Any], Any]
) -> None:
    left, claim = passed_on
    found = claim["context"]["checkpoint"]
    assert (found["version"], found["state"]) == (3, {"at": 3})
    own = other.post("/checkpoints", word(claim, {"at": 4}, expected_version=found["version"]))
    assert own["version"] == 4
    # Ids and histories stay those of their agents.
    assert own["checkpoint_id"] != left[-1]["checkpoint_id"]
    assert (versions(agent, left[-1]), versions(other, own)) == ([3, 2, 1], [4])
    assert agent.get(f"/checkpoints/{left[-1]['checkpoint_id']}")["state"] == {"at": 3}
    # The first one goes on in its turn, in its own checkpoint.
    other.post(f"/runs/{claim['run']['id']}/release", {"epoch": 2, "checkpoint": {"at": 5}})
    again = agent.claim(task_id=claim["task"]["id"])
    found = again["context"]["checkpoint"]
    assert (found["version"], found["author"], found["state"]) == (5, "bert", {"at": 5})
    mine = agent.post("/checkpoints", word(again, {"at": 6}, expected_version=5))
    assert (mine["checkpoint_id"], mine["version"]) == (left[-1]["checkpoint_id"], 6)
    assert versions(agent, mine) == [6, 3, 2, 1]
    assert [event["data"]["version"] for event in events_of(agent, kind="checkpoint.written")] == [
        *range(1, 7)
    ]


@pytest.mark.parametrize("expected", [0, 2, 4])
def test_another_expectation_is_told_the_version_of_the_line(
    other: Agent, passed_on: tuple[list[Any], Any], expected: int
) -> None:
    left, claim = passed_on
    error = other.refused("VERSION_MISMATCH", "/checkpoints", word(claim, 9, expected_version=expected))
    assert error["details"] == {"current_version": 3, "state_hash": left[-1]["state_hash"]}


def test_each_kind_and_each_task_has_a_line_of_its_own(
    agent: Agent, other: Agent, passed_on: tuple[list[Any], Any]
) -> None:
    _, claim = passed_on
    assert other.post("/checkpoints", word(claim, 1, kind="notes", expected_version=0))["version"] == 1
    elsewhere = agent.claim(task_id=agent.create("Another")["id"])
    assert agent.post("/checkpoints", word(elsewhere, 1, expected_version=0))["version"] == 1


def test_a_subject_of_ones_own_goes_on_from_what_holders_wrote_about_it(
    agent: Agent, other: Agent, claimed: Any
) -> None:
    about = {"subject_id": "customer-7"}
    other.post("/checkpoints", {**about, "state": "bert's own"})
    agent.post("/checkpoints", word(claimed, 1, **about))
    agent.post("/checkpoints", word(claimed, 2, **about))
    let_lease_run_out(claimed)
    claim = other.claim(task_id=claimed["task"]["id"])
    assert other.post("/checkpoints", word(claim, 3, expected_version=2, **about))["version"] == 3
    # What others keep about it beside the task does not count.
    assert agent.post("/checkpoints", {**about, "state": 3, "expected_version": 2})["version"] == 3


def test_an_expired_one_is_none_and_the_numbers_go_on(other: Agent, passed_on: tuple[list[Any], Any]) -> None:
    left, claim = passed_on
    expire(left[-1])
    assert other.post("/checkpoints", word(claim, 1, expected_version=0))["version"] == 4


def test_the_clean_up_counts_the_versions_of_each(
    agent: Agent, other: Agent, passed_on: tuple[list[Any], Any]
) -> None:
    left, claim = passed_on
    for at in range(4, 10):
        own = other.post("/checkpoints", word(claim, at))
    let_lease_run_out(claim)
    again = agent.claim(task_id=claim["task"]["id"])
    agent.post("/checkpoints", word(again, 10))
    with override_settings(CHECKPOINT_VERSIONS_KEPT=3):
        clean_up()
    assert (versions(agent, left[-1]), versions(other, own)) == ([10, 3, 2], [9, 8, 7])


# Who does not hold the task

UNHELD = {
    "a former holder": lambda agent, other, claim: agent,
    "a colleague": lambda agent, other, claim: other,
}


@pytest.mark.parametrize("who", UNHELD)
@pytest.mark.parametrize("kind", ["work", "notes"])
def test_a_write_that_names_a_task_without_holding_it_is_refused(
    agent: Agent, other: Agent, claimed: Any, who: str, kind: str
) -> None:
    task = claimed["task"]["id"]
    agent.post("/checkpoints", word(claimed, "under the lease"))
    let_lease_run_out(claimed)
    writer = UNHELD[who](agent, other, claimed)
    error = writer.refused("NOT_HOLDER", "/checkpoints", {"subject_id": task, "kind": kind, "state": 1})
    assert error["details"] == {"task_id": task}
    assert "run_id" in error["message"]
    # Nor does the holder of another task write about it.
    holds = writer.claim(task_id=agent.create("Another")["id"])
    writer.refused("NOT_HOLDER", "/checkpoints", word(holds, 1, subject_id=task, kind=kind))
    assert [each["version"] for each in agent.get(f"/checkpoints?subject_id={task}")["checkpoints"]] == [1]


def test_the_holder_says_under_which_run_it_writes(agent: Agent, claimed: Any) -> None:
    task = claimed["task"]["id"]
    agent.refused("NOT_HOLDER", "/checkpoints", {"subject_id": task, "state": 1})
    assert agent.post("/checkpoints", word(claimed, 1, subject_id=task))["version"] == 1


def test_an_id_of_another_organization_is_a_name_like_any_other(agent: Agent, elsewhere: Company) -> None:
    foreign = elsewhere.agent().create("Theirs")["id"]
    for subject in (foreign, f"task_{'0' * 32}"):
        assert agent.post("/checkpoints", {"subject_id": subject, "state": 1})["version"] == 1


def test_the_sdk_goes_on_from_the_version_in_its_context(agent: Agent, other: Agent) -> None:
    task = agent.create("Roll out")["id"]
    with (
        Titen(agent.url, agent.secret) as first,
        Titen(other.url, other.secret) as second,
    ):
        with first.claim(task_id=task) as run:  # type: ignore[union-attr]
            assert run.checkpoint({"step": "smoke"})["version"] == 1
        with second.claim(task_id=task) as run:  # type: ignore[union-attr]
            found = run.context["checkpoint"]
            assert run.checkpoint({"step": "full"}, expected_version=found["version"])["version"] == 2
            with pytest.raises(VersionMismatch) as refused:
                run.checkpoint({"step": "again"}, expected_version=found["version"])
            assert refused.value.details["current_version"] == 2
            with pytest.raises(NotHolder):
                first.checkpoint(task, {"step": "late"})
            run.complete()
