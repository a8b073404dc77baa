"""What stands in the way of accepting a task, while its offer stays pending; and how else an offer ends."""

from collections import Counter
from typing import Any

import pytest

from coordination import admission, identity, takeovers, tasks
from titen.api.doors import transact

from .cases.tools import at_once, events_of
from .cast import Agent, Company, Human
from .clockwork import let_lease_run_out, pass_time, sql, uuid_of
from .passing import (
    accept,
    beat,
    end,
    hand_task,
    holder_of,
    path,
    refused_acceptance,
    superseded,
)
from .scenes import Scene, Stage, make_scene


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


@pytest.fixture
def offered(agent: Agent, other: Agent, claimed: Any) -> Any:
    """An offer of `claimed` by its holder to `other`."""
    return hand_task(claimed, agent, other)


def still_pending(agent: Agent, handoff: Any) -> None:
    assert agent.get(path(handoff))["status"] == "pending"


def test_out_of_attempts_waits_for_an_operator(stage: Stage) -> None:
    scene = make_scene(stage, "out_of_attempts", offers=True)
    error = refused_acceptance(stage.other, scene.handoff, "CONFLICT")
    assert [wait["kind"] for wait in error["details"]["waits_for"]] == ["attempts"]
    still_pending(stage.other, scene.handoff)
    scene.by_human(tasks.reopen)
    assert accept(stage.other, scene.handoff)["claim"]["run"]["status"] == "running"


def test_an_open_dependency_is_waited_for(stage: Stage) -> None:
    first = make_scene(stage, "done")
    scene = Scene(stage, offers=True).create(depends_on=[first.task_id]).hold()
    scene.send("release")
    first.by_human(tasks.reopen)
    error = refused_acceptance(stage.other, scene.handoff, "NOT_CLAIMABLE")
    assert [wait["kind"] for wait in error["details"]["waits_for"]] == ["dependency"]
    still_pending(stage.other, scene.handoff)


def test_a_reservation_for_a_third_is_respected_and_the_senders_is_passed_on(stage: Stage) -> None:
    third = stage.company.agent("carl")
    scene = make_scene(stage, "parked", offers=True)
    scene.decide()
    # It is kept for the sender now, who has offered it.
    assert scene.shown["waits_for"][0]["kind"] == "reservation"
    sql("UPDATE coordination_task SET reserved_for_id = %s WHERE id = %s", third.principal.pk, scene.task)
    error = refused_acceptance(stage.other, scene.handoff, "RESERVED")
    assert error["details"]["until"]
    still_pending(stage.other, scene.handoff)
    sql(
        "UPDATE coordination_task SET reserved_for_id = %s WHERE id = %s",
        stage.holder.principal.pk,
        scene.task,
    )
    assert accept(stage.other, scene.handoff)["claim"]["task"]["id"] == scene.task_id


def test_a_time_that_has_not_come_is_waited_for(
    agent: Agent, other: Agent, claimed: Any, offered: Any
) -> None:
    end(agent, claimed, "release")
    sql(
        "UPDATE coordination_task SET not_before = clock_timestamp() + interval '1 h' WHERE id = %s",
        uuid_of(claimed["task"]["id"]),
    )
    error = refused_acceptance(other, offered, "NOT_CLAIMABLE")
    assert [wait["kind"] for wait in error["details"]["waits_for"]] == ["not_before"]
    pass_time(claimed["task"]["id"], "not_before")
    accept(other, offered)


def test_the_receiver_needs_the_capabilities(company: Company, other: Agent) -> None:
    able = company.agent("able", capabilities=["python", "deploy"])
    able.create(required_capabilities=["python", "deploy"])
    claim = able.claim()
    made = hand_task(claim, able, other)
    error = refused_acceptance(other, made, "NOT_CLAIMABLE")
    assert error["details"]["waits_for"][0]["missing"] == ["deploy", "python"]
    still_pending(other, made)
    beat(able, claim)
    assert holder_of(able, claim["task"]["id"]) == "able"


def test_the_receivers_own_limit_holds(company: Company, agent: Agent, claimed: Any) -> None:
    busy = company.agent("busy", max_concurrent_runs=1)
    busy.create("Its own")
    own = busy.claim()
    made = hand_task(claimed, agent, busy)
    error = refused_acceptance(busy, made, "NOT_CLAIMABLE")
    assert [wait["kind"] for wait in error["details"]["waits_for"]] == ["admission"]
    still_pending(busy, made)
    assert beat(agent, claimed)["run"]["status"] == "running"
    # Its run is dead, though nobody has written it down.
    let_lease_run_out(own)
    accept(busy, made)
    superseded(agent, claimed)


