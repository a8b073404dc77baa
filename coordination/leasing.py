"""Leases on resources other than tasks: acquire, renew, release, declare jeopardy, revoke.

A resource is named by its type and id, which mean nothing here. Tasks have verbs of their own: their
leases belong to runs.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any
from uuid import UUID

from titen.errors import Refused, invalid, not_found

from . import events
from . import leasing_statements as sql
from .callers import Caller
from .claims import check_ttl
from .comments import refuse_unless_holder
from .database import Row, fetch, fetch_all
from .locks import hold_task
from .models import Lease, LeaseEnd, Principal, Run
from .takeovers import take_over
from .times import stamp

TASK, SECTION = "task", "section"
BATCH_LIMIT = 50

Name = tuple[str, str]


def acquire(
    caller: Caller, wanted: Sequence[Name], *, ttl_seconds: int | None = None, purpose: str = ""
) -> list[Row]:
    """Lease all the `wanted` (type, id), or none; a lease row each, in the same order.

    What the caller holds already gets a new lease and a higher epoch, and the old id is dead. `CONFLICT`
    names what somebody else holds and until when, and neither holder nor purpose.
    """
    check_ttl(ttl_seconds)
    for resource_type, _ in wanted:
        if resource_type in (TASK, SECTION):
            raise invalid("resource_type", f"'{resource_type}' is reserved: it has doors of its own.")
    if len(set(wanted)) < len(wanted):
        raise invalid("resources", "names a resource twice.")
    resources, default_ttl = lock(caller, wanted)
    rows = fetch_all(
        sql.grant(section=False),
        {
            "organization": caller.organization_id,
            "principal": caller.principal_id,
            "resources": resources,
            "ttl": ttl_seconds or default_ttl,
            "purpose": purpose,
        },
    )
    busy = [row for row in rows if row["busy_until"] is not None]
    if busy:
        raise _taken(busy, alone=len(wanted) == 1)
    return sorted(rows, key=lambda row: wanted.index((row["resource_type"], row["resource_id"])))


def lock(caller: Caller, wanted: Sequence[Name]) -> tuple[list[UUID], int]:
    """Lock the resources in the order of their ids, and make those that are new.

    Returns their ids and the organization's default TTL. `UNAUTHENTICATED` for a principal that was
    disabled meanwhile.
    """
    ordered = sorted(wanted)
    params: dict[str, Any] = {
        "organization": caller.organization_id,
        "principal": caller.principal_id,
        "types": [resource_type for resource_type, _ in ordered],
        "ids": [resource_id for _, resource_id in ordered],
    }
    found = fetch_all(sql.LOCK, params)
    if not found:
        fetch_all(sql.MAKE, params)
        found = fetch_all(sql.LOCK, params)
    if not found:
        raise Refused("UNAUTHENTICATED")
    return [row["id"] for row in found], found[0]["lease_ttl_seconds"]


def _taken(busy: list[Row], *, alone: bool) -> Refused:
    until = max(row["busy_until"] for row in busy)
    seconds = max(ceil((until - busy[0]["at"]).total_seconds()), 1)
    message = f"Resource is leased by another principal until {stamp(until)}."
    details: dict[str, Any] = {"expires_at": stamp(until)}
    if not alone:
        message = (
            f"{len(busy)} of the resources {'is' if len(busy) == 1 else 'are'} leased by another principal,"
            f" the last until {stamp(until)}."
        )
        details["resources"] = [
            {
                "resource_type": row["resource_type"],
                "resource_id": row["resource_id"],
                "expires_at": stamp(row["busy_until"]),
            }
            for row in busy
        ]
    return Refused("CONFLICT", message, retry_after=seconds, details=details)


def renew(caller: Caller, lease_id: UUID, *, ttl_seconds: int | None = None) -> Row:
    """Renew one's own live lease: same id, same epoch, and never an earlier end. It ends jeopardy."""
    return _mine(sql.RENEW, caller, lease_id, ttl=check_ttl(ttl_seconds))


def release(caller: Caller, lease_id: UUID) -> Row:
    """End one's own live lease; the resource is free at once."""
    return _mine(sql.RELEASE, caller, lease_id)


