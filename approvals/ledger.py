"""Keeping effects: one row and one event for each attempt, authorized or refused."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from coordination import events
from coordination.callers import Caller
from coordination.database import fetch
from coordination.locks import Held, clock
from coordination.models import Lease, Run
from coordination.models.fields import ClockNow
from coordination.shapes import size_of
from titen.api.ids import maybe_id

from .actions import Action
from .models import Approval, Effect, EffectStatus
from .policy import Verdict

# The very same refusal is kept once in so long.
REPEATED_WITHIN = timedelta(minutes=1)
# Longer arguments of what was refused are not kept: their digest is.
KEPT_OF_A_REFUSAL = 16 * 1024


@dataclass(frozen=True)
class Ground:
    """The lease that an effect stands on, locked; with its task and run, unless it is a lease on anything else."""

    lease: Lease
    run: Run | None = None
    held: Held | None = None

    @property
    def task_id(self) -> UUID | None:
        """The task that the lease is for."""
        return self.run.task_id if self.run else None

    def approval(self, approval_id: UUID) -> Approval | None:
        """An approval of the same task."""
        found = Approval.objects.filter(pk=approval_id).first()
        return found if found is not None and self.run is not None and found.task_id == self.task_id else None


@dataclass(frozen=True)
class Attempt:
    """What an agent sent to have an effect authorized, where it would stand, and what policy says of it."""

    caller: Caller
    ground: Ground
    epoch: int
    action: Action
    effect_key: str
    approval_id: UUID | None
    verdict: Verdict


def write(
    attempt: Attempt,
    status: EffectStatus,
    *,
    at: datetime,
    code: str = "",
    approval: Approval | None = None,
) -> Effect:
    """The row of an attempt."""
    ground, action = attempt.ground, attempt.action.content
    if status == EffectStatus.REFUSED and size_of(action) > KEPT_OF_A_REFUSAL:
        action["arguments"] = None
    return Effect.objects.create(
        organization_id=attempt.caller.organization_id,
        resource_id=ground.lease.resource_id,
        lease=ground.lease,
        task_id=ground.task_id,
        run=ground.run,
        principal_id=attempt.caller.principal_id,
        epoch=attempt.epoch,
        effect_key=attempt.effect_key,
        action=action,
        action_digest=attempt.action.digest,
        kind=attempt.verdict.kind,
        verdict=attempt.verdict.record(),
        approval=approval,
        status=status,
        code=code,
        created_at=at,
    )


def write_refusal(attempt: Attempt, code: str) -> None:
    """Keep what was refused. The very same refusal again within a minute adds nothing."""
    what = f"refuses {attempt.caller.principal_id} {attempt.effect_key} {attempt.action.digest} {code}"
    # The same attempts at once are refused at once, and look for each other's row.
    fetch("SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))::text", {"name": what})
    same = Effect.objects.filter(
        lease=attempt.ground.lease,
        status=EffectStatus.REFUSED,
        principal_id=attempt.caller.principal_id,
        effect_key=attempt.effect_key,
        action_digest=attempt.action.digest,
        code=code,
        created_at__gt=ClockNow() - REPEATED_WITHIN,
    )
    if same.exists():
        return
    approval = attempt.ground.approval(attempt.approval_id) if attempt.approval_id else None
    effect = write(attempt, EffectStatus.REFUSED, code=code, approval=approval, at=clock())
    record_event("effect.refused", effect, attempt.caller.principal_id, code=code)


def record_event(
    kind: str, effect: Effect, actor_id: UUID | None, subject_id: UUID | None = None, **data: Any
) -> None:
    """Write an event about an effect (or about `subject_id`)."""
    rule = effect.verdict["rule"]
    events.record(
        kind,
        organization_id=effect.organization_id,
        actor_id=actor_id,
        task_id=effect.task_id,
        run_id=effect.run_id,
        lease_id=effect.lease_id,
        subject_id=subject_id or effect.pk,
        epoch=effect.epoch,
        effect=effect.status,
        action_kind=effect.kind,
        action_digest=effect.action_digest,
        approval_id=maybe_id("appr", effect.approval_id),
        rule_id=rule["id"] if rule else None,
        **data,
    )
