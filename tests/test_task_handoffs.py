"""Accepting a task: the lease moves to the receiver, in each state that the task can be in by then."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.test import override_settings

from coordination import accepting, handoffs, sweeping, tasks
from titen.api.doors import transact

from .cases.tools import events_of
from .cast import Agent, Company, Human
from .clockwork import let_lease_run_out, uuid_of
from .passing import accept, beat, end, hand_task, holder_of, path, refused_acceptance, superseded
from .scenes import Stage, make_scene, offer


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


@pytest.fixture
def offered(agent: Agent, other: Agent, claimed: Any) -> Any:
    """An offer of `claimed` by its holder to `other`."""
    return hand_task(claimed, agent, other)


def test_accepting_moves_the_lease_and_the_old_token_is_refused(
    agent: Agent, other: Agent, claimed: Any, offered: Any
) -> None:
    end_of_offer = accept(other, offered)
    claim = end_of_offer["claim"]
    assert (claim["task"]["id"], claim["task"]["status"]) == (claimed["task"]["id"], "in_progress")
    assert (claim["run"]["status"], claim["lease"]["epoch"]) == ("running", claimed["lease"]["epoch"] + 1)
    assert (claim["lease"]["granted_because"], claim["lease"]["certainty"]) == ("handoff", "held")
    assert claim["heartbeat_interval_seconds"] == claim["lease"]["ttl_seconds"] / 3
    assert end_of_offer["accepted_run_id"] == claim["run"]["id"]
    assert end_of_offer["status"] == "accepted"
    lost = agent.get(f"/runs/{claimed['run']['id']}")
    assert (lost["status"], lost["lease"]["end_reason"]) == ("handed_off", "handed_off")
    error = superseded(agent, claimed)
    assert error["details"]["reason"] == "handed_off"
    assert holder_of(agent, claimed["task"]["id"]) == "bert"
    shown = agent.get(f"/tasks/{claimed['task']['id']}")
    assert (shown["attempt_count"], shown["epoch"]) == (0, 2)
    kinds = [one["kind"] for one in events_of(agent, task_id=claimed["task"]["id"])]
    assert kinds[2:6] == ["handoff.created", "task.handed_off", "task.claimed", "handoff.accepted"]
    assert end(other, claim, "complete")["task"]["status"] == "done"


def test_the_receiver_gets_what_led_to_its_run(agent: Agent, other: Agent, claimed: Any) -> None:
    note = {"subject_id": "rollout", "kind": "note", "state": {"step": 3}}
    checkpoint = agent.post("/checkpoints", note)["checkpoint_id"]
    made = hand_task(claimed, agent, other, message="Step 4 is next.", checkpoint_id=checkpoint)
    claim = accept(other, made)["claim"]
    led = {
        "handoff_id": made["handoff_id"],
        "from_principal": agent.get("/principal")["principal_id"],
        "from_name": "ada",
        "message": "Step 4 is next.",
        "context_id": None,
        "checkpoint_id": checkpoint,
        "checkpoint_version": 1,
        "href": f"/v1/handoffs/{made['handoff_id']}",
    }
    assert claim["context"]["handoff"] == led
    context = f"/tasks/{claimed['task']['id']}/context"
    assert other.get(context)["handoff"] == led
    end(other, claim, "release")
    assert agent.claim()["context"]["handoff"] is None


def test_the_ttl_is_the_wish_before_the_tasks_before_the_organizations(
    agent: Agent, other: Agent, company: Company
) -> None:
    def ttl(wish: dict[str, int], **task: Any) -> int:
        agent.create(**task)
        made = hand_task(agent.claim(), agent, other)
        found = accept(other, made, **wish)["claim"]
        end(other, found, "complete")
        return int(found["lease"]["ttl_seconds"])

    assert ttl({"ttl_seconds": 77}, lease_ttl_seconds=120) == 77
    assert ttl({}, lease_ttl_seconds=120) == 120
    assert ttl({}) == company.organization.lease_ttl_seconds


def test_a_ttl_out_of_range_is_refused_and_the_offer_stands(other: Agent, offered: Any) -> None:
    wild: list[Any] = [0, -1, 86_401, 2**63, 10**30, "60", True, 1.5, None, []]
    for ttl in wild:
        error = refused_acceptance(other, offered, "VALIDATION_ERROR", ttl_seconds=ttl)
        assert list(error["details"]["fields"]) == ["ttl_seconds"]
    assert other.get(path(offered))["status"] == "pending"


def test_a_blocked_task_is_handed_over_waiting_and_hears_the_answer(
    agent: Agent, other: Agent, third: Agent, claimed: Any
) -> None:
    run = {"run_id": claimed["run"]["id"], "epoch": claimed["lease"]["epoch"]}
    question = {"body": "Which branch?", "blocking": True, **run}
    asked = agent.post(f"/tasks/{claimed['task']['id']}/comments", question)
    claim = accept(other, hand_task(claimed, agent, other))["claim"]
    assert (claim["task"]["status"], claim["run"]["status"]) == ("blocked", "waiting")
    assert beat(other, claim)["answers"] == []
    third.post(f"/tasks/{claimed['task']['id']}/comments/{asked['id']}/answer", {"body": "main"})
    told = beat(other, claim)
    assert (told["run"]["status"], [one["answer"]["body"] for one in told["answers"]]) == (
        "running",
        ["main"],
    )


def test_what_an_operator_stopped_stays_stopped(stage: Stage) -> None:
    scene = make_scene(stage, "held_and_blocked_by_hand", offers=True)
    claim = accept(stage.other, scene.handoff)["claim"]
    assert beat(stage.other, claim)["directives"] == ["pause"]
    scene.by_human(tasks.unblock)
    assert beat(stage.other, claim)["directives"] == []
    assert holder_of(stage.other, scene.task_id) == "bert"


OVER = ["todo_in_backoff", "todo_released", "held_but_run_out", "parked", "awaiting_approval_but_run_out"]


@pytest.mark.parametrize("state", OVER)
def test_the_offer_outlives_the_lease(stage: Stage, state: str) -> None:
    """What the sender gave back, failed or lost is the receiver's past priority and backoff."""
    scene = make_scene(stage, state, offers=True)
    stage.holder.create("More urgent", priority=100)
    blocked = scene.shown["status"] == "blocked"
    count = scene.shown["attempt_count"] + (state == "held_but_run_out")
    claim = accept(stage.other, scene.handoff)["claim"]
    assert claim["task"]["id"] == scene.task_id
    assert claim["run"]["status"] == ("waiting" if blocked else "running")
    assert scene.shown["status"] == ("blocked" if blocked else "in_progress")
    assert scene.shown["attempt_count"] == count
    assert holder_of(stage.holder, scene.task_id) == "bert"


