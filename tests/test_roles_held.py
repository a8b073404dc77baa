"""Whoever loses their role while a verb of theirs is under way has lost it: the membership is locked with the verb."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.test import Client

from approvals.policy_terms import row_digest
from coordination import identity
from coordination.models import CapabilityLimit, Membership, Organization, Role, Task
from titen.api.doors import transact

from .auditing import log_in as admin_browser
from .auditing import send
from .cast import Agent, Company, Human
from .dump import changed_since, table_digests
from .locking import Work, second_connection, until, wait_until_blocked, waiting
from .scenes import Scene, Stage, make_scene
from .sessions import Session
from .visitors import Visit, Visitor

END = "UPDATE coordination_membership SET ended_at = clock_timestamp() WHERE user_id = %s"
LOWER = "UPDATE coordination_membership SET role = 'viewer' WHERE user_id = %s"


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


class Desk:
    """All the doors of one person, and a task that something can be done to."""

    def __init__(self, stage: Stage, session: Session, visitor: Visitor, browser: Client) -> None:
        self.stage, self.session, self.visitor, self.browser = stage, session, visitor, browser
        self.scene = make_scene(stage, "awaiting_approval")
        self.digest = self.scene.shown["digest"]

    def api(self, verb: str, **body: Any) -> httpx.Response:
        return self.session.post(
            f"/v1/tasks/{self.scene.task_id}/{verb}", {**body, "shown_digest": self.digest}
        )

    def click(self, verb: str, **fields: Any) -> httpx.Response:
        path = f"/tasks/{self.scene.task_id}"
        return self.visitor.click(f"{path}/{verb}", **fields, shown_digest=self.digest)


def _flags(desk: Desk) -> Any:
    organization = Organization.objects.get(pk=desk.stage.company.organization.pk)
    return desk.visitor.click("/policy/flags", shown=row_digest(organization), forbid_self_approval="on")


def _admin(model: Any, verb: str, row: Callable[[Desk], Any], **values: str) -> Callable[[Desk], Any]:
    return lambda desk: send(desk.browser, model, verb, row(desk), **values)


def _task(desk: Desk) -> Task:
    return Task.objects.get(pk=desk.scene.task)


def _organization(desk: Desk) -> Organization:
    return desk.stage.company.organization


DOORS: dict[str, Callable[[Desk], Any]] = {
    "API: priority": lambda desk: desk.api("priority", priority=5),
    "API: takeover": lambda desk: desk.api("takeover", to="me", reason="I do it.", epoch=1),
    "API: block": lambda desk: desk.api("block", sentence="Stop."),
    "API: decide": lambda desk: desk.session.decide(desk.scene.approval, "Approve"),
    "board: cancel": lambda desk: desk.click("cancel"),
    "board: decide": lambda desk: desk.visitor.click(
        f"/approvals/{desk.scene.approval['id']}/decide",
        option="Approve",
        shown_digest=desk.scene.approval["digest"],
    ),
    "board: flags": _flags,
    "board: new agent": lambda desk: desk.visitor.form("/keys/agents", name="eve"),
    "admin: cancel": _admin(Task, "cancel", _task),
    "admin: configure": _admin(Organization, "configure", _organization, lease_ttl_seconds="120"),
    "admin: limit": lambda desk: send(
        desk.browser,
        CapabilityLimit,
        "limit",
        organization=desk.stage.company.organization.slug,
        capability="docker",
        max_concurrent_runs="1",
    ),
}


@pytest.fixture
def desk(static_files: None, stage: Stage, visit: Visit) -> Any:
    ada = visit(stage.human)
    ada.open("/")
    with Session(stage.human, stage.company.url) as session:
        yield Desk(stage, session, ada, admin_browser(stage.human.user))


@pytest.mark.parametrize("lost", [END, LOWER], ids=["removed", "demoted"])
@pytest.mark.parametrize("door", DOORS)
def test_who_loses_their_role_at_that_instant_does_nothing(desk: Desk, door: str, lost: str) -> None:
    before = table_digests()
    with second_connection() as colleague:
        colleague.run(lost, desk.stage.human.user.pk)
        acting = Work(lambda: DOORS[door](desk))
        wait_until_blocked(colleague)
        colleague.commit()
        assert acting.outcome().status_code in (403, 404, 409)
    assert changed_since(before) == ["coordination_membership"]


def test_who_ends_a_membership_waits_for_the_verb_that_is_under_way(stage: Stage, company: Company) -> None:
    """The other way round: what the verb took is seen, and taken back."""
    scene = make_scene(stage, "todo")
    membership = Membership.objects.get(user=stage.human.user)
    digest = scene.shown["digest"]
    with second_connection() as colleague, Session(stage.human, company.url) as session:
        colleague.lock_task(scene.task)
        body = {"to": "me", "reason": "I do it.", "epoch": 0, "shown_digest": digest}
        taking = Work(lambda: session.post(f"/v1/tasks/{scene.task_id}/takeover", body))
        wait_until_blocked(colleague)
        ending = Work(lambda: transact(lambda: identity.end_membership(membership)))
        until(lambda: waiting() >= 2, "both waiting")
        colleague.commit()
        assert taking.outcome().status_code == 200
        ending.outcome()
    shown = scene.shown
    assert (shown["status"], shown["standing"]) == ("todo", None)


def test_a_promotion_at_that_instant_does_no_harm(stage: Stage, company: Company) -> None:
    scene: Scene = make_scene(stage, "todo")
    operator = company.human(Role.OPERATOR)
    with second_connection() as colleague, Session(operator, company.url) as session:
        colleague.run(
            "UPDATE coordination_membership SET role = 'admin' WHERE user_id = %s", operator.user.pk
        )
        body = {"priority": 5, "shown_digest": scene.shown["digest"]}
        acting = Work(lambda: session.post(f"/v1/tasks/{scene.task_id}/priority", body))
        wait_until_blocked(colleague)
        colleague.commit()
        assert acting.outcome().status_code == 200
