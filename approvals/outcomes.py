"""What came of effects: told by their maker, found out by a human, or unknown because the run ended."""

from uuid import UUID

from django.db.models import F

from coordination.callers import Caller
from coordination.locks import Held, clock, hold_task
from coordination.models import Run, Task
from titen.api.ids import public_id
from titen.errors import Refused, not_found

from .decisions import require_human
from .ledger import record_event
from .models import Effect, EffectReport, EffectStatus, Kind
from .transitions import EFFECT

# The outcome is not known yet, or not any more.
OPEN = (EffectStatus.AUTHORIZED, EffectStatus.UNKNOWN)
# What a human finds out.
FOUND_OUT = (EffectStatus.SUCCEEDED, EffectStatus.FAILED, EffectStatus.COMPENSATED)


def report(caller: Caller, effect_id: UUID, *, outcome: EffectStatus, note: str = "") -> Effect:
    """The maker of an effect says what came of it.

    Also after it lost the lease: then the effect is marked `late`, and nothing but the effect moves.
    """
    effect, held = _hold(caller.organization_id, effect_id)
    if effect.principal_id != caller.principal_id:
        raise Refused("FORBIDDEN", "Only who made an effect reports its outcome. A human can reconcile it.")
    return _move(effect, held, outcome, caller, note=note, late=_is_late(effect, held))


def reconcile(caller: Caller, effect_id: UUID, *, outcome: EffectStatus, note: str) -> Effect:
    """A human has looked and says what came of an effect, with a note for whoever asks later."""
    require_human(caller)
    effect, held = _hold(caller.organization_id, effect_id)
    return _move(effect, held, outcome, caller, note=note)


def run_ended(run_ids: list[UUID]) -> None:
    """The effects of these runs that have no outcome are unknown now. Their tasks are locked."""
    left = Effect.objects.select_for_update(no_key=True).filter(
        task_id__in=Run.objects.filter(pk__in=run_ids).values("task_id"),
        run_id__in=run_ids,
        status=EffectStatus.AUTHORIZED,
    )
    found = list(left.order_by("pk"))
    Effect.objects.filter(pk__in=[effect.pk for effect in found]).update(
        status=EffectStatus.UNKNOWN, outcome_at=clock()
    )
    for effect in found:
        effect.status = EffectStatus.UNKNOWN
        record_event("effect.unknown", effect, None)


def _hold(organization_id: UUID, effect_id: UUID) -> tuple[Effect, Held | None]:
    """Lock an effect, after its task."""
    known = Effect.objects.filter(pk=effect_id, organization_id=organization_id).first()
    if known is None:
        raise not_found()
    held = hold_task(organization_id, known.task_id) if known.task_id else None
    effect = (
        Effect.objects.select_for_update(no_key=True, of=("self",)).select_related("lease").get(pk=effect_id)
    )
    if held is not None:
        held.at = clock()
    return effect, held


def _is_late(effect: Effect, held: Held | None) -> bool:
    """True when the lease of the effect is over."""
    if held is None:
        return effect.lease.ended_at is not None or effect.lease.expires_at <= clock()
    return held.lease is None or held.lease.pk != effect.lease_id or not held.lease_is_live


def _move(
    effect: Effect,
    held: Held | None,
    outcome: EffectStatus,
    caller: Caller,
    *,
    note: str,
    late: bool = False,
) -> Effect:
    """Move a locked effect, and keep the report beside those before it."""
    was = effect.status
    if not EFFECT[outcome].allows(was):
        raise Refused(
            "CONFLICT",
            object="effect",
            state=was,
            details={"state": was, "allowed": EFFECT.allowed_in(was)},
        )
    at = clock()
    Effect.objects.filter(pk=effect.pk).update(status=outcome, outcome_at=at)
    effect.status, effect.outcome_at = outcome, at
    report = EffectReport.objects.create(
        effect=effect,
        reported_by_id=caller.principal_id,
        was=was,
        outcome=outcome,
        note=note,
        late=late,
        created_at=at,
    )
    if held is not None:
        _count(effect, held, was)
    record_event(
        f"effect.{outcome}",
        effect,
        caller.principal_id,
        was=was,
        late=late,
        report_id=public_id("rpt", report.pk),
    )
    return effect


def _count(effect: Effect, held: Held, was: str) -> None:
    """Keep the counters of the task's row true: what has no outcome, and what holds up completion."""
    reported = was == EffectStatus.AUTHORIZED and held.run is not None and held.run.pk == effect.run_id
    closed = was in OPEN and effect.status not in OPEN and Kind(effect.kind).holds_up
    Task.objects.filter(pk=held.task.pk).update(
        unreported_effects=F("unreported_effects") - int(reported),
        open_effects=F("open_effects") - int(closed),
    )
