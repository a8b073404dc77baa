"""Deciding: one rule for the board and for `POST …/decide`."""

from uuid import UUID

from django.db import transaction
from django.db.models import F

from coordination import events
from coordination.callers import Caller
from coordination.locks import hold_member
from coordination.models import Role, Task
from titen.errors import Refused, invalid

from . import grants, options
from .deciders import self_approval_is_forbidden
from .models import Approval, ApprovalStatus
from .requests import (
    close,
    end_without_decision,
    hold_any_approval,
    hold_approval,
    refuse_unless_pending,
)

MAX_REASON = 2000


def require_human(caller: Caller) -> None:
    """Refuse everybody but a person in a browser session, who keeps their role until the commit.

    Before the task is locked: the end of a membership takes the same locks in this order.
    """
    if not caller.is_human or caller.role is None or caller.user_id is None:
        raise Refused("FORBIDDEN", "Only a human decides, on the board. An API key cannot.")
    hold_member(caller)


def require_role_for(caller: Caller, approval: Approval) -> None:
    """Refuse who is below the role that policy wants for this approval."""
    if not Role(caller.role or Role.VIEWER).includes(Role(approval.required_role)):
        raise Refused(
            "FORBIDDEN", f"Deciding this needs the role {approval.required_role}; you are {caller.role}."
        )


def decide(
    caller: Caller, approval_id: UUID, *, option: str, shown_digest: str, reason: str = ""
) -> Approval:
    """Record a human's decision: exactly one of the options, once, before the deadline.

    `shown_digest` is the digest of what the human saw. Decision, blocker, task and run move in one
    transaction. Raises `Refused`: FORBIDDEN for a key or a lower role, APPROVAL_EXPIRED, CONFLICT with
    who decided what, DIGEST_MISMATCH.
    """
    require_human(caller)
    approval, held = hold_approval(caller.organization_id, approval_id)
    require_role_for(caller, approval)
    refuse_unless_pending(approval, held)
    if shown_digest != approval.digest:
        raise Refused("DIGEST_MISMATCH", details={"digest": approval.digest})
    refuse_self_approval(caller, approval)
    offered = options.read(approval.options, for_action=approval.action is not None)
    place = next((place for place, each in enumerate(offered) if each.value == option), None)
    if place is None:
        raise invalid("option", f"must be exactly one of {', '.join(repr(each.value) for each in offered)}.")
    count = Approval.objects.filter(pk=approval.pk, status=ApprovalStatus.PENDING).update(
        status=ApprovalStatus.DECIDED,
        decision=option,
        granted=offered[place].grants,
        round=held.task.round,
        reason=reason,
        decided_by_user_id=caller.user_id,
        ended_at=held.at,
    )
    if count != 1:
        raise Refused("CONFLICT", object="approval", state="decided already")
    if offered[place].grants:
        Task.objects.filter(pk=held.task.pk).update(unused_grants=F("unused_grants") + 1)
    approval.refresh_from_db()
    close(
        approval,
        held,
        actor_id=caller.principal_id,
        kind="approval.decided",
        option=place,
        granted=approval.granted,
    )
    return approval


def refuse_self_approval(caller: Caller, approval: Approval) -> None:
    """Where the organization forbids it, an agent's owner does not decide what the agent asks."""
    role = Role(approval.required_role)
    if approval.requested_by.owner_id == caller.user_id and self_approval_is_forbidden(
        approval.organization, role
    ):
        raise Refused(
            "FORBIDDEN",
            f"You own {approval.requested_by.name}, and this organization forbids deciding for one's own"
            " agents. Another approver can.",
        )


def lift_denial(caller: Caller, approval_id: UUID) -> Approval:
    """A human takes a denial back: the action may be asked about again. It grants nothing.

    Who may decide the approval may lift its denial. `CONFLICT` when there is none that holds.
    """
    require_human(caller)
    approval, held = hold_approval(caller.organization_id, approval_id)
    require_role_for(caller, approval)
    if approval.granted is not False or approval.denial_lifted_at is not None:
        raise Refused("CONFLICT", "There is no denial to lift.", details={"state": approval.status})
    Approval.objects.filter(pk=approval.pk).update(denial_lifted_at=held.at, denial_lifted_by=caller.user_id)
    events.record(
        "approval.denial_lifted",
        organization_id=approval.organization_id,
        actor_id=caller.principal_id,
        task_id=approval.task_id,
        run_id=approval.run_id,
        subject_id=approval.pk,
        epoch=approval.epoch,
        approval=approval.status,
    )
    approval.refresh_from_db()
    return approval


def withdraw(caller: Caller, approval_id: UUID, *, reason: str) -> Approval:
    """A human takes back a grant that nobody has used: it is void, and the action may be asked about again.

    Who may decide the approval may withdraw it, whatever the task is doing. `CONFLICT` when there is no
    grant that can be used (any more): of a use and a withdrawal at the same moment one wins.
    """
    require_human(caller)
    if not reason.strip():
        raise invalid("reason", "may not be blank.")
    approval, held = hold_approval(caller.organization_id, approval_id)
    require_role_for(caller, approval)
    if not grants.is_usable(approval, held.at):
        used = approval.status == ApprovalStatus.CONSUMED
        raise Refused(
            "CONFLICT",
            "The grant was used already. Look at what came of its effect."
            if used
            else "There is no grant to withdraw: nothing can be done with this approval.",
            details={"state": approval.status},
        )
    grants.void(
        approval,
        because=grants.WITHDRAWN,
        actor_id=caller.principal_id,
        withdrawn_by_id=caller.user_id,
        withdrawal_reason=reason,
    )
    approval.refresh_from_db()
    return approval


def expire(approval_id: UUID, organization_id: UUID) -> bool:
    """Record that an approval has run out; False when it has not, or somebody else did. Own transaction."""
    with transaction.atomic(durable=True):
        approval, held, at = hold_any_approval(organization_id, approval_id)
        if approval.status != ApprovalStatus.PENDING or approval.expires_at > at:
            return False
        end_without_decision(approval, held, ApprovalStatus.EXPIRED, at=at, actor_id=None)
    return True
