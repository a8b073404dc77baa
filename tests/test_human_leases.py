"""Humans hold leases too: 8 hours, renewed by each of their actions; running out gives the task back."""

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings

from approvals import outcomes
from approvals.models import EffectStatus
from coordination import checkpoints, comments, takeovers, tasks
from coordination.models import Run
from titen.api.doors import transact
from titen.errors import Refused

from .cast import Agent, Company, Human
from .clockwork import kinds_since, last_seq, sql, uuid_of
from .scenes import Scene, Stage, human_ends, make_scene, to_self


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


@pytest.fixture
def mine(stage: Stage) -> Scene:
    """A task that the human has taken over from an agent."""
    scene = make_scene(stage, "held")
    scene.by_human(takeovers.take_over, **to_self(scene))
    return scene


def run_of(scene: Scene) -> Run:
    """The human's run."""
    return Run.objects.select_related("lease").get(task_id=scene.task, ended_at=None)


def hours_left(scene: Scene) -> float:
    found = sql(
        "SELECT extract(epoch FROM l.expires_at - clock_timestamp())::float / 3600 FROM coordination_lease l"
        " JOIN coordination_run r ON r.lease_id = l.id WHERE r.task_id = %s AND r.ended_at IS NULL",
        scene.task,
    )
    return float(found[0][0])


def age(scene: Scene, hours: float) -> None:
    """The human did nothing for so long."""
    sql(
        "UPDATE coordination_lease SET renewed_at = renewed_at - %s * interval '1 h',"
        " expires_at = expires_at - %s * interval '1 h' WHERE id = %s",
        hours,
        hours,
        run_of(scene).lease_id,
    )


def let_run_out(scene: Scene) -> None:
    sql("UPDATE coordination_lease SET expires_at = clock_timestamp() WHERE id = %s", run_of(scene).lease_id)


def test_it_lasts_8_hours(mine: Scene) -> None:
    assert settings.HUMAN_LEASE_TTL_SECONDS == 8 * 3600
    assert 7.99 < hours_left(mine) <= 8


def _post(scene: Scene) -> Any:
    return transact(lambda: comments.post(scene.stage.human.caller, scene.task, body="Still on it."))


def _checkpoint(scene: Scene) -> Any:
    run = run_of(scene)
    return transact(
        lambda: checkpoints.write(scene.stage.human.caller, run_id=run.pk, epoch=run.epoch, state={"step": 2})
    )


ACTIONS: dict[str, Callable[[Scene], Any]] = {
    "a comment": _post,
    "a checkpoint": _checkpoint,
    "a new priority": lambda scene: scene.by_human(tasks.set_priority, priority=2),
    "a block": lambda scene: scene.by_human(tasks.block, sentence="Lunch."),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_on_the_task_renews_it(mine: Scene, action: str) -> None:
    age(mine, 7)
    ACTIONS[action](mine)
    assert 7.99 < hours_left(mine) <= 8


def test_an_unblock_renews_it_too(mine: Scene) -> None:
    mine.by_human(tasks.block, sentence="Lunch.")
    age(mine, 7)
    mine.by_human(tasks.unblock)
    assert 7.99 < hours_left(mine) <= 8
    assert mine.shown["status"] == "in_progress"


def test_the_action_of_somebody_else_does_not(mine: Scene, company: Company) -> None:
    age(mine, 7)
    colleague = company.human("operator").caller
    transact(lambda: tasks.set_priority(colleague, mine.task, priority=2))
    transact(lambda: comments.post(colleague, mine.task, body="How far are you?"))
    assert 0.9 < hours_left(mine) <= 1


@pytest.mark.parametrize("how", ["the sweeper", "a claim", "a human's move"])
def test_running_out_ends_the_run_released(mine: Scene, how: str) -> None:
    run, seq = run_of(mine).pk, last_seq()
    let_run_out(mine)
    if how == "the sweeper":
        mine.sweep()
    elif how == "a claim":
        assert mine.stage.other.claim()["task"]["id"] == mine.task_id
    else:
        mine.by_human(tasks.set_priority, priority=2)
    assert Run.objects.get(pk=run).status == "released"
    assert kinds_since(mine.task_id, seq)[0] == "task.released"
    assert mine.shown["attempt_count"] == 0


@pytest.mark.parametrize("swept", [True, False])
def test_running_out_while_blocked_too(mine: Scene, swept: bool) -> None:
    run = run_of(mine).pk
    mine.by_human(tasks.block, sentence="Wait for the freeze to end.")
    let_run_out(mine)
    if swept:
        mine.sweep()
        assert mine.shown["status"] == "blocked"
    mine.by_human(tasks.unblock)
    assert Run.objects.get(pk=run).status == "released"
    assert mine.stage.other.claim()["task"]["id"] == mine.task_id


ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "complete": ({"summary": "By hand."}, "done"),
    "fail": ({"error": "It cannot be done."}, "todo"),
    "release": ({"checkpoint": {"step": 3}}, "todo"),
}


@pytest.mark.parametrize("verb", ENDS)
def test_a_human_ends_the_run_like_an_agent(mine: Scene, verb: str) -> None:
    more, status = ENDS[verb]
    run = run_of(mine)
    human_ends(mine.stage.human, verb, run.pk, run.epoch, **more)
    assert mine.shown["status"] == status


def test_a_human_completes_though_the_last_action_was_long_ago(stage: Stage) -> None:
    """Jeopardy is for agents that should have been heard of. What the agent did must be known all the same."""
    mine = make_scene(stage, "authorized")
    mine.by_human(takeovers.take_over, **to_self(mine))
    age(mine, 7)
    run = run_of(mine)
    with pytest.raises(Refused) as refused:
        human_ends(mine.stage.human, "complete", run.pk, run.epoch)
    assert refused.value.code == "EFFECTS_UNRECONCILED"
    done, effect = EffectStatus.SUCCEEDED, uuid_of(mine.effect["id"])
    transact(
        lambda: outcomes.reconcile(mine.stage.human.caller, effect, outcome=done, note="The page is there.")
    )
    human_ends(mine.stage.human, "complete", run.pk, run.epoch)
    assert mine.shown["status"] == "done"


def test_the_agent_that_lost_it_is_told(mine: Scene) -> None:
    error = mine.stage.holder.refused(
        "LEASE_SUPERSEDED", f"/runs/{mine.claim['run']['id']}/complete", {"epoch": 1}
    )
    assert error["details"]["reason"] == "revoked"


def test_the_next_agent_reads_the_checkpoint_that_the_human_left(mine: Scene) -> None:
    run = run_of(mine)
    human_ends(mine.stage.human, "release", run.pk, run.epoch, checkpoint={"step": 3}, reason="Your turn.")
    attempts = mine.stage.other.claim()["context"]["attempts"]
    assert (attempts[0]["checkpoint"], attempts[0]["error"]) == ({"step": 3}, "Your turn.")
