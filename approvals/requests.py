"""Asking humans: the request of an approval, and its withdrawal."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from coordination import blockers, events
from coordination.callers import Caller
from coordination.canonical import digest
from coordination.comments import refuse_unless_holder
from coordination.database import fetch
from coordination.locks import Held, clock, hold_able, hold_task
from coordination.models import Blocker, BlockerKind, Role, Run
from coordination.tasks import refuse_unless
from coordination.times import deadline
from titen.api.ids import public_id
from titen.errors import Refused, invalid, not_found

from . import grants, policy
from .actions import Action
from .models import Approval, ApprovalStatus, Decision, Risk
from .options import FOR_ACTIONS, Option, check
from .policy import Verdict, higher

# Pending at once. More are noise: the human who has to read them stops reading.
PENDING_OF_A_TASK = 5
PENDING_OF_A_PRINCIPAL = 20
VALID_FOR_SECONDS = 3600
VALID_FOR_LIMIT = 30 * 86_400


def shown_digest(question: str, context: str, options: list[Any], action: Action | None) -> str:
    """Of what a human was shown, as 64 hexadecimal digits: SHA-256 over its canonical JSON."""
    return digest(
        {
            "question": question,
            "context": context,
            "options": options,
            "action": action.content if action else None,
        }
    )


def request(
    caller: Caller,
    *,
    run_id: UUID,
    epoch: int,
    question: str,
    options: list[Any] | None = None,
    context: str = "",
    action: Action | None = None,
    risk: Risk | None = None,
    on_expiry: str | None = None,
    valid_for_seconds: int = VALID_FOR_SECONDS,
    expires_at: datetime | None = None,
    expires_in_seconds: int | None = None,
) -> Approval:
    """The holder of a run asks; its task is blocked until the approval ends, and the run waits.

    With an `action` a decision grants exactly that, once, within `valid_for_seconds`; policy sets risk, role
    and usual time, and `risk` can only raise it. `on_expiry` names an option that does not grant. Raises
    `Refused`: POLICY_DENIED, APPROVAL_DENIED while a denial of the action holds, APPROVAL_PENDING when it is
    asked already, CONFLICT when it is granted already, RATE_LIMITED with what is pending.
    """
    offered = FOR_ACTIONS if options is None and action is not None else options or []
    found = check(offered, for_action=action is not None)
    check_on_expiry(on_expiry, found)
    run = Run.objects.filter(pk=run_id, organization_id=caller.organization_id).first()
    if run is None:
        raise not_found()
    hold_able(caller)
    # One request of a principal at a time, so that the count holds.
    fetch(
        "SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))::text",
        {"name": f"asks {caller.principal_id}"},
    )
    held = hold_task(caller.organization_id, run.task_id, for_holder=True)
    holder = refuse_unless_holder(held, caller, run_id, epoch, "ask")
    refuse_unless(held.task, "ask")
    verdict = _judge(holder, held, action) if action is not None else None
    _refuse_flood(caller, held)
    usual = verdict.expires_in_seconds if verdict else None
    approval = Approval.objects.create(
        organization_id=caller.organization_id,
        task=held.task,
        run_id=run_id,
        epoch=epoch,
        round=held.task.round,
        requested_by_id=caller.principal_id,
        question=question,
        context=context,
        options=offered,
        digest=shown_digest(question, context, offered, action),
        action=action.content if action else None,
        action_digest=action.digest if action else None,
        kind=verdict.kind if verdict else "",
        risk=_risk(verdict, risk),
        verdict=verdict.record() if verdict else None,
        required_role=verdict.required_role if verdict else Role.APPROVER,
        on_expiry=on_expiry,
        valid_for_seconds=valid_for_seconds,
        expires_at=deadline(
            held.at,
            expires_at=expires_at,
            expires_in_seconds=expires_in_seconds,
            default_seconds=usual or settings.APPROVAL_DEFAULT_SECONDS,
            longest_seconds=usual or settings.APPROVAL_MAXIMUM_SECONDS,
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


def check_on_expiry(value: str | None, options: list[Option]) -> None:
    """The fallback is one of the options, and none that grants."""
    if value is None:
        return
    option = next((option for option in options if option.value == value), None)
    if option is None:
        raise invalid("on_expiry", "must be the value of one of the options.")
    if option.grants:
        raise invalid("on_expiry", "must not grant: nobody would have decided it.")


def _risk(verdict: Verdict | None, wished: Risk | None) -> Risk:
    floor = verdict.risk if verdict else Risk.LOW
    return higher(floor, wished or (floor if verdict else Risk.MEDIUM))


def _judge(holder: Run, held: Held, action: Action) -> Verdict:
    """Policy's word on what is asked. Refused where a human's answer would change nothing."""
    verdict = policy.judge(holder.principal, action)
    if verdict.decision == Decision.DENY:
        raise policy_denied(verdict)
    no = grants.denial(
        organization_id=held.task.organization_id,
        principal_id=holder.principal_id,
        task=held.task,
        digest=action.digest,
    )
    if no is not None:
        raise grants.denied(no)
    for earlier in grants.hold_all(held.task.pk, action.digest):
        about = {"approval_id": public_id("appr", earlier.pk), "status": earlier.status}
        if earlier.status == ApprovalStatus.PENDING and earlier.expires_at > held.at:
            raise Refused("APPROVAL_PENDING", details=about)
        usable = grants.is_usable(earlier, held.at)
        if usable and grants.objection(earlier, verdict, holder.principal_id) is None:
            raise Refused(
                "CONFLICT", "This is approved already. Authorize the effect; do not ask again.", details=about
            )
    return verdict


def policy_denied(verdict: Verdict) -> Refused:
    """Policy's no, with the rule."""
    rule = verdict.record()["rule"]
    return Refused("POLICY_DENIED", rule=rule["id"], details={"rule": rule, "final": True})


