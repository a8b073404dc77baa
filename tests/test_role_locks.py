"""Who acts by a role keeps it until the commit: its end or a lower role at that moment comes before or after."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from approvals import decisions
from approvals.models import Approval
from coordination import identity, tasks
from coordination.locks import hold_member
from coordination.models import Membership, Role, User
from titen.api.doors import transact
from titen.errors import Refused

from .cast import Human
from .clockwork import sql, uuid_of
from .effecting import new_person, seat
from .locking import Work, second_connection, wait_until_blocked
from .scenes import Scene, Stage, make_scene, set_stage
from .servers import Server
from .sessions import Session
from .test_deadlocks import deadlocks

CHANGE_ROLE = "UPDATE coordination_membership SET {} WHERE organization_id = %s AND user_id = %s"


@pytest.fixture(scope="module")
def stage(web: Server) -> Iterator[Stage]:
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def approver(stage: Stage, person: User) -> Human:
    return seat(stage.company, person)


def _decide(scene: Scene, human: Human) -> Callable[[], Any]:
    """With the role that the door has read by now."""
    caller, approval = human.caller, scene.approval
    return lambda: decisions.decide(
        caller, uuid_of(approval["id"]), option="Approve", shown_digest=approval["digest"]
    )


def _remove(human: Human) -> None:
    identity.end_membership(Membership.objects.get(user=human.user, organization=human.organization))


def _demote(human: Human) -> None:
    identity.add_member(human.organization, human.user, Role.OPERATOR)


CHANGES: dict[str, tuple[Callable[[Human], None], str]] = {
    "removed": (_remove, "NOT_FOUND"),
    "demoted": (_demote, "FORBIDDEN"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_no_decision_after_the_role_is_lost(stage: Stage, approver: Human, how: str) -> None:
    change, code = CHANGES[how]
    scene, before = make_scene(stage, "awaiting_approval"), deadlocks()
    work = _decide(scene, approver)
    with transaction.atomic():
        change(approver)
        late = Work(lambda: transact(work))
        wait_until_blocked()
    with pytest.raises(Refused) as no:
        late.outcome()
    assert no.value.code == code
    assert Approval.objects.get(pk=uuid_of(scene.approval["id"])).status == "pending"
    assert deadlocks() == before


@pytest.mark.parametrize("how", CHANGES)
def test_a_decision_comes_before_the_loss_that_waits_for_it(stage: Stage, approver: Human, how: str) -> None:
    change, _ = CHANGES[how]
    scene, before = make_scene(stage, "awaiting_approval"), deadlocks()
    work = _decide(scene, approver)
    with transaction.atomic():
        work()
        late = Work(lambda: transact(lambda: change(approver)))
        wait_until_blocked()
        membership = Membership.objects.get(user=approver.user, organization=approver.organization)
        assert (membership.role, membership.ended_at) == (Role.APPROVER, None)
    late.outcome()
    assert Approval.objects.get(pk=uuid_of(scene.approval["id"])).status == "decided"
    assert deadlocks() == before


# Every door by which a person acts with a role


def _v1(path: str, body: Any = None) -> Callable[[Session, Scene], Any]:
    return lambda session, scene: session.post(
        path.format(task=scene.task_id, approval=scene.approval["id"]), body
    )


def _click(path: str, form: Any = None) -> Callable[[Session, Scene], Any]:
    return lambda session, scene: session.htmx(
        "POST", path.format(task=scene.task_id, approval=scene.approval["id"]), form or {}
    )


BLOCK = {"sentence": "Stop.", "shown_digest": "0" * 64}
DOORS: dict[str, Callable[[Session, Scene], Any]] = {
    "block": _v1("/v1/tasks/{task}/block", BLOCK),
    "a click on block": _click("/tasks/{task}/block", BLOCK),
    "decide": lambda session, scene: session.decide(scene.approval, "Approve"),
    "a click on an option": lambda session, scene: session.click(scene.approval, "Approve"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_door_judges_the_role_under_the_lock(stage: Stage, approver: Human, web: Server, door: str) -> None:
    scene = make_scene(stage, "awaiting_approval")
    with Session(approver, web.url) as session, second_connection() as other:
        other.run(CHANGE_ROLE.format("role = 'viewer'"), approver.organization.pk, approver.user.pk)
        late = Work(lambda: DOORS[door](session, scene))
        wait_until_blocked(other)
        other.commit()
        answer = late.outcome()
    assert answer.status_code == 403
    assert "viewer" in answer.text
    assert Approval.objects.get(pk=uuid_of(scene.approval["id"])).status == "pending"
    assert sql("SELECT count(*) FROM coordination_blocker WHERE task_id = %s", scene.task) == [(1,)]


def test_people_of_one_organization_do_not_wait_for_each_other(stage: Stage, approver: Human) -> None:
    """Nor does one person's second window."""
    one, two = make_scene(stage, "held"), make_scene(stage, "held")
    caller = approver.caller
    with transaction.atomic():
        hold_member(caller)
        tasks.block(caller, one.task, sentence="Stop.")
        beside = Work(
            lambda: transact(lambda: tasks.block(caller, two.task, sentence="Stop."), person=caller)
        )
        beside.outcome()
