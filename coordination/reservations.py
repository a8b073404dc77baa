"""For whom a task is kept, and to whom it is not offered. Both end with their principal."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from . import events
from .callers import EVERYTHING
from .database import fetch
from .locks import clock, hold_task
from .models import Principal, Task
from .transitions import OPEN

# Nobody waits here: the task is locked already, and who disables a principal locks it before its tasks.
_HOLD = """
SELECT id FROM coordination_principal WHERE id = %(principal)s AND disabled_at IS NULL
FOR KEY SHARE SKIP LOCKED"""

# How long a principal can come for a task: until its last key ends, or while it is a member.
_UNTIL = """
SELECT least(%(until)s::timestamptz, o.over) AS until FROM (
    SELECT CASE WHEN p.kind = 'human' THEN (
            SELECT 'infinity'::timestamptz FROM coordination_membership m
            WHERE m.organization_id = p.organization_id AND m.user_id = p.user_id AND m.ended_at IS NULL)
        ELSE (
            SELECT max(coalesce(k.expires_at, 'infinity')) FROM coordination_apikey k
            WHERE k.principal_id = p.id AND k.revoked_at IS NULL AND k.scopes && %(scopes)s::varchar[])
        END AS over
    FROM coordination_principal p WHERE p.id = %(principal)s AND p.disabled_at IS NULL
) o WHERE o.over IS NOT NULL"""
_SCOPES = ["tasks:claim", EVERYTHING]


def keep_for(principal_id: UUID, *, at: datetime, lasting: timedelta) -> dict[str, Any]:
    """The columns that keep a locked task for a principal from `at` on: no longer than it can claim.

    None at all for who cannot, or is being disabled at this moment.
    """
    if fetch(_HOLD, {"principal": principal_id}) is None:
        return {}
    until = _until(principal_id, at + lasting)
    return {"reserved_for_id": principal_id, "reserved_until": until} if until and until > at else {}


def _until(principal_id: UUID, wanted: datetime) -> datetime | None:
    row = fetch(_UNTIL, {"principal": principal_id, "until": wanted, "scopes": _SCOPES})
    until: datetime | None = row["until"] if row else None
    return until


def tasks_about(principal: Principal) -> list[UUID]:
    """The open tasks that are kept for a principal or not offered to it, in the order in which they are locked."""
    found = Task.objects.filter(organization_id=principal.organization_id, status__in=OPEN)
    about = found.filter(Q(reserved_for=principal) | Q(avoided=principal))
    return list(about.order_by("pk").values_list("pk", flat=True))


def end(task: Task, principal: Principal, *, actor_id: UUID | None) -> None:
    """A locked task is kept for the principal no longer, and no longer kept from it."""
    changes: dict[str, Any] = {}
    if task.reserved_for_id == principal.pk:
        changes |= {"reserved_for": None, "reserved_until": None}
        events.record(
            "task.reservation_ended",
            organization_id=task.organization_id,
            actor_id=actor_id,
            task_id=task.pk,
            subject_id=principal.pk,
            status=task.status,
        )
    if task.avoided_id == principal.pk:
        changes |= {"avoided": None, "avoided_until": None}
    if changes:
        Task.objects.filter(pk=task.pk).update(**changes)


def end_without_key(principal: Principal, *, actor_id: UUID | None) -> None:
    """A key of the principal was revoked: if it was the last one that can claim, nothing is kept for it any more."""
    # Waits for a takeover that is keeping a task for it just now, so that the task is seen below; and of two
    # revocations the later one sees both.
    Principal.objects.select_for_update().get(pk=principal.pk)
    at = clock()
    until = _until(principal.pk, at + timedelta(seconds=1))
    if until is not None and until > at:
        return
    for task_id in tasks_about(principal):
        end(hold_task(principal.organization_id, task_id).task, principal, actor_id=actor_id)
