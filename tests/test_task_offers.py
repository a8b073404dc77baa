"""Offering a task: its holder does, under a certain lease, once at a time, and the lease stays as it is."""

from collections import Counter
from typing import Any

import pytest

from coordination import identity

from .cases.tools import at_once, events_of
from .cast import Agent
from .clockwork import bring_into_jeopardy, let_lease_run_out
from .passing import (
    beat,
    end,
    hand_task,
    let_offer_run_out,
    path,
)
from .scenes import offer


@pytest.fixture
def offered(agent: Agent, other: Agent, claimed: Any) -> Any:
    """An offer of `claimed` by its holder to `other`."""
    return hand_task(claimed, agent, other)


def test_an_offer_names_the_task_the_run_and_the_epoch_and_leaves_the_lease_as_it_is(
    agent: Agent, claimed: Any
) -> None:
    run = f"/runs/{claimed['run']['id']}"
    before = agent.get(run)
    made = agent.post("/handoffs", offer(_other(agent), claimed))
    assert (made["task_id"], made["run_id"], made["epoch"]) == (
        claimed["task"]["id"],
        claimed["run"]["id"],
        claimed["lease"]["epoch"],
    )
    assert made["subject_id"] == claimed["task"]["id"]
    assert agent.get(run) == before
    beat(agent, claimed)
    assert end(agent, claimed, "complete")["task"]["status"] == "done"


def _other(agent: Agent) -> Any:
    """Somebody to hand things to, who need not act."""
    principal = identity.make_principal(agent.principal.organization, "somebody")
    return Agent(principal, "", agent.url)


def test_with_the_task_alone_the_callers_own_run_is_taken(
    agent: Agent, other: Agent, third: Agent, claimed: Any
) -> None:
    body = {"to_principal": "bert", "task_id": claimed["task"]["id"]}
    error = third.refused("NOT_HOLDER", "/handoffs", body)
    assert "Claim it" in error["message"]
    other.refused("NOT_HOLDER", "/handoffs", {**body, "to_principal": "carl"})
    made = agent.post("/handoffs", {**body, "subject_id": "The rollout"})
    assert (made["run_id"], made["epoch"], made["subject_id"]) == (claimed["run"]["id"], 1, "The rollout")


def test_task_and_run_must_agree(agent: Agent, other: Agent, claimed: Any) -> None:
    another = agent.create("Another")["id"]
    error = agent.refused("VALIDATION_ERROR", "/handoffs", offer(other, claimed, task_id=another))
    assert list(error["details"]["fields"]) == ["run_id"]
    agent.refused(
        "NOT_FOUND", "/handoffs", offer(other, claimed, task_id=claimed["task"]["id"], run_id=_run())
    )
    agent.refused("NOT_FOUND", "/handoffs", {"to_principal": "bert", "task_id": f"task_{'0' * 32}"})
    made = agent.post("/handoffs", offer(other, claimed, task_id=claimed["task"]["id"]))
    assert made["task_id"] == claimed["task"]["id"]


def _run() -> str:
    return f"run_{'0' * 32}"


def test_only_a_certain_lease_can_be_offered(agent: Agent, other: Agent, claimed: Any) -> None:
    bring_into_jeopardy(claimed)
    error = agent.refused("LEASE_IN_JEOPARDY", "/handoffs", offer(other, claimed))
    assert "heartbeat" in error["message"]
    agent.refused(
        "LEASE_IN_JEOPARDY", "/handoffs", {"to_principal": "bert", "task_id": claimed["task"]["id"]}
    )
    beat(agent, claimed)
    agent.post(f"/runs/{claimed['run']['id']}/jeopardy", {"epoch": 1})
    agent.refused("LEASE_IN_JEOPARDY", "/handoffs", offer(other, claimed))
    beat(agent, claimed)
    assert hand_task(claimed, agent, other)["status"] == "pending"
    traces = events_of(agent, kind="run.refused")
    assert {(one["data"]["code"], one["data"]["verb"]) for one in traces} == {
        ("LEASE_IN_JEOPARDY", "hand_off")
    }


def test_who_does_not_hold_the_run_is_told_why(
    agent: Agent, other: Agent, third: Agent, claimed: Any
) -> None:
    other.refused("NOT_HOLDER", "/handoffs", offer(third, claimed))
    agent.refused("STALE_EPOCH", "/handoffs", offer(other, claimed, epoch=7))
    let_lease_run_out(claimed)
    agent.refused("LEASE_EXPIRED", "/handoffs", offer(other, claimed))
    agent.refused("LEASE_EXPIRED", "/handoffs", {"to_principal": "bert", "task_id": claimed["task"]["id"]})
    codes = {one["data"]["code"] for one in events_of(agent, kind="run.refused")}
    assert codes == {"NOT_HOLDER", "STALE_EPOCH", "LEASE_EXPIRED"}
    assert agent.get("/handoffs?box=sent")["handoffs"] == []


def test_one_offer_of_a_task_at_a_time(
    agent: Agent, other: Agent, third: Agent, claimed: Any, offered: Any
) -> None:
    error = agent.refused("CONFLICT", "/handoffs", offer(third, claimed))
    assert error["details"] == {"handoff_id": offered["handoff_id"], "state": "pending"}
    agent.post(path(offered, "withdraw"), {})
    assert hand_task(claimed, agent, third)["status"] == "pending"


def test_offers_at_once_are_one(agent: Agent, other: Agent, claimed: Any) -> None:
    body = offer(other, claimed)
    answers = at_once(range(8), lambda _: agent.client.post("/v1/handoffs", json=body))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 7}


def test_an_offer_that_ran_out_does_not_stand_in_the_way(
    agent: Agent, other: Agent, claimed: Any, offered: Any
) -> None:
    let_offer_run_out(offered)
    hand_task(claimed, agent, other)
    shown = agent.get(path(offered))
    assert (shown["status"], shown["ended_at"]) == ("expired", shown["expires_at"])
    assert [one["subject_id"] for one in events_of(agent, kind="handoff.expired")] == [offered["handoff_id"]]


def test_an_offer_by_an_earlier_holder_does_not_stand_in_the_way(
    agent: Agent, other: Agent, third: Agent, claimed: Any, offered: Any
) -> None:
    let_lease_run_out(claimed)
    theirs = third.claim()
    hand_task(theirs, third, agent)
    assert agent.get(path(offered))["status"] == "expired"
