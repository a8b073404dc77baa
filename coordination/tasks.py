"""Tasks: creating them, and what humans do to them."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection

from titen.errors import Refused

from . import blockers, dependencies, digests, events, handoffs, participants
from .callers import Caller
from .claims import check_ttl, profile_for
from .leases import end_lease, renew_human
from .locks import Held, current_epoch, hold_task
from .models import (
    Blocker,
    BlockerKind,
    Comment,
    LeaseEnd,
    Resource,
    RunStatus,
    Task,
    TaskDependency,
    TaskStatus,
)
from .models.fields import ClockNow
from .sweeping import sweep_batch
from .transitions import TASK


def create(
    caller: Caller,
    *,
    title: str,
    description: str = "",
    priority: int = 0,
    required_capabilities: list[str] | None = None,
    payload: dict[str, Any] | None = None,
    secret_refs: list[str] | None = None,
    depends_on: list[UUID] | None = None,
    not_before: datetime | None = None,
    max_attempts: int = 3,
    lease_ttl_seconds: int | None = None,
) -> Task:
    """Put a task into the queue. `depends_on` names existing tasks of the organization."""
    check_ttl(lease_ttl_seconds, "lease_ttl_seconds")
    needed = dependencies.hold_named(caller.organization_id, depends_on or [])
    with connection.cursor() as cursor:
        cursor.execute("SELECT titen_uuid7()")
        task_id = cursor.fetchone()[0]
    resource = Resource.objects.create(
        organization_id=caller.organization_id,
        resource_type="task",
        resource_id=f"{Task.PREFIX}_{task_id.hex}",
    )
    cancelled = [other for other in needed if other.status == TaskStatus.CANCELLED]
    task = Task.objects.create(
        id=task_id,
        organization_id=caller.organization_id,
        resource=resource,
        profile=profile_for(caller.organization_id, required_capabilities or []),
        title=title,
        description=description,
        priority=priority,
        payload=payload or {},
        secret_refs=secret_refs or [],
        not_before=not_before,
        max_attempts=max_attempts,
        lease_ttl_seconds=lease_ttl_seconds,
        status=TaskStatus.BLOCKED if cancelled else TaskStatus.TODO,
        open_blockers=len(cancelled),
        open_dependencies=sum(other.status != TaskStatus.DONE for other in needed),
        created_by_id=caller.principal_id,
    )
    for other in needed:
        done = other.status == TaskStatus.DONE
        TaskDependency.objects.create(
            task=task, depends_on=other, satisfied_at=other.finished_at if done else None
        )
    for other in cancelled:
        dependencies.block_by_cancelled(task, other)
    events.record(
        "task.created",
        organization_id=task.organization_id,
        actor_id=caller.principal_id,
        task_id=task.pk,
        status=task.status,
        priority=priority,
    )
    return task


def refuse_unless(task: Task, verb: str) -> None:
    """Refuse with the current state unless the table of moves lets `verb` start in it."""
    if not TASK[verb].allows(task.status):
        raise Refused(
            "CONFLICT",
            object="task",
            state=task.status.replace("_", " "),
            details={"state": task.status, "allowed": TASK.allowed_in(task.status)},
        )


def refuse_stale(held: Held, *, shown: str | None, epoch: int | None = None) -> None:
    """Refuse an action on a page that showed something else than what stands.

    `shown` is the page's digest (`digests.of_task`); None where the caller has seen no page. A lease that had run
    out is written down all the same, so that the next page shows it.
    """
    stands, current = digests.of_task(held.task), current_epoch(held.task)
    if shown not in (None, stands) or epoch not in (None, current):
        refused = Refused(
            "CONFLICT",
            "The task has moved on since this page was shown. Look at it again, then decide.",
            details={"state": held.task.status, "current_epoch": current, "digest": stands},
        )
        refused.afterwards = partial(sweep_batch, task_id=held.task.pk)
        raise refused


def cancel(caller: Caller, task_id: UUID, *, reason: str = "", shown: str | None = None) -> Task:
    """End a task for good: its run and approvals end too, and its dependents are blocked."""
    held = hold_task(caller.organization_id, task_id)
    refuse_stale(held, shown=shown)
    refuse_unless(held.task, "cancel")
    end_everything_open(held, because="cancelled", actor_id=caller.principal_id)
    if held.run is not None:
        end_lease(
            held,
            LeaseEnd.CANCELLED,
            RunStatus.CANCELLED,
            event="task.run_cancelled",
            status=TaskStatus.CANCELLED,
            actor_id=caller.principal_id,
        )
    Task.objects.filter(pk=task_id).update(
        status=TaskStatus.CANCELLED,
        open_blockers=0,
        finished_at=held.at,
        reserved_for=None,
        reserved_until=None,
    )
    events.record(
        "task.cancelled",
        organization_id=caller.organization_id,
        actor_id=caller.principal_id,
        task_id=task_id,
        status=TaskStatus.CANCELLED,
    )
    if reason:
        Comment.objects.create(
            organization_id=caller.organization_id,
            task_id=task_id,
            round=held.task.round,
            author_id=caller.principal_id,
            body=reason,
        )
    if held.task.dependent_count:
        dependencies.block_dependents(held.task, caller.principal_id)
    held.task.refresh_from_db()
    return held.task


def end_everything_open(held: Held, *, because: str, actor_id: UUID) -> None:
    """Close all blockers and withdraw offers; pending approvals are cancelled, questions stay as comments."""
    blockers.close_blockers(held, Blocker.objects.all(), resume=False)
    Comment.objects.filter(task=held.task, blocking=True, answered_at=None, withdrawn_at=None).update(
        withdrawn_at=ClockNow()
    )
    for participant in participants.everyone():
        participant.task_ended(held.task, because=because, actor_id=actor_id)
    handoffs.withdraw_offers_of(held.task, actor_id=actor_id)


def block(
    caller: Caller, task_id: UUID, *, sentence: str, shown: str | None = None, epoch: int | None = None
) -> Task:
    """A human stops a task and says why; its holder's next heartbeat says `pause`."""
    held = hold_task(caller.organization_id, task_id)
    refuse_stale(held, shown=shown, epoch=epoch)
    refuse_unless(held.task, "block")
    if Blocker.objects.filter(task=held.task, kind=BlockerKind.MANUAL, closed_at=None).exists():
        raise Refused(
            "CONFLICT",
            "The task is blocked by hand already. Unblock it first.",
            details={"state": held.task.status},
        )
    blocker = blockers.open_blocker(held, BlockerKind.MANUAL, sentence, pause=True)
    blockers.record_blocked(held, blocker, actor_id=caller.principal_id)
    renew_human(held, caller.principal_id)
    return held.task


