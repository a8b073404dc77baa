"""Asking humans: the request of an approval, and its withdrawal."""

import hashlib
import json
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from coordination import blockers, events
from coordination.callers import Caller
from coordination.comments import refuse_unless_holder
from coordination.locks import Held, clock, hold_task
from coordination.models import Blocker, BlockerKind, Run
from coordination.tasks import refuse_unless
from coordination.times import deadline
from titen.errors import Refused, invalid, not_found

from .models import Approval, ApprovalStatus

MAX_OPTIONS = 20
MAX_OPTION_LENGTH = 200


def check_options(options: list[str]) -> None:
    """Refuse option lists that a human could not choose from: 2 to 20, short, and plainly different."""
    if not 2 <= len(options) <= MAX_OPTIONS:
        raise invalid("options", f"must hold between 2 and {MAX_OPTIONS} options.")
    for option in options:
        if not option.strip() or option != option.strip() or len(option) > MAX_OPTION_LENGTH:
            raise invalid(
                "options", f"each must be 1 to {MAX_OPTION_LENGTH} characters without outer blanks."
            )
    if len({option.casefold() for option in options}) != len(options):
        raise invalid("options", "must differ by more than upper and lower case.")


def question_digest(question: str, options: list[str]) -> str:
    """What a human was shown, as 64 hexadecimal digits: SHA-256 over question and options."""
    text = json.dumps([question, options], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def request(
    caller: Caller,
    *,
    run_id: UUID,
    epoch: int,
    question: str,
    options: list[str],
    context: str = "",
    expires_at: datetime | None = None,
    expires_in_seconds: int | None = None,
) -> Approval:
    """The holder of a run asks; its task is blocked until the approval ends, and the run waits.

    The approval ends after 24 hours unless `expires_at` (or `expires_in_seconds`) says otherwise.
    """
    check_options(options)
    run = Run.objects.filter(pk=run_id, organization_id=caller.organization_id).first()
    if run is None:
        raise not_found()
    held = hold_task(caller.organization_id, run.task_id, for_holder=True)
    refuse_unless_holder(held, caller, run_id, epoch, "ask")
    refuse_unless(held.task, "ask")
    approval = Approval.objects.create(
        organization_id=caller.organization_id,
        task=held.task,
        run_id=run_id,
        epoch=epoch,
        requested_by_id=caller.principal_id,
        question=question,
        context=context,
        options=options,
        digest=question_digest(question, options),
        expires_at=deadline(
            held.at,
            expires_at=expires_at,
            expires_in_seconds=expires_in_seconds,
            default_seconds=settings.APPROVAL_DEFAULT_SECONDS,
            longest_seconds=settings.APPROVAL_MAXIMUM_SECONDS,
        ),
        created_at=held.at,
    )
    Run.objects.filter(pk=run_id).update(has_asked=True)
    blocker = blockers.open_blocker(
        held,
        BlockerKind.APPROVAL,
        f"{caller.name} waits for an approval. An {approval.required_role} can decide it.",
        subject_id=approval.pk,
    )
    blockers.record_blocked(held, blocker, actor_id=caller.principal_id, kind="approval.requested")
    return approval


def hold_approval(organization_id: UUID, approval_id: UUID) -> tuple[Approval, Held]:
    """Lock an approval's task, lease and run, then the approval itself."""
    known = Approval.objects.filter(pk=approval_id, organization_id=organization_id).first()
    if known is None or known.task_id is None:
        raise not_found()
    held = hold_task(organization_id, known.task_id)
    approval = Approval.objects.select_for_update(no_key=True).get(pk=approval_id)
    held.at = clock()
    return approval, held


def refuse_ended(approval: Approval) -> None:
    """Refuse what needs a pending approval, with how it ended and by whom."""
    if approval.status == ApprovalStatus.PENDING:
        return
    details = {"state": approval.status, "decision": approval.decision}
    if approval.status == ApprovalStatus.EXPIRED:
        raise Refused("APPROVAL_EXPIRED", details=details)
    if approval.decided_by_user is not None:
        details["decided_by"] = approval.decided_by_user.email
        message = f"{approval.decided_by_user.email} decided “{approval.decision}” already."
        raise Refused("CONFLICT", message, details=details)
    raise Refused("CONFLICT", object="approval", state=approval.status, details=details)


def refuse_unless_pending(approval: Approval, held: Held) -> None:
    """`refuse_ended`, and one whose time is over has ended, whether or not that is written down."""
    refuse_ended(approval)
    if approval.expires_at <= held.at:
        raise Refused("APPROVAL_EXPIRED", details={"state": ApprovalStatus.EXPIRED, "decision": None})


def cancel(caller: Caller, approval_id: UUID) -> Approval:
    """The principal that asked takes its question back; the task goes on."""
    approval, held = hold_approval(caller.organization_id, approval_id)
    if approval.requested_by_id != caller.principal_id:
        raise Refused("FORBIDDEN", "Only the principal that requested an approval can cancel it.")
    refuse_unless_pending(approval, held)
    end_without_decision(approval, held, ApprovalStatus.CANCELLED, actor_id=caller.principal_id)
    return approval


def end_without_decision(
    approval: Approval, held: Held, status: ApprovalStatus, *, actor_id: UUID | None
) -> None:
    """Expire or cancel a pending, locked approval: its blocker closes and the task goes on."""
    ended_at = approval.expires_at if status == ApprovalStatus.EXPIRED else held.at
    Approval.objects.filter(pk=approval.pk, status=ApprovalStatus.PENDING).update(
        status=status, ended_at=ended_at
    )
    approval.status, approval.ended_at = status, ended_at
    close(approval, held, actor_id=actor_id, kind=f"approval.{status}")


def close(approval: Approval, held: Held, *, actor_id: UUID | None, kind: str, **data: Any) -> None:
    """Close the blocker of an ended approval and write the one event of its end."""
    blockers.close_blockers(held, Blocker.objects.filter(kind=BlockerKind.APPROVAL, subject_id=approval.pk))
    run = held.run
    events.record(
        kind,
        organization_id=approval.organization_id,
        actor_id=actor_id,
        task_id=approval.task_id,
        run_id=approval.run_id,
        lease_id=run.lease_id if run else None,
        subject_id=approval.pk,
        epoch=approval.epoch,
        status=held.task.status,
        approval=approval.status,
        **data,
    )
