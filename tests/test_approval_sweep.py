"""The sweep of approvals that have run out: no single one of them holds up the others."""

from datetime import timedelta
from typing import Any

import pytest

from approvals.jobs import expire
from approvals.models import Approval, ApprovalStatus
from coordination.models import Event, Principal
from coordination.models.fields import ClockNow

from .acting import deploy, request
from .cast import Agent, Company
from .clockwork import sql, uuid_of
from .locking import second_connection


@pytest.fixture
def task_less(company: Company, agent: Agent) -> Approval:
    """A pending approval without a task, whose time is over; older than any that comes after."""
    made: Approval = Approval.objects.create(
        organization=company.organization,
        requested_by=Principal.objects.get(pk=agent.caller.principal_id),
        question="Send the newsletter?",
        options=["Yes", "No"],
        digest="0" * 64,
        created_at=ClockNow() - timedelta(hours=2),
        expires_at=ClockNow() - timedelta(hours=1),
    )
    return made


def _run_out(approval: Any) -> Any:
    sql(
        "UPDATE approvals_approval SET created_at = created_at - interval '2 days',"
        " expires_at = expires_at - interval '2 days' WHERE id = %s RETURNING id",
        uuid_of(approval["id"]),
    )
    return approval["id"]


def _status(approval_id: Any) -> str:
    return Approval.objects.get(pk=approval_id).status


def test_one_without_a_task_expires_and_so_does_what_is_behind_it(
    agent: Agent, claimed: Any, task_less: Approval
) -> None:
    behind = _run_out(agent.post("/approvals", request(claimed, deploy())))
    assert expire() >= 2
    assert _status(task_less.pk) == ApprovalStatus.EXPIRED
    assert agent.get(f"/approvals/{behind}")["status"] == "expired"
    assert agent.get(f"/tasks/{claimed['task']['id']}")["status"] == "in_progress"
    (event,) = Event.objects.filter(subject_id=task_less.pk)
    assert (event.kind, event.task_id) == ("approval.expired", None)
    assert expire() == 0


def test_one_whose_task_is_locked_is_passed_over(agent: Agent) -> None:
    """Its turn comes with the next sweep; the ones behind it do not wait."""
    claims = [agent.claim(task_id=agent.create(title)["id"]) for title in ("Stuck", "Behind it")]
    stuck, behind = (_run_out(agent.post("/approvals", request(each, deploy()))) for each in claims)
    with second_connection() as other:
        other.lock_task(uuid_of(claims[0]["task"]["id"]))
        sql("SELECT set_config('lock_timeout', '100ms', false)")
        try:
            assert expire() == 1
        finally:
            sql("RESET lock_timeout")
        assert [_status(uuid_of(each)) for each in (stuck, behind)] == ["pending", "expired"]
    assert expire() == 1
    assert _status(uuid_of(stuck)) == ApprovalStatus.EXPIRED
