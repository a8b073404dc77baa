"""Accepting a handoff, and with it the task that it offers."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings

from titen.errors import Refused, invalid

from . import claims, handoffs
from .callers import Caller
from .database import Row, fetch
from .leases import end_lease, grant
from .locks import Held, hold_able, hold_task
from .models import (
    Blocker,
    BlockerKind,
    GrantReason,
    Handoff,
    HandoffStatus,
    LeaseEnd,
    Principal,
    PrincipalKind,
    Run,
    RunStatus,
    TaskStatus,
)
from .statements import CLAIM_COLUMNS
from .sweeping import sweep_batch
from .times import stamp
from .transitions import TASK

_CLAIMED = f"""SELECT m.status AS task_status, r.organization_id, r.principal_id AS caller_id, {CLAIM_COLUMNS}
FROM coordination_run r JOIN coordination_task m ON m.id = r.task_id
JOIN coordination_lease l ON l.id = r.lease_id JOIN coordination_capabilityprofile f ON f.id = m.profile_id
WHERE r.id = %(run)s"""


def accept(caller: Caller, handoff_id: UUID, *, ttl_seconds: int | None = None) -> tuple[Handoff, Row | None]:
    """The target takes what it is offered; with a task it gets a new run and lease, and the row of a claim.

    Refused, and still pending: an agent without the task's capabilities or beyond its limits
    (`NOT_CLAIMABLE`), a task that waits for a dependency or a time, one that is kept for a third
    principal (`RESERVED`), one without attempts left (`CONFLICT`). Where somebody else has the task by
    now, or it is over: `CONFLICT`, and the handoff has expired.
    """
    claims.check_ttl(ttl_seconds)
    known = handoffs.find_for_target(caller, handoff_id)
    if known.task_id is None:
        if ttl_seconds is not None:
            raise invalid("ttl_seconds", "is for a lease, and this handoff offers no task.")
        handoff, at = handoffs.hold(handoff_id, "accept")
        return handoffs.end(handoff, HandoffStatus.ACCEPTED, at=at, actor_id=caller.principal_id), None
    if not caller.is_human:
        caller.require("tasks:claim")
    receiver = _hold_receiver(caller)
    held = hold_task(caller.organization_id, known.task_id)
    handoff, at = handoffs.hold(handoff_id, "accept")
    _refuse_gone(held, handoff)
    if held.run is None:
        _refuse_unready(held, handoff, receiver)
    else:
        end_lease(
            held,
            LeaseEnd.HANDED_OFF,
            RunStatus.HANDED_OFF,
            event="task.handed_off",
            status=held.task.status,
            actor_id=caller.principal_id,
        )
    # The offering run has ended by now, so that it is not counted beside the one that follows it.
    if receiver.kind != PrincipalKind.HUMAN:
        _refuse_unfit(held, receiver)
    run = _grant(held, receiver, ttl_seconds)
    handoffs.end(handoff, HandoffStatus.ACCEPTED, at=at, actor_id=caller.principal_id, run=run)
    return handoff, fetch(_CLAIMED, {"run": run.pk})


def _hold_receiver(caller: Caller) -> Principal:
    """Nobody disables the receiver until we have committed; what limits its runs stands still too."""
    hold_able(caller)
    claims.hold_limits(caller.organization_id, caller.principal_id)
    return Principal.objects.select_related("organization").get(pk=caller.principal_id)


def _refuse_gone(held: Held, handoff: Handoff) -> None:
    """Another run holds the task, or it is over: the offer is worth nothing any more, and that is kept."""
    task = held.task
    if TASK["hand_off"].allows(task.status) and (held.run is None or held.run.pk == handoff.run_id):
        return
    why = f"is {task.status}" if held.run is None else "has another holder by now"
    refused = Refused(
        "CONFLICT",
        f"The task {why}, and the handoff has expired. Claim other work.",
        details={"state": task.status, "handoff": HandoffStatus.EXPIRED},
    )
    refused.afterwards = partial(handoffs.expire_gone, handoff.pk)
    raise refused


def _refuse_unready(held: Held, handoff: Handoff, receiver: Principal) -> None:
    """The offering run is over and nobody has the task: backoff and priority are passed over, nothing else."""
    task = held.task
    kept_for = task.reserved_for_id if task.reserved_until and task.reserved_until > held.at else None
    # What is kept for the sender is the sender's to pass on.
    if task.status == TaskStatus.TODO and kept_for not in (
        None,
        receiver.pk,
        handoff.from_principal_id,
    ):
        until = stamp(task.reserved_until)
        raise Refused("RESERVED", until=until, details={"until": until})
    waits = claims.waits_for(task, now=held.at, principal_id=receiver.pk)
    if any(wait["kind"] == BlockerKind.ATTEMPTS for wait in waits):
        raise Refused(
            "CONFLICT",
            "The task has no attempts left. Ask an operator to reopen it, then accept.",
            details={"state": task.status, "waits_for": waits},
        )
    _refuse_waiting(task.status, [wait for wait in waits if wait["kind"] in ("dependency", "not_before")])


def _refuse_waiting(state: str, waits: Sequence[Mapping[str, Any]]) -> None:
    if waits:
        raise Refused("NOT_CLAIMABLE", why=waits[0]["sentence"], details={"state": state, "waits_for": waits})


def _refuse_unfit(held: Held, receiver: Principal) -> None:
    """An agent needs the task's capabilities, and its limits hold as for a claim."""
    task = held.task
    _refuse_waiting(task.status, claims.lacking(task, receiver.capabilities))
    if not claims.admits(task, receiver.pk):
        # Runs of the dead may still be counted: they are written down first, as a claim does.
        sweep_batch(organization_id=task.organization_id)
        if not claims.admits(task, receiver.pk):
            _refuse_waiting(task.status, [claims.NOT_ADMITTED])


def _grant(held: Held, receiver: Principal, ttl_seconds: int | None) -> Run:
    task = held.task
    blocked = task.status == TaskStatus.BLOCKED
    ttl = ttl_seconds or task.lease_ttl_seconds or receiver.organization.lease_ttl_seconds
    if receiver.kind == PrincipalKind.HUMAN:
        ttl = settings.HUMAN_LEASE_TTL_SECONDS
    run = grant(task, receiver, because=GrantReason.HANDOFF, ttl_seconds=ttl, blocked=blocked)
    if blocked and Blocker.objects.filter(task=task, kind=BlockerKind.MANUAL, closed_at=None).exists():
        Run.objects.filter(pk=run.pk).update(pause_requested_at=held.at)
    return run