def unblock(caller: Caller, task_id: UUID, *, shown: str | None = None) -> Task:
    """Close what an operator can close: a manual blocker, and dependencies that were cancelled."""
    held = hold_task(caller.organization_id, task_id)
    refuse_stale(held, shown=shown)
    refuse_unless(held.task, "unblock")
    mine = Blocker.objects.filter(
        task=held.task, closed_at=None, kind__in=[BlockerKind.MANUAL, BlockerKind.DEPENDENCY]
    )
    found = list(mine)
    if not found:
        raise Refused(
            "CONFLICT",
            "Nothing here can be unblocked by hand. Decide its approvals, answer its questions or reopen it.",
            details={"state": held.task.status},
        )
    dependencies.waive_cancelled(held.task)
    blockers.close_blockers(held, mine)
    blockers.record_unblocked(held, actor_id=caller.principal_id, closed=[blocker.kind for blocker in found])
    renew_human(held, caller.principal_id)
    held.task.refresh_from_db()
    return held.task


def reopen(caller: Caller, task_id: UUID, *, shown: str | None = None) -> Task:
    """Give a task new attempts: out of its `attempts` blocker, or back from its end.

    A new round begins: decisions and answers of the last one can still be read, but no longer count, and
    grants that nobody used are void.
    """
    held = hold_task(caller.organization_id, task_id)
    refuse_stale(held, shown=shown)
    task = held.task
    refuse_unless(task, "reopen")
    was = task.status
    attempts = Blocker.objects.filter(task=task, closed_at=None, kind=BlockerKind.ATTEMPTS)
    if was == TaskStatus.BLOCKED and not attempts.exists():
        raise Refused(
            "CONFLICT",
            "The task has attempts left. Unblock, decide or answer what blocks it.",
            details={"state": was},
        )
    participants.round_ended(task_id, because="reopened", actor_id=caller.principal_id)
    Task.objects.filter(pk=task_id).update(
        attempt_count=0, fruitless_ends=0, backoff_until=None, round=task.round + 1
    )
    if was == TaskStatus.BLOCKED:
        blockers.close_blockers(held, attempts)
    else:
        Task.objects.filter(pk=task_id).update(status=TaskStatus.TODO, finished_at=None)
        task.status = TaskStatus.TODO
        dependencies.wait_again(task, caller.principal_id, was_done=was == TaskStatus.DONE)
        dependencies.block_by_cancelled_again(held)
    events.record(
        "task.reopened",
        organization_id=task.organization_id,
        actor_id=caller.principal_id,
        task_id=task_id,
        status=task.status,
        was=was,
        attempt_count=0,
        round=task.round + 1,
    )
    task.refresh_from_db()
    return task


def set_priority(caller: Caller, task_id: UUID, *, priority: int, shown: str | None = None) -> Task:
    """Move an open task up or down in the queue (-100 to 100)."""
    held = hold_task(caller.organization_id, task_id)
    refuse_stale(held, shown=shown)
    refuse_unless(held.task, "set_priority")
    was = held.task.priority
    Task.objects.filter(pk=task_id).update(priority=priority)
    renew_human(held, caller.principal_id)
    events.record(
        "task.priority_set",
        organization_id=caller.organization_id,
        actor_id=caller.principal_id,
        task_id=task_id,
        status=held.task.status,
        was=was,
        priority=priority,
    )
    held.task.priority = priority
    return held.task
