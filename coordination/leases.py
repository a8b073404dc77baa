"""Granting, ending and renewing leases outside the hot verbs. The task is locked by the caller."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F

from . import events, participants
from .database import fetch_all
from .locks import Held, clock
from .models import (
    GrantReason,
    Lease,
    LeaseEnd,
    Principal,
    PrincipalKind,
    Resource,
    Run,
    RunStatus,
    Task,
    TaskStatus,
)


def grant(
    task: Task, principal: Principal, *, because: GrantReason, ttl_seconds: int, blocked: bool = False
) -> Run:
    """Give a principal a new lease and run on a task without an open run; the task goes in progress.

    A `blocked` task stays so: the run waits, and hears by its heartbeats what comes of the task's questions.
    """
    Resource.objects.filter(pk=task.resource_id).update(epoch=F("epoch") + 1)
    resource = Resource.objects.get(pk=task.resource_id)
    at = clock()
    lease = Lease.objects.create(
        organization_id=task.organization_id,
        resource=resource,
        principal=principal,
        epoch=resource.epoch,
        ttl_seconds=ttl_seconds,
        granted_because=because,
        previous_lease_id=resource.last_lease_id,
        granted_at=at,
        renewed_at=at,
        expires_at=at + timedelta(seconds=ttl_seconds),
    )
    Resource.objects.filter(pk=resource.pk).update(
        last_lease_id=lease.pk, previous_lease_id=resource.last_lease_id
    )
    run = Run.objects.create(
        organization_id=task.organization_id,
        task=task,
        profile_id=task.profile_id,
        principal=principal,
        lease=lease,
        number=task.run_count + 1,
        epoch=resource.epoch,
        status=RunStatus.WAITING if blocked else RunStatus.RUNNING,
        has_asked=blocked,
        started_at=at,
    )
    task.run_count += 1
    task.status = TaskStatus.BLOCKED if blocked else TaskStatus.IN_PROGRESS
    Task.objects.filter(pk=task.pk).update(
        status=task.status,
        run_count=task.run_count,
        reserved_for=None,
        reserved_until=None,
        avoided=None,
        avoided_until=None,
        backoff_until=None,
    )
    events.record(
        "task.claimed",
        organization_id=task.organization_id,
        actor_id=principal.pk,
        task_id=task.pk,
        run_id=run.pk,
        lease_id=lease.pk,
        epoch=lease.epoch,
        status=task.status,
        run=run.number,
        because=because,
    )
    return run


def end_lease(
    held: Held,
    reason: LeaseEnd,
    run_status: RunStatus,
    *,
    event: str,
    status: str,
    actor_id: UUID | None = None,
    **data: Any,
) -> None:
    """End the open run and its live lease together.

    `status` is how the task stands after the move, for the event; the caller moves the task.
    """
    run, lease = held.run, held.lease
    if run is None or lease is None:
        raise ValueError("the task has no open run")
    Lease.objects.filter(pk=lease.pk).update(ended_at=held.at, end_reason=reason)
    Run.objects.filter(pk=run.pk).update(status=run_status, ended_at=held.at)
    unreported = held.task.unreported_effects
    Task.objects.filter(pk=run.task_id).update(last_run_end=run_status, unreported_effects=0)
    run.status, run.ended_at = run_status, held.at
    held.task.last_run_end, held.task.unreported_effects = run_status, 0
    events.record(
        event,
        organization_id=run.organization_id,
        actor_id=actor_id,
        task_id=run.task_id,
        run_id=run.pk,
        lease_id=lease.pk,
        epoch=run.epoch,
        status=status,
        run=run.number,
        lease=reason,
        **data,
    )
    if unreported:
        participants.run_ended([run.pk])
    held.run = held.lease = None


# As long as a client takes to notice that its connection is gone, and to repeat its request.
KEPT_FOR_A_REPEAT = 10

_ANSWER_LOST = f"""
UPDATE coordination_lease l SET answer = 'lost',
    expires_at = least(l.expires_at, clock_timestamp() + interval '{KEPT_FOR_A_REPEAT} s')
WHERE l.id = ANY (%(leases)s::uuid[]) AND l.ended_at IS NULL AND l.renewal_count = 0 AND l.answer = ''
RETURNING l.id"""
_ANSWER_REPEATED = """
UPDATE coordination_lease l SET answer = 'repeated', expires_at = CASE l.answer WHEN 'lost'
    THEN greatest(l.expires_at, clock_timestamp() + l.ttl_seconds * interval '1 s') ELSE l.expires_at END
WHERE l.id = ANY (%(leases)s::uuid[]) AND l.ended_at IS NULL AND l.expires_at > clock_timestamp()
    AND l.answer <> 'repeated'
RETURNING l.id"""


def answer_lost(leases: list[UUID]) -> int:
    """The caller had hung up when these were granted: keep them for seconds only; how many that changed.

    Whoever has renewed a lease, or was given the answer again, knows of it: that lease stays as it is.
    A run under a lost lease ends `released`, which counts as no attempt.
    """
    return len(fetch_all(_ANSWER_LOST, {"leases": sorted(leases)}))


def answer_repeated(leases: list[UUID]) -> int:
    """The caller asks again and is given the stored answer: the leases in it last as long as it was promised."""
    return len(fetch_all(_ANSWER_REPEATED, {"leases": sorted(leases)}))


def renew_human(held: Held, principal_id: UUID) -> None:
    """A human's lease is renewed by each of their actions on its task."""
    run, lease = held.run, held.lease
    if run is None or lease is None or lease.principal_id != principal_id or not held.lease_is_live:
        return
    if lease.principal.kind == PrincipalKind.HUMAN:
        Lease.objects.filter(pk=lease.pk).update(
            renewed_at=held.at, expires_at=held.at + timedelta(seconds=settings.HUMAN_LEASE_TTL_SECONDS)
        )
