"""Taking a task from its holder: a human's takeover, and what a principal loses with its access."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from titen.errors import invalid

from . import events, reservations
from .callers import Caller
from .dependencies import waive_cancelled
from .leases import end_lease, grant
from .locks import hold_able, hold_task
from .models import Comment, GrantReason, LeaseEnd, Principal, Run, RunStatus, Task, TaskStatus
from .tasks import end_everything_open, refuse_stale, refuse_unless

RESERVED_FOR_AGENT = timedelta(minutes=15)
AVOIDED_AFTER_TAKEOVER = timedelta(minutes=5)


def take_over(
    caller: Caller, task_id: UUID, *, to: Principal | None, reason: str, epoch: int, shown: str | None = None
) -> Task:
    """A human takes the task from whoever holds it: to oneself, to an agent, or (None) to the queue.

    `epoch` and the digest `shown` are what the page showed; another truth is refused. The last holder's run is
    superseded. An agent without a key that can claim gets no reservation.
    """
    to_self = to is not None and to.pk == caller.principal_id
    if to is not None and to.pk not in hold_able(caller, to.pk):
        raise invalid("to", "has been disabled. Choose another agent.")
    held = hold_task(caller.organization_id, task_id)
    task = held.task
    refuse_stale(held, shown=shown, epoch=epoch)
    refuse_unless(task, "take_over")
    was = task.status
    after = TaskStatus.IN_PROGRESS if to_self else TaskStatus.TODO
    last_holder = (
        Run.objects.filter(task=task).order_by("-number").values_list("principal_id", flat=True).first()
    )
    waive_cancelled(task)
    end_everything_open(held, because="taken_over", actor_id=caller.principal_id)
    if held.run is not None:
        end_lease(
            held,
            LeaseEnd.REVOKED,
            RunStatus.SUPERSEDED,
            event="task.superseded",
            status=after,
            actor_id=caller.principal_id,
        )
    changes: dict[str, Any] = {
        "status": TaskStatus.TODO,
        "open_blockers": 0,
        "attempt_count": 0,
        "fruitless_ends": 0,
        "backoff_until": None,
        "reserved_for_id": None,
        "reserved_until": None,
        "avoided": None,
        "avoided_until": None,
    }
    if to is None and last_holder:
        changes.update(avoided=last_holder, avoided_until=held.at + AVOIDED_AFTER_TAKEOVER)
    elif to is not None and not to_self:
        changes.update(reservations.keep_for(to.pk, at=held.at, lasting=RESERVED_FOR_AGENT))
    Task.objects.filter(pk=task_id).update(**changes)
    Comment.objects.create(
        organization_id=task.organization_id,
        task=task,
        round=task.round,
        author_id=caller.principal_id,
        body=reason,
    )
    events.record(
        "task.taken_over",
        organization_id=task.organization_id,
        actor_id=caller.principal_id,
        task_id=task_id,
        subject_id=to.pk if to else None,
        status=after,
        was=was,
        attempt_count=0,
    )
    if to is not None and to_self:
        grant(task, to, because=GrantReason.TAKEOVER, ttl_seconds=settings.HUMAN_LEASE_TTL_SECONDS)
    task.refresh_from_db()
    return task


def revoke_runs_of(principal: Principal, *, actor_id: UUID | None) -> None:
    """Take back what a disabled principal holds: its tasks return to the queue, or stay blocked.

    What is kept for it is kept no longer.
    """
    open_runs = Run.objects.filter(
        organization_id=principal.organization_id, principal=principal, ended_at=None
    )
    mine = set(open_runs.values_list("task_id", flat=True))
    for task_id in sorted(mine.union(reservations.tasks_about(principal))):
        held = hold_task(principal.organization_id, task_id)
        reservations.end(held.task, principal, actor_id=actor_id)
        if held.run is None or held.run.principal_id != principal.pk:
            continue
        after = TaskStatus.BLOCKED if held.task.status == TaskStatus.BLOCKED else TaskStatus.TODO
        end_lease(
            held,
            LeaseEnd.REVOKED,
            RunStatus.SUPERSEDED,
            event="task.superseded",
            status=after,
            actor_id=actor_id,
        )
        Task.objects.filter(pk=task_id).update(status=after)
