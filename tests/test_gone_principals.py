"""What is kept for somebody, or not offered to them, ends when they cannot come any more."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from coordination import identity, takeovers, tasks
from coordination.locks import clock
from coordination.models import ApiKey, Membership, Task
from titen.api.doors import transact

from .cast import Agent, Company, Human
from .clockwork import kinds_since, last_seq, pass_time
from .locking import Work, second_connection, wait_until_blocked
from .scenes import Scene, Stage, make_scene, to_self


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


def _kept_after_a_takeover(stage: Stage) -> Scene:
    scene = make_scene(stage, "todo")
    scene.by_human(takeovers.take_over, to=stage.holder.principal, reason="Yours.", epoch=0)
    return scene


def _kept_after_a_wait(stage: Stage) -> Scene:
    scene = make_scene(stage, "parked")
    scene.decide()
    return scene


def _kept_and_blocked(stage: Stage) -> Scene:
    scene = _kept_after_a_takeover(stage)
    scene.by_human(tasks.block, sentence="Not yet.")
    return scene


KEPT: dict[str, Callable[[Stage], Scene]] = {
    "after a takeover": _kept_after_a_takeover,
    "after a wait": _kept_after_a_wait,
    "and blocked": _kept_and_blocked,
}


def _disable(agent: Agent) -> None:
    transact(lambda: identity.disable_principal(agent.principal))


def _revoke_the_last_key(agent: Agent) -> None:
    for key in ApiKey.objects.filter(principal=agent.principal, revoked_at=None):
        transact(lambda key=key: identity.revoke_key(key.organization_id, key.pk))  # type: ignore[misc]


GONE: dict[str, Callable[[Agent], None]] = {
    "disabled": _disable,
    "its last key revoked": _revoke_the_last_key,
}


def kept(scene: Scene) -> tuple[Any, Any]:
    task = Task.objects.get(pk=scene.task)
    return task.reserved_for_id, task.avoided_id


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("case", KEPT)
def test_a_reservation_ends_with_its_principal(
    stage: Stage, third: Agent, admin: Human, case: str, gone: str
) -> None:
    scene = KEPT[case](stage)
    assert kept(scene) == (stage.holder.principal.pk, None)
    seq = last_seq()
    GONE[gone](stage.holder)
    assert kept(scene) == (None, None)
    assert "task.reservation_ended" in kinds_since(scene.task_id, seq)
    if case == "and blocked":
        transact(lambda: tasks.unblock(admin.caller, scene.task))
    assert third.claim(task_id=scene.task_id)


def test_an_avoidance_ends_with_its_principal(stage: Stage) -> None:
    scene = make_scene(stage, "held")
    scene.by_human(takeovers.take_over, to=None, reason="It hangs.", epoch=1)
    assert kept(scene) == (None, stage.holder.principal.pk)
    _disable(stage.holder)
    assert kept(scene) == (None, None)


def test_a_key_that_is_not_the_last_one_ends_nothing(stage: Stage) -> None:
    scene = _kept_after_a_takeover(stage)
    key, _ = identity.issue_key(stage.holder.principal, scopes=["*"])
    transact(lambda: identity.revoke_key(key.organization_id, key.pk))
    assert kept(scene)[0] == stage.holder.principal.pk


def test_a_key_that_cannot_claim_keeps_nothing(stage: Stage) -> None:
    """Who reads only will not come for the task."""
    scene = _kept_after_a_takeover(stage)
    identity.issue_key(stage.holder.principal, scopes=["tasks:read"])
    key = ApiKey.objects.get(principal=stage.holder.principal, scopes=["*"])
    transact(lambda: identity.revoke_key(key.organization_id, key.pk))
    assert kept(scene) == (None, None)


@pytest.mark.parametrize("case", ["after a takeover", "after a wait"])
def test_a_reservation_lasts_no_longer_than_the_last_key(stage: Stage, third: Agent, case: str) -> None:
    ends = clock() + timedelta(seconds=60)
    ApiKey.objects.filter(principal=stage.holder.principal).update(expires_at=ends)
    scene = KEPT[case](stage)
    assert Task.objects.get(pk=scene.task).reserved_until == ends
    pass_time(scene.task_id, "reserved_until")
    assert third.claim(task_id=scene.task_id)


def test_nothing_is_kept_for_who_is_gone_already(stage: Stage, third: Agent) -> None:
    """The blocker closes after its asker was disabled."""
    scene = make_scene(stage, "parked")
    Task.objects.get(pk=scene.task)
    stage.other.create()
    _disable(stage.holder)
    scene.decide()
    assert kept(scene) == (None, None)
    assert third.claim(task_id=scene.task_id)


def test_an_ended_membership_keeps_nothing(stage: Stage, company: Company, third: Agent) -> None:
    scene = make_scene(stage, "held")
    colleague = company.human("operator")
    mine = Stage(company, stage.holder, stage.other, colleague)
    scene.stage = mine
    scene.by_human(takeovers.take_over, **to_self(scene))
    transact(lambda: identity.end_membership(Membership.objects.get(user=colleague.user)))
    assert kept(scene) == (None, None)
    assert third.claim(task_id=scene.task_id)


@pytest.mark.parametrize("gone", GONE)
def test_who_goes_while_a_task_is_being_kept_for_them_keeps_nothing(
    stage: Stage, third: Agent, gone: str
) -> None:
    """Both ways round: the takeover that comes second sees it, and the one that came first is seen."""
    scene = make_scene(stage, "todo")
    with second_connection() as colleague:
        colleague.lock_task(scene.task)
        keeping = Work(
            lambda: scene.by_human(takeovers.take_over, to=stage.holder.principal, reason="Yours.", epoch=0)
        )
        wait_until_blocked(colleague)
        going = Work(lambda: GONE[gone](stage.holder))
        wait_until_blocked(colleague, count=2)
        colleague.commit()
        keeping.outcome()
        going.outcome()
    assert kept(scene) == (None, None)
    assert third.claim(task_id=scene.task_id)