def test_the_offer_holds_nothing(
    agent: Agent, other: Agent, third: Agent, claimed: Any, offered: Any
) -> None:
    """An unanswered offer keeps no task past its lease; who took it meanwhile keeps it."""
    let_lease_run_out(claimed)
    theirs = third.claim()
    assert theirs["task"]["id"] == claimed["task"]["id"]
    error = refused_acceptance(other, offered, "CONFLICT")
    assert error["details"] == {"state": "in_progress", "handoff": "expired"}
    assert "carl" not in str(error)
    beat(third, theirs)
    shown = other.get(path(offered))
    assert (shown["status"], shown["ended_at"] is not None) == ("expired", True)
    assert [one["subject_id"] for one in events_of(agent, kind="handoff.expired")] == [offered["handoff_id"]]
    refused_acceptance(other, offered, "NOT_FOUND")


def test_a_newer_run_of_the_sender_was_not_offered(
    agent: Agent, other: Agent, claimed: Any, offered: Any
) -> None:
    end(agent, claimed, "release")
    again = agent.claim()
    refused_acceptance(other, offered, "CONFLICT")
    beat(agent, again)
    assert agent.get(path(offered))["status"] == "expired"


def test_what_is_done_cannot_be_handed_over(agent: Agent, other: Agent, claimed: Any, offered: Any) -> None:
    end(agent, claimed, "complete")
    error = refused_acceptance(other, offered, "CONFLICT")
    assert error["details"] == {"state": "done", "handoff": "expired"}
    assert "is done" in error["message"]
    assert other.get(path(offered))["status"] == "expired"


def test_a_repeated_refusal_after_the_expiry_is_not_found(
    other: Agent, agent: Agent, claimed: Any, offered: Any
) -> None:
    end(agent, claimed, "complete")
    key = {"Idempotency-Key": "once"}
    body = {"status": "accepted"}
    other.refused("CONFLICT", path(offered, "resolve"), body, headers=key)
    assert other.refused("NOT_FOUND", path(offered, "resolve"), body, headers=key)["details"] == {
        "state": "expired"
    }


@override_settings(HUMAN_LEASE_TTL_SECONDS=7200)
def test_a_human_takes_what_an_agent_offers_whatever_its_capabilities(company: Company, admin: Human) -> None:
    able = company.agent("able", capabilities=["python"])
    able.create(required_capabilities=["python"])
    claim = able.claim()
    made = able.post("/handoffs", {**offer(able, claim), "to_principal": admin.user.email})
    handoff, row = transact(lambda: accepting.accept(admin.caller, uuid_of(made["handoff_id"])))
    assert handoff.status == "accepted"
    assert row is not None
    assert row["ttl_seconds"] == 7200
    superseded(able, claim)
    assert holder_of(able, claim["task"]["id"]) == admin.user.email
    sweeping.sweep()


def test_a_human_who_is_no_party_sees_it_and_resolves_nothing(admin: Human, offered: Any) -> None:
    found = handoffs.find(admin.caller, uuid_of(offered["handoff_id"]))
    assert found.message == "It is yours."
    rules: list[Callable[..., Any]] = [handoffs.reject, handoffs.withdraw, accepting.accept]
    for rule in rules:
        with pytest.raises(Exception, match="principal can"):
            transact(partial(rule, admin.caller, found.pk))
