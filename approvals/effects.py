"""Effects are authorized before they happen, in one transaction with all that they depend on."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import F

from coordination import standing
from coordination.callers import Caller
from coordination.comments import refuse_unless_holder
from coordination.locks import clock, hold_able, hold_task
from coordination.models import Lease, Principal, Run, Task
from coordination.tasks import refuse_unless
from titen.api.ids import public_id
from titen.errors import Refused, invalid, not_found

from . import grants, policy
from .actions import Action
from .ledger import Attempt, Ground, record_event, write, write_refusal
from .models import Approval, ApprovalStatus, Decision, Effect, EffectStatus, Kind
from .requests import policy_denied

VERB = "authorize"

# What to do about a key that was used for the same action, by what came of it.
_OF_A_USED_KEY = {
    EffectStatus.AUTHORIZED: "Report its outcome; authorize another attempt with a new effect_key.",
    EffectStatus.UNKNOWN: "Find out whether it happened. Then its maker reports the outcome or a human reconciles it:"
    " if it succeeded, this request answers that it is done.",
    EffectStatus.FAILED: "It did not happen. Authorize another attempt with a new effect_key.",
    EffectStatus.COMPENSATED: "It was undone. Authorize another attempt with a new effect_key.",
}
_OF_ANOTHER_ACTION = "Authorize a different action with a new effect_key; to repeat the earlier one, send it exactly as it was."


def authorize(
    caller: Caller,
    *,
    epoch: int,
    action: Action,
    effect_key: str,
    run_id: UUID | None = None,
    lease_id: UUID | None = None,
    approval_id: UUID | None = None,
) -> Effect:
    """Let one effect happen now, and record it before it does.

    Only if the lease is live and certain, the epoch current and the run not waiting, and policy allows it or
    a grant for exactly this action exists for the task: that is used up. Everything is locked, in the order
    task, lease, run, approvals, before the clock is read that judges all of it. A refusal has its own code
    and is recorded in a transaction of its own; it leaves the key free.
    """
    hold_able(caller)
    ground = _hold(caller.organization_id, run_id, lease_id)
    approvals = grants.hold_all(ground.task_id, action.digest) if ground.task_id else []
    at = clock()
    verdict = policy.judge(Principal.objects.get(pk=caller.principal_id), action)
    attempt = Attempt(caller, ground, epoch, action, effect_key, approval_id, verdict)
    try:
        _refuse_unless_it_stands(attempt, at)
        done = _done_already(attempt)
        if done is not None:
            return done
        grant = _judge(attempt, approvals, at)
    except Refused as refused:
        # The row of the attempt says more than the trace.
        refused.trace = None
        refused.afterwards = partial(write_refusal, attempt, refused.code)
        raise
    effect = write(attempt, EffectStatus.AUTHORIZED, at=at, approval=grant)
    if ground.task_id is not None:
        Task.objects.filter(pk=ground.task_id).update(
            unreported_effects=F("unreported_effects") + 1,
            open_effects=F("open_effects") + int(Kind(effect.kind).holds_up),
            unused_grants=F("unused_grants") - int(grant is not None),
        )
    if grant is not None:
        record_event("approval.consumed", effect, caller.principal_id, subject_id=grant.pk)
    record_event("effect.authorized", effect, caller.principal_id)
    return effect


def _hold(organization_id: UUID, run_id: UUID | None, lease_id: UUID | None) -> Ground:
    """Lock what a run or a lease names. `NOT_FOUND` for what the organization has not."""
    if (run_id is None) == (lease_id is None):
        raise invalid("run_id", "send either this or lease_id.")
    runs = Run.objects.select_related("lease").filter(organization_id=organization_id)
    named: dict[str, Any] = {"pk": run_id} if lease_id is None else {"lease_id": lease_id}
    run = runs.filter(**named).first()
    if run is not None:
        # Its own lease, which may have ended: that of the task's open run is locked with the task.
        return Ground(run.lease, run, hold_task(organization_id, run.task_id, for_holder=True))
    lease = None
    if lease_id is not None:
        known = Lease.objects.select_for_update(no_key=True, of=("self",)).select_related("resource")
        lease = known.filter(pk=lease_id, organization_id=organization_id).first()
    if lease is None:
        raise not_found()
    return Ground(lease)


def _judge(attempt: Attempt, approvals: list[Approval], at: datetime) -> Approval | None:
    """The grant that the attempt uses up, None where it needs none; or its refusal, the first that is true."""
    caller, ground, verdict = attempt.caller, attempt.ground, attempt.verdict
    if verdict.decision == Decision.DENY:
        raise policy_denied(verdict)
    no = grants.denial(
        organization_id=caller.organization_id,
        principal_id=caller.principal_id,
        task=ground.held.task if ground.held else None,
        digest=attempt.action.digest,
    )
    if no is not None:
        raise grants.denied(no)
    if verdict.decision == Decision.ALLOW:
        return None
    grant = _grant(attempt, approvals, at)
    if not grants.consume(grant, at):
        raise Refused("ALREADY_CONSUMED", details={"approval_id": public_id("appr", grant.pk)})
    return grant


def _refuse_unless_it_stands(attempt: Attempt, at: datetime) -> None:
    caller, ground, epoch = attempt.caller, attempt.ground, attempt.epoch
    if ground.held is not None and ground.run is not None:
        ground.held.at = at
        refuse_unless_holder(ground.held, caller, ground.run.pk, epoch, VERB)
        refuse_unless(ground.held.task, VERB)
        return
    lease = ground.lease
    row = standing.of_lease(lease, at)
    mine = lease.principal_id == caller.principal_id and lease.epoch == epoch
    if mine and lease.ended_at is None and not row["expired"] and not row["jeopardy"]:
        return
    row |= {"run_id": lease.pk, "run_status": "", "task_status": "", "caller_id": caller.principal_id}
    raise standing.judge(row, epoch, VERB, rules=standing.OF_A_LEASE)


def _done_already(attempt: Attempt) -> Effect | None:
    """The effect that succeeded under this key for exactly this action; None for a new key, else `CONFLICT`."""
    used = Effect.objects.filter(
        resource_id=attempt.ground.lease.resource_id, effect_key=attempt.effect_key
    ).exclude(status=EffectStatus.REFUSED)
    effect = used.first()
    if effect is None:
        return None
    same = effect.action_digest == attempt.action.digest
    if same and effect.status == EffectStatus.SUCCEEDED:
        return effect
    details = {"effect_id": public_id("eff", effect.pk), "state": effect.status}
    if not same:
        details |= {"used_for": effect.action_digest, "sent": attempt.action.digest}
    what = "this action" if same else "another action"
    next_step = _OF_A_USED_KEY[EffectStatus(effect.status)] if same else _OF_ANOTHER_ACTION
    raise Refused(
        "CONFLICT",
        f"This effect_key was used for {what}, and that effect is {effect.status}. {next_step}",
        details=details,
    )


def _grant(attempt: Attempt, approvals: list[Approval], at: datetime) -> Approval:
    """The grant that was named; without a name any that can be used."""
    held = attempt.ground.held
    if held is None:
        raise Refused(
            "APPROVAL_REQUIRED",
            "A human must approve this first, and approvals belong to tasks. Do it under a run.",
        )
    if attempt.approval_id is None:
        usable = [each for each in approvals if grants.is_usable(each, at)]
        if not usable:
            raise _why_none([each for each in approvals if each.round == held.task.round], at)
        objections = [_objection(attempt, each) for each in usable]
        if None not in objections:
            raise objections[-1] or Refused("APPROVAL_REQUIRED")
        return usable[objections.index(None)]
    named = next((each for each in approvals if each.pk == attempt.approval_id), None)
    if named is None:
        raise _not_for_this(attempt, attempt.approval_id)
    refused = grants.refusal_of(named, at) or _objection(attempt, named)
    if refused is not None:
        raise refused
    return named


def _objection(attempt: Attempt, grant: Approval) -> Refused | None:
    return grants.objection(grant, attempt.verdict, attempt.caller.principal_id)


def _not_for_this(attempt: Attempt, approval_id: UUID) -> Refused:
    other = attempt.ground.approval(approval_id)
    if other is None:
        return not_found()
    return Refused(
        "DIGEST_MISMATCH",
        "This approval is for another action. Send the action exactly as it was approved, or request a new one.",
        details={
            "approval_id": public_id("appr", approval_id),
            "approved": other.action_digest,
            "sent": attempt.action.digest,
        },
    )


def _why_none(approvals: list[Approval], at: datetime) -> Refused:
    """What the newest approval of the action says. One that was taken back, or a denial that is over, says nothing."""
    newest = approvals[-1] if approvals else None
    if newest is None or newest.status == ApprovalStatus.CANCELLED or newest.granted is False:
        return Refused("APPROVAL_REQUIRED")
    return grants.refusal_of(newest, at) or Refused("APPROVAL_REQUIRED")
