"""What approvals say about one action: a grant to use, a denial that holds, or why there is none yet."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q

from coordination import events
from coordination.models.fields import ClockNow
from coordination.times import stamp
from titen.api.ids import public_id
from titen.errors import Refused

from .models import Approval, ApprovalStatus

# A human's no holds so long for who asked, in the whole organization, and for the task.
DENIAL_HOLDS = timedelta(hours=24)
_ASK_ANEW = "Request a new one if it is still needed."


def hold_all(task_id: UUID, digest: str) -> list[Approval]:
    """Lock the approvals of an action on a task, the oldest first. The caller has locked the task."""
    found = Approval.objects.select_for_update(no_key=True).filter(task_id=task_id, action_digest=digest)
    return list(found.order_by("pk"))


def is_usable(approval: Approval, at: datetime) -> bool:
    """True for a grant that was not used, is not void and holds at that moment."""
    return approval.status == ApprovalStatus.DECIDED and bool(approval.granted) and at < good_until(approval)


def good_until(approval: Approval) -> datetime:
    """The end of a grant; of an approval that ended."""
    if approval.ended_at is None:
        raise ValueError("the approval is pending")
    return approval.ended_at + timedelta(seconds=approval.valid_for_seconds)


def denial(
    *, organization_id: UUID, principal_id: UUID, task_id: UUID | None, digest: str
) -> Approval | None:
    """The newest denial of this action that holds for the principal, or on the task whoever asked."""
    return (
        Approval.objects.filter(
            Q(requested_by_id=principal_id) | Q(task_id__isnull=False, task_id=task_id),
            organization_id=organization_id,
            action_digest=digest,
            granted=False,
            denial_lifted_at=None,
            ended_at__gt=ClockNow() - DENIAL_HOLDS,
        )
        .order_by("-ended_at")
        .first()
    )


def refusal_of(approval: Approval, at: datetime) -> Refused | None:
    """Why this approval lets nothing happen at that moment; None when it does."""
    if is_usable(approval, at):
        return None
    about = {"approval_id": public_id("appr", approval.pk), "status": approval.status}
    match approval.status:
        case ApprovalStatus.PENDING if approval.expires_at > at:
            return Refused("APPROVAL_PENDING", details=about)
        case ApprovalStatus.PENDING | ApprovalStatus.EXPIRED:
            return Refused("APPROVAL_EXPIRED", details={**about, "status": ApprovalStatus.EXPIRED})
        case ApprovalStatus.CONSUMED:
            return Refused("ALREADY_CONSUMED", details=about)
        case ApprovalStatus.VOID | ApprovalStatus.CANCELLED:
            return Refused("APPROVAL_VOID", details=about)
        case _ if approval.granted:
            until = stamp(good_until(approval))
            return Refused(
                "APPROVAL_EXPIRED", f"The approval was good until {until}. {_ASK_ANEW}", details=about
            )
        case _ if approval.granted is None:
            return Refused("DIGEST_MISMATCH", "This approval is about no action.", details=about)
        case _:
            return Refused(
                "APPROVAL_REQUIRED",
                "This was denied, and the denial is over. Request a new approval.",
                details=about,
            )


def denied(approval: Approval) -> Refused:
    """A human's no, with the reason that was given. Final for as long as it holds."""
    until = None if approval.ended_at is None else approval.ended_at + DENIAL_HOLDS
    return Refused(
        "APPROVAL_DENIED",
        details={
            "approval_id": public_id("appr", approval.pk),
            "status": approval.status,
            "decision": approval.decision,
            "reason": approval.reason,
            "final": True,
            "until": stamp(until),
        },
    )


def consume(approval: Approval, at: datetime) -> bool:
    """Use a grant up. False when somebody else did: the row count decides."""
    count = Approval.objects.filter(pk=approval.pk, status=ApprovalStatus.DECIDED, granted=True).update(
        status=ApprovalStatus.CONSUMED, closed_at=at
    )
    return count == 1


def void_all(task_id: UUID, *, because: str, actor_id: UUID) -> None:
    """Grants of a task that was taken over or cancelled can be used no more. The caller has locked the task."""
    found = Approval.objects.select_for_update(no_key=True).filter(
        task_id=task_id, status=ApprovalStatus.DECIDED, granted=True
    )
    for approval in found.order_by("pk"):
        Approval.objects.filter(pk=approval.pk).update(status=ApprovalStatus.VOID, closed_at=ClockNow())
        events.record(
            "approval.voided",
            organization_id=approval.organization_id,
            actor_id=actor_id,
            task_id=task_id,
            run_id=approval.run_id,
            subject_id=approval.pk,
            epoch=approval.epoch,
            approval=ApprovalStatus.VOID,
            because=because,
        )