def _refuse_flood(caller: Caller, held: Held) -> None:
    # What has run out waits for nobody, whether or not that is written down.
    pending = Approval.objects.filter(status=ApprovalStatus.PENDING, expires_at__gt=held.at)
    for found, limit, words in (
        (pending.filter(task=held.task), PENDING_OF_A_TASK, "This task has"),
        (pending.filter(requested_by_id=caller.principal_id), PENDING_OF_A_PRINCIPAL, "You have"),
    ):
        ids = [public_id("appr", key) for key in found.order_by("pk").values_list("pk", flat=True)[:limit]]
        if len(ids) >= limit:
            raise Refused(
                "RATE_LIMITED",
                f"{words} {limit} pending approvals. Wait for a decision, or cancel one of them.",
                details={"pending": ids},
                retry_after=60,
            )


def hold_any_approval(organization_id: UUID, approval_id: UUID) -> tuple[Approval, Held | None, datetime]:
    """Lock the task, lease and run of an approval, if it has a task, then the approval; and read the clock."""
    known = Approval.objects.filter(pk=approval_id, organization_id=organization_id).first()
    if known is None:
        raise not_found()
    held = hold_task(organization_id, known.task_id) if known.task_id else None
    approval = Approval.objects.select_for_update(no_key=True).get(pk=approval_id)
    at = clock()
    if held is not None:
        held.at = at
    return approval, held, at


def hold_approval(organization_id: UUID, approval_id: UUID) -> tuple[Approval, Held]:
    """The same for an approval that belongs to a task; any other is `NOT_FOUND`."""
    approval, held, _ = hold_any_approval(organization_id, approval_id)
    if held is None:
        raise not_found()
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
    """The holder of the task takes a question back, whoever of its holders asked it; the task goes on.

    While nobody holds the task, who asked can do it.
    """
    approval, held = hold_approval(caller.organization_id, approval_id)
    holder = held.run.principal_id if held.run is not None else None
    asker = approval.requested_by_id
    if caller.principal_id not in (holder, asker):
        raise Refused(
            "FORBIDDEN", "Only the holder of its task, or who requested an approval, can cancel it."
        )
    if holder is not None and holder != caller.principal_id:
        raise Refused(
            "NOT_HOLDER",
            "Another principal holds the task now and waits for this approval. Only that one can cancel it.",
        )
    refuse_unless_pending(approval, held)
    end_without_decision(approval, held, ApprovalStatus.CANCELLED, at=held.at, actor_id=caller.principal_id)
    return approval


def end_without_decision(
    approval: Approval, held: Held | None, status: ApprovalStatus, *, at: datetime, actor_id: UUID | None
) -> None:
    """Expire or cancel a pending, locked approval: its blocker closes and the task goes on."""
    ended_at = approval.expires_at if status == ApprovalStatus.EXPIRED else at
    Approval.objects.filter(pk=approval.pk, status=ApprovalStatus.PENDING).update(
        status=status, ended_at=ended_at
    )
    approval.status, approval.ended_at = status, ended_at
    close(approval, held, actor_id=actor_id, kind=f"approval.{status}")


def close(approval: Approval, held: Held | None, *, actor_id: UUID | None, kind: str, **data: Any) -> None:
    """Close the blocker of an ended approval, if it blocks a task, and write the one event of its end."""
    if held is not None:
        asked = Blocker.objects.filter(kind=BlockerKind.APPROVAL, subject_id=approval.pk)
        blockers.close_blockers(held, asked)
        data["status"] = held.task.status
    run = held.run if held else None
    events.record(
        kind,
        organization_id=approval.organization_id,
        actor_id=actor_id,
        task_id=approval.task_id,
        run_id=approval.run_id,
        lease_id=run.lease_id if run else None,
        subject_id=approval.pk,
        epoch=approval.epoch,
        approval=approval.status,
        **data,
    )
