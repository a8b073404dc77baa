"""Handoffs: who may see one, and every end but its acceptance."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from titen.api.ids import public_id
from titen.errors import Refused, not_found

from . import events
from .callers import Caller
from .database import fetch_all
from .locks import clock
from .models import Handoff, HandoffStatus, Principal, Run, Task
from .statements import logged
from .transitions import HANDOFF

BATCH = 500

_PEOPLE = ("from_principal", "to_principal")


def find(caller: Caller, handoff_id: UUID) -> Handoff:
    """A handoff that the caller may see: its sender, its target, and humans of the organization."""
    found = (
        Handoff.objects.filter(pk=handoff_id, organization_id=caller.organization_id)
        .select_related(*_PEOPLE)
        .first()
    )
    if found is None:
        raise not_found()
    if not caller.is_human and caller.principal_id not in (found.from_principal_id, found.to_principal_id):
        raise not_found()
    return found


def find_for_target(caller: Caller, handoff_id: UUID) -> Handoff:
    """The same, for what only the target may do: its sender is told so."""
    found = find(caller, handoff_id)
    if found.to_principal_id != caller.principal_id:
        raise Refused("VALIDATION_ERROR", "Only the target principal can resolve a handoff.")
    return found


def status_at(handoff: Handoff, at: datetime) -> str:
    """Its state at a moment of the database's clock, whether or not its expiry was written down."""
    over = handoff.status == HandoffStatus.PENDING and handoff.expires_at <= at
    return HandoffStatus.EXPIRED if over else handoff.status


def hold(handoff_id: UUID, move: str) -> tuple[Handoff, datetime]:
    """Lock a handoff from which `move` may start, and read the clock. Its task is locked before, if need be.

    `NOT_FOUND` for one that has ended; `details.state` says how.
    """
    handoff = (
        Handoff.objects.select_for_update(no_key=True, of=("self",))
        .select_related(*_PEOPLE)
        .get(pk=handoff_id)
    )
    at = clock()
    state = status_at(handoff, at)
    if not HANDOFF[move].allows(state):
        raise Refused(
            "NOT_FOUND",
            f"This handoff is {state}; only a pending one can be moved. Nothing is left to do.",
            details={"state": state},
        )
    return handoff, at


def reject(caller: Caller, handoff_id: UUID, *, reason: str = "") -> Handoff:
    """The target says no. The task, if any, stays with whoever has it."""
    handoff, at = hold(find_for_target(caller, handoff_id).pk, "reject")
    return end(handoff, HandoffStatus.REJECTED, at=at, actor_id=caller.principal_id, reason=reason)


def withdraw(caller: Caller, handoff_id: UUID, *, reason: str = "") -> Handoff:
    """The sender takes its offer back."""
    if find(caller, handoff_id).from_principal_id != caller.principal_id:
        raise Refused("VALIDATION_ERROR", "Only the sending principal can withdraw a handoff.")
    handoff, at = hold(handoff_id, "withdraw")
    return end(handoff, HandoffStatus.WITHDRAWN, at=at, actor_id=caller.principal_id, reason=reason)


def end(
    handoff: Handoff,
    status: HandoffStatus,
    *,
    at: datetime,
    actor_id: UUID | None,
    reason: str = "",
    run: Run | None = None,
) -> Handoff:
    """End a locked, pending handoff. `run` is the receiver's, of an accepted task."""
    handoff.status, handoff.ended_at, handoff.reason = status, at, reason
    handoff.accepted_run_id = run.pk if run else None
    handoff.save(update_fields=["status", "ended_at", "reason", "accepted_run"])
    more = {"accepted_run_id": public_id("run", run.pk)} if run else {}
    record(f"handoff.{status}", handoff, actor_id=actor_id, **more)
    return handoff


def record(kind: str, handoff: Handoff, *, actor_id: UUID | None, **data: Any) -> None:
    """Write one event about a handoff."""
    events.record(
        kind,
        organization_id=handoff.organization_id,
        actor_id=actor_id,
        task_id=handoff.task_id,
        run_id=handoff.run_id,
        subject_id=handoff.pk,
        epoch=handoff.epoch,
        to=public_id("agent", handoff.to_principal_id),
        **data,
    )


def withdraw_offers_of(task: Task, *, actor_id: UUID) -> None:
    """The locked task was cancelled or taken over: it is no longer its holder's to offer."""
    _end_all(Q(task=task), HandoffStatus.WITHDRAWN, actor_id)


def end_offers_with(principal: Principal, *, actor_id: UUID | None) -> None:
    """Somebody lost their access: what they offered is withdrawn, what was offered to them expires."""
    _end_all(Q(from_principal=principal), HandoffStatus.WITHDRAWN, actor_id)
    _end_all(Q(to_principal=principal), HandoffStatus.EXPIRED, actor_id)


def _end_all(which: Q, status: HandoffStatus, actor_id: UUID | None) -> None:
    pending = Handoff.objects.filter(status=HandoffStatus.PENDING)
    for pk in pending.filter(which).order_by("pk").values_list("pk", flat=True):
        handoff = pending.select_for_update(no_key=True).filter(pk=pk).first()
        at = clock()
        if handoff is None:
            continue
        if handoff.expires_at <= at:
            expire(handoff, at=handoff.expires_at)
        else:
            end(handoff, status, at=at, actor_id=actor_id)


def expire(handoff: Handoff, *, at: datetime) -> None:
    """Write down that nobody can accept a locked, pending handoff any more, from `at` on."""
    end(handoff, HandoffStatus.EXPIRED, at=at, actor_id=None)


def expire_gone(handoff_id: UUID) -> None:
    """What it offers went to somebody else, or is over; who tried to accept it has been told so."""
    handoff = (
        Handoff.objects.select_for_update(no_key=True)
        .filter(pk=handoff_id, status=HandoffStatus.PENDING)
        .first()
    )
    if handoff is not None:
        expire(handoff, at=min(clock(), handoff.expires_at))


# Whatever is locked is being ended by a move that judges the same clock itself, so it is passed over.
_EXPIRE = f"""WITH due AS MATERIALIZED (
    SELECT h.id FROM coordination_handoff h WHERE h.status = 'pending' AND h.expires_at <= clock_timestamp()
    ORDER BY h.id LIMIT {BATCH} FOR NO KEY UPDATE SKIP LOCKED
), ended AS (
    UPDATE coordination_handoff h SET status = 'expired', ended_at = h.expires_at FROM due WHERE h.id = due.id
    RETURNING h.*
), {
    logged(
        "written",
        '''
    SELECT organization_id, 'handoff.expired', NULL::uuid, task_id, run_id, NULL::uuid, id, epoch,
        jsonb_build_object('to', 'agent_' || replace(to_principal_id::text, '-', ''))
    FROM ended ORDER BY id''',
    )
}
SELECT id FROM ended"""


def expire_due() -> int:
    """Write down every handoff whose time is over; how many. What uses one judges its time itself."""
    total = 0
    while count := len(fetch_all(_EXPIRE, {})):
        total += count
    return total


def that_led_here(task: Task) -> Handoff | None:
    """The accepted handoff by which the task's open run began, if it did."""
    return (
        Handoff.objects.filter(task=task, accepted_run__isnull=False, accepted_run__ended_at=None)
        .select_related("from_principal")
        .first()
    )