def test_a_limit_of_the_capability_counts_the_run_that_ends_once(company: Company) -> None:
    able, next_one = (company.agent(name, capabilities=["gpu"]) for name in ("able", "next"))
    transact(lambda: admission.limit_capability(company.organization, "gpu", 1))
    able.create(required_capabilities=["gpu"])
    made = hand_task(able.claim(), able, next_one)
    assert accept(next_one, made)["claim"]["run"]["status"] == "running"


def test_accepting_a_task_needs_the_scope_of_a_claim(
    agent: Agent, other: Agent, claimed: Any, offered: Any
) -> None:
    _, secret = identity.issue_key(other.principal, scopes=["handoffs:read", "handoffs:write"])
    limited = Agent(other.principal, secret, other.url)
    assert refused_acceptance(limited, offered, "FORBIDDEN")["details"] == {"scope": "tasks:claim"}
    limited.post(path(offered, "resolve"), {"status": "rejected"})
    limited.close()


def test_a_rejection_leaves_the_task_with_its_holder(
    agent: Agent, other: Agent, claimed: Any, offered: Any
) -> None:
    other.post(path(offered, "resolve"), {"status": "rejected", "reason": "I am busy."})
    beat(agent, claimed)
    assert hand_task(claimed, agent, other)["status"] == "pending"


@pytest.mark.parametrize("move", ["cancel", "take_over"])
@pytest.mark.parametrize("state", ["held", "awaiting_approval", "parked", "todo_released"])
def test_cancel_and_takeover_withdraw_the_offer(stage: Stage, state: str, move: str) -> None:
    scene = make_scene(stage, state, offers=True)
    if move == "cancel":
        stage.other.post(f"/tasks/{scene.task_id}/cancel", {})
    else:
        epoch = scene.shown["epoch"]
        scene.by_human(takeovers.take_over, to=None, reason="It is stuck.", epoch=epoch)
    assert refused_acceptance(stage.other, scene.handoff, "NOT_FOUND")["details"] == {"state": "withdrawn"}
    (event,) = events_of(stage.holder, kind="handoff.withdrawn", task_id=scene.task_id)
    assert event["subject_id"] == scene.handoff["handoff_id"]


def test_a_disabled_sender_offers_nothing_any_more(
    agent: Agent, other: Agent, claimed: Any, offered: Any
) -> None:
    transact(lambda: identity.disable_principal(agent.principal))
    assert refused_acceptance(other, offered, "NOT_FOUND")["details"] == {"state": "withdrawn"}
    assert other.claim(task_id=claimed["task"]["id"])["run"]["number"] == 2


def test_twenty_acceptances_at_once_are_one(agent: Agent, other: Agent, claimed: Any, offered: Any) -> None:
    body = {"status": "accepted"}
    url = f"/v1{path(offered, 'resolve')}"
    answers = at_once(range(20), lambda _: other.client.post(url, json=body))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 404: 19}
    (won,) = [answer.json()["data"]["claim"] for answer in answers if answer.status_code == 200]
    assert won["lease"]["epoch"] == 2
    assert agent.get(f"/tasks/{claimed['task']['id']}")["epoch"] == 2


def test_a_repeat_with_its_key_gets_the_same_lease(other: Agent, offered: Any) -> None:
    key = {"Idempotency-Key": "once"}
    first, second = (
        other.post(path(offered, "resolve"), {"status": "accepted"}, headers=key) for _ in range(2)
    )
    assert first == second


def test_a_task_goes_from_hand_to_hand(agent: Agent, other: Agent, third: Agent, claimed: Any) -> None:
    claim, holder = claimed, agent
    for target in (other, third, agent):
        claim = accept(target, hand_task(claim, holder, target))["claim"]
        holder = target
    assert claim["lease"]["epoch"] == 4
    runs = agent.get(f"/runs?task={claimed['task']['id']}")["runs"]
    assert [run["status"] for run in runs] == ["running", "handed_off", "handed_off", "handed_off"]
    assert agent.get(f"/tasks/{claimed['task']['id']}")["attempt_count"] == 0
