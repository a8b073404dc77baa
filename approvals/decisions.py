"""Deciding: one rule for the board and for `POST …/decide`."""

from uuid import UUID

from django.db import transaction

from coordination.callers import Caller
from coordination.models import Role
from titen.errors import Refused, invalid

from .models import Approval, ApprovalStatus
from .requests import close, end_without_decision, hold_approval, refuse_unless_pending

MAX_REASON = 2000


def decide(
    caller: Caller, approval_id: UUID, *, option: str, shown_digest: str, reason: str = ""
) -> Approval:
    """Record a human's decision: exactly one of the options, once, before the deadline.

    `shown_digest` is the digest of what the human saw. Decision, blocker, task and run move in one
    transaction. Raises `Refused`: FORBIDDEN for a key or a lower role, APPROVAL_EXPIRED, CONFLICT with
    who decided what, DIGEST_MISMATCH.
    """
    if not caller.is_human or caller.role is None or caller.user_id is None:
        raise Refused("FORBIDDEN", "Only a human decides, on the board. An API key cannot.")
    approval, held = hold_approval(caller.organization_id, approval_id)
    if not Role(caller.role).includes(Role(approval.required_role)):
        raise Refused(
            "FORBIDDEN", f"Deciding this needs the role {approval.required_role}; you are {caller.role}."
        )
    refuse_unless_pending(approval, held)
    if shown_digest != approval.digest:
        raise Refused("DIGEST_MISMATCH", details={"digest": approval.digest})
    if option not in approval.options:
        raise invalid("option", f"must be exactly one of {', '.join(repr(o) for o in approval.options)}.")
    count = Approval.objects.filter(pk=approval.pk, status=ApprovalStatus.PENDING).update(
        status=ApprovalStatus.DECIDED,
        decision=option,
        reason=reason,
        decided_by_user_id=caller.user_id,
        ended_at=held.at,
    )
    if count != 1:
        raise Refused("CONFLICT", object="approval", state="decided already")
    approval.refresh_from_db()
    close(
        approval,
        held,
        actor_id=caller.principal_id,
        kind="approval.decided",
        option=approval.options.index(option),
    )
    return approval


def expire(approval_id: UUID, organization_id: UUID) -> bool:
    """Write down that an approval has run out; False when it has not, or somebody else did. Own transaction."""
    with transaction.atomic(durable=True):
        approval, held = hold_approval(organization_id, approval_id)
        if approval.status != ApprovalStatus.PENDING or approval.expires_at > held.at:
            return False
        end_without_decision(approval, held, ApprovalStatus.EXPIRED, actor_id=None)
    return True