def declare_jeopardy(caller: Caller, lease_id: UUID) -> Row:
    """The holder is not sure any more that it may act. A renewal ends that."""
    return _mine(sql.JEOPARDY, caller, lease_id)


def declare_jeopardy_of_run(caller: Caller, run_id: UUID, *, epoch: int) -> Lease:
    """The same for the lease of a run. Until the next heartbeat nothing but keeping and giving up is allowed."""
    run = Run.objects.filter(pk=run_id, organization_id=caller.organization_id).first()
    if run is None:
        raise not_found()
    held = hold_task(caller.organization_id, run.task_id, for_holder=True)
    refuse_unless_holder(held, caller, run_id, epoch, "declare_jeopardy")
    Lease.objects.filter(pk=run.lease_id, jeopardy_declared_at=None).update(jeopardy_declared_at=held.at)
    events.record(
        "lease.jeopardy_declared",
        organization_id=caller.organization_id,
        actor_id=caller.principal_id,
        task_id=run.task_id,
        run_id=run_id,
        lease_id=run.lease_id,
        epoch=epoch,
    )
    return Lease.objects.select_related("resource", "principal").get(pk=run.lease_id)


def _mine(statement: str, caller: Caller, lease_id: UUID, **more: Any) -> Row:
    params = {
        "lease": lease_id,
        "organization": caller.organization_id,
        "principal": caller.principal_id,
        **more,
    }
    row = fetch(statement, params)
    if row is not None:
        return row
    over = fetch(sql.OVER, params)
    if over is None:
        raise not_found()
    raise _over(over["reason"])


def _over(reason: str) -> Refused:
    after = {
        LeaseEnd.RELEASED: "Nothing is left to do.",
        LeaseEnd.SUPERSEDED: "You acquired the resource again: use the id that this answered.",
    }
    step = after.get(LeaseEnd(reason), "Acquire the resource again; use the id that this answers.")
    return Refused("NOT_FOUND", f"This lease is over ({reason}). {step}", details={"reason": reason})


def revoke(caller: Caller, lease_id: UUID, *, reason: str) -> Lease:
    """An admin's or operator's word ends a live lease. A task goes back to the queue, not to its last holder.

    `NOT_FOUND` for one that is over already; `details.reason` says how it ended.
    """
    lease = (
        Lease.objects.filter(pk=lease_id, organization_id=caller.organization_id)
        .select_related("resource", "resource__task")
        .first()
    )
    if lease is None:
        raise not_found()
    if lease.resource.resource_type == TASK:
        _revoke_tasks(caller, lease, reason)
    else:
        ended = fetch(
            sql.REVOKE,
            {
                "lease": lease_id,
                "actor": caller.principal_id,
                "actor_name": caller.name,
                "note": reason,
            },
        )
        if ended is None:
            raise _over_already(lease)
    return Lease.objects.select_related("resource", "principal").get(pk=lease_id)


def _revoke_tasks(caller: Caller, lease: Lease, reason: str) -> None:
    held = hold_task(caller.organization_id, lease.resource.task.pk)
    if held.lease is None or held.lease.pk != lease.pk:
        raise _over_already(lease)
    take_over(caller, held.task.pk, to=None, reason=reason, epoch=lease.epoch)
    Lease.objects.filter(pk=lease.pk).update(end_note=reason)


def _over_already(lease: Lease) -> Refused:
    lease.refresh_from_db()
    reason = lease.end_reason or "expired"
    return Refused("NOT_FOUND", f"This lease is over ({reason}).", details={"reason": reason})


def revoke_all_of(principal: Principal, *, actor_id: UUID | None) -> int:
    """Take back what a principal that loses its access holds besides tasks; how many leases."""
    return len(
        fetch_all(
            sql.REVOKE_ALL_OF,
            {
                "principal": principal.pk,
                "organization": principal.organization_id,
                "actor": actor_id,
                "actor_name": "system",
                "note": "The principal lost its access.",
            },
        )
    )


def sweep() -> int:
    """Write down the leases that have run out, batch by batch; how many. Nothing depends on it."""
    total = 0
    while count := len(fetch_all(sql.SWEEP, {})):
        total += count
    return total
