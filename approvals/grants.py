"""What approvals say about one action: a grant to use, a denial that holds, or why there is none yet."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, Q

from coordination import events
from coordination.models import Principal, Task
from coordination.models.fields import ClockNow
from coordination.times import stamp
from titen.api.ids import public_id
from titen.errors import Refused

from .deciders import role_of, self_approval_is_forbidden
from .models import Approval, ApprovalStatus, Decision
from .policy import Verdict

# A human's no holds so long for who asked, in the whole organization, and for the task.
DENIAL_HOLDS = timedelta(hours=24)
_ASK_ANEW = "Request a new one if it is still needed."
# Why a grant is void, where a human has taken it back.
WITHDRAWN = "withdrawn"


def hold_all(task_id: UUID, digest: str) -> list[Approval]:
    """Lock the approvals of an action on a task, the oldest first. The caller has locked the task."""
    found = Approval.objects.select_for_update(no_key=True).filter(task_id=task_id, action_digest=digest)
    return list(found.order_by("pk"))


def is_usable(approval: Approval, at: datetime) -> bool:
    """True for a grant that was not used, is not void and holds at that moment."""
    return approval.status == ApprovalStatus.DECIDED and bool(approval.granted) and at < good_until(approval)


def objection(approval: Approval, verdict: Verdict, user_id: UUID) -> Refused | None:
    """Why policy, as it is today, does not accept a usable grant for the principal that would use it; None
    when it does.

    Who granted it must have the role today that is wanted today, and must not own who uses it where nobody
    decides for their own agents.
    """
    decider = approval.decided_by_user_id
    if decider is None or verdict.decision != Decision.ASK:
        return None
    about = {"approval_id": public_id("appr", approval.pk), "status": approval.status}
    wanted, role = verdict.required_role, role_of(decider, approval.organization_id)
    if role is None or not role.includes(wanted):
        return Refused(
            "APPROVAL_REQUIRED",
            f"Policy now wants an approval by an {wanted}, and who granted this one is not. Request a new"
            " approval, then wait for its decision.",
            details={**about, "reason": "role", "required_role": wanted},
        )
    owned = Principal.objects.filter(pk=user_id, owner_id=decider).exists()
    if owned and self_approval_is_forbidden(approval.organization, wanted):
        return Refused(
            "APPROVAL_REQUIRED",
            "Your owner granted this to another agent, and nobody decides for their own agents here. Request"
            " a new approval, then wait for its decision.",
            details={**about, "reason": "self_approval"},
        )
    return None


def good_until(approval: Approval) -> datetime:
    """The end of a grant; of an approval that ended."""
    if approval.ended_at is None:
        raise ValueError("the approval is pending")
    return approval.ended_at + timedelta(seconds=approval.valid_for_seconds)


def denial(*, organization_id: UUID, principal_id: UUID, task: Task | None, digest: str) -> Approval | None:
    """The newest denial of this action that holds for the principal, or on the task whoever asked.

    On a task that was reopened since it holds for nobody; for who asked it holds on everywhere else.
    """
    where = Q(requested_by_id=principal_id)
    if task is not None:
        here = Q(task_id=task.pk)
        where = (where & ~here) | (here & Q(round=task.round))
    return (
        Approval.objects.filter(
            where,
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
        case ApprovalStatus.VOID if approval.withdrawn_by_id is not None:
            return Refused(
                "APPROVAL_VOID",
                "A human withdrew this approval. Read why before you request a new one.",
                details={**about, "reason": WITHDRAWN, "withdrawal_reason": approval.withdrawal_reason},
            )
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
    """Grants of a task that was taken over, or is over, or is reopened, can be used no more. The caller has
    locked the task."""
    found = Approval.objects.select_for_update(no_key=True).filter(
        task_id=task_id, status=ApprovalStatus.DECIDED, granted=True
    )
    for approval in found.order_by("pk"):
        void(approval, because=because, actor_id=actor_id)


def void(approval: Approval, *, because: str, actor_id: UUID, **changes: object) -> None:
    """Make an unused grant void. The caller has locked its task, then the approval."""
    count = Approval.objects.filter(pk=approval.pk, status=ApprovalStatus.DECIDED, granted=True).update(
        status=ApprovalStatus.VOID, closed_at=ClockNow(), **changes
    )
    if approval.task_id is not None:
        # A completion has set it to nought already.
        Task.objects.filter(pk=approval.task_id, unused_grants__gt=0).update(
            unused_grants=F("unused_grants") - count
        )
    events.record(
        "approval.voided",
        organization_id=approval.organization_id,
        actor_id=actor_id,
        task_id=approval.task_id,
        run_id=approval.run_id,
        subject_id=approval.pk,
        epoch=approval.epoch,
        approval=ApprovalStatus.VOID,
        because=because,
    )
