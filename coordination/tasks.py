"""Tasks: creating them, and what humans do to them."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import F

from titen.errors import Refused, invalid

from . import blockers, events, participants
from .callers import Caller
from .claims import check_ttl, profile_for
from .leases import end_lease, grant, renew_human
from .locks import Held, current_epoch, hold_task
from .models import (
    Blocker,
    BlockerKind,
    Comment,
    GrantReason,
    LeaseEnd,
    Principal,
    Resource,
    Run,
    RunStatus,
    Task,
    TaskDependency,
    TaskStatus,
)
from .models.fields import ClockNow
from .transitions import OPEN, TASK

RESERVED_FOR_AGENT = timedelta(minutes=15)
AVOIDED_AFTER_TAKEOVER = timedelta(minutes=5)


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
    needed = _hold_dependencies(caller.organization_id, depends_on or [])
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
        _block_by_cancelled(task, other)
    events.record(
        "task.created",
        organization_id=task.organization_id,
        actor_id=caller.principal_id,
        task_id=task.pk,
        status=task.status,
        priority=priority,
    )
    return task


def _hold_dependencies(organization_id: UUID, ids: list[UUID]) -> list[Task]:
    """Lock the tasks that a new one waits for, and count it on each: their ends see the count."""
    if not ids:
        return []
    found = list(
        Task.objects.select_for_update(no_key=True)
        .filter(organization_id=organization_id, pk__in=ids)
        .order_by("pk")
    )
    if len(found) != len(set(ids)):
        raise invalid("depends_on", "must name existing tasks of your organization, each once.")
    Task.objects.filter(pk__in=[other.pk for other in found]).update(dependent_count=F("dependent_count") + 1)
    return found


def _block_by_cancelled(task: Task, other: Task) -> Blocker:
    return Blocker.objects.create(
        organization_id=task.organization_id,
        task=task,
        kind=BlockerKind.DEPENDENCY,
        subject_id=other.pk,
        sentence=_cancelled_sentence(other),
    )


def _cancelled_sentence(other: Task) -> str:
    return f"“{other.title[:200]}” was cancelled. An operator can unblock this task or reopen that one."


def refuse_unless(task: Task, verb: str) -> None:
    """Refuse with the current state unless the table of moves lets `verb` start in it."""
    if not TASK[verb].allows(task.status):
        raise Refused(
            "CONFLICT",
            object="task",
            state=task.status.replace("_", " "),
            details={"state": task.status, "allowed": TASK.allowed_in(task.status)},
        )


def refuse_stale(held: Held, epoch: int | None) -> None:
    """Refuse a human's action on a page that showed another epoch than the current one."""
    current = current_epoch(held.task)
    if epoch is not None and epoch != current:
        raise Refused(
            "CONFLICT",
            "The task has moved on since this page was shown. Look at it again, then decide.",
            details={"state": held.task.status, "current_epoch": current},
        )


def cancel(caller: Caller, task_id: UUID, *, reason: str = "") -> Task:
    """End a task for good: its run and approvals end too, and its dependents are blocked."""
    held = hold_task(caller.organization_id, task_id)
    refuse_unless(held.task, "cancel")
    _end_everything_open(held, because="cancelled", actor_id=caller.principal_id)
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
        open_effects=0,
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
            author_id=caller.principal_id,
            body=reason,
        )
    if held.task.dependent_count:
        _block_dependents(held.task, caller.principal_id)
    held.task.refresh_from_db()
    return held.task


def _end_everything_open(held: Held, *, because: str, actor_id: UUID) -> None:
    """Close all blockers; pending approvals are cancelled, questions stay as comments."""
    blockers.close_blockers(held, Blocker.objects.all(), resume=False)
    Comment.objects.filter(task=held.task, blocking=True, answered_at=None, withdrawn_at=None).update(
        withdrawn_at=ClockNow()
    )
    for participant in participants.everyone():
        participant.task_ended(held.task, because=because, actor_id=actor_id)


def _dependents(task: Task, *, satisfied: bool) -> list[Task]:
    """The open tasks that name `task` as a dependency, locked in the order of their ids.

    They are locked whatever their status: a condition in the query would be judged by its snapshot, and
    pass over one that becomes open while we wait.
    """
    ids = TaskDependency.objects.filter(depends_on=task, satisfied_at__isnull=not satisfied).values("task_id")
    locked = Task.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")
    return [other for other in locked if other.status in OPEN]


def _block_dependents(task: Task, actor_id: UUID) -> None:
    for other in _dependents(task, satisfied=False):
        held = hold_task(other.organization_id, other.pk)
        blocker = blockers.open_blocker(
            held, BlockerKind.DEPENDENCY, _cancelled_sentence(task), subject_id=task.pk
        )
        blockers.record_blocked(held, blocker, actor_id=actor_id)


def block(caller: Caller, task_id: UUID, *, sentence: str, epoch: int | None = None) -> Task:
    """A human stops a task and says why; its holder's next heartbeat says `pause`."""
    held = hold_task(caller.organization_id, task_id)
    refuse_stale(held, epoch)
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


def unblock(caller: Caller, task_id: UUID) -> Task:
    """Close what an operator can close: a manual blocker, and dependencies that were cancelled."""
    held = hold_task(caller.organization_id, task_id)
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
    _waive_cancelled(held.task)
    blockers.close_blockers(held, mine)
    blockers.record_unblocked(held, actor_id=caller.principal_id, closed=[blocker.kind for blocker in found])
    renew_human(held, caller.principal_id)
    held.task.refresh_from_db()
    return held.task


def _waive_cancelled(task: Task) -> None:
    """The task waits no longer for what its open `dependency` blockers name."""
    named = Blocker.objects.filter(task=task, closed_at=None, kind=BlockerKind.DEPENDENCY)
    count = TaskDependency.objects.filter(
        task=task, depends_on_id__in=named.values("subject_id"), satisfied_at=None
    ).update(satisfied_at=ClockNow())
    if count:
        Task.objects.filter(pk=task.pk).update(open_dependencies=F("open_dependencies") - count)


def reopen(caller: Caller, task_id: UUID) -> Task:
    """Give a task new attempts: out of its `attempts` blocker, or back from its end."""
    held = hold_task(caller.organization_id, task_id)
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
    Task.objects.filter(pk=task_id).update(attempt_count=0, fruitless_ends=0, backoff_until=None)
    if was == TaskStatus.BLOCKED:
        blockers.close_blockers(held, attempts)
    else:
        Task.objects.filter(pk=task_id).update(status=TaskStatus.TODO, finished_at=None)
        task.status = TaskStatus.TODO
        _wait_again(task, caller.principal_id, was_done=was == TaskStatus.DONE)
        for other in Task.objects.filter(
            dependents__task=task, dependents__satisfied_at=None, status=TaskStatus.CANCELLED
        ):
            blockers.open_blocker(
                held, BlockerKind.DEPENDENCY, _cancelled_sentence(other), subject_id=other.pk
            )
    events.record(
        "task.reopened",
        organization_id=task.organization_id,
        actor_id=caller.principal_id,
        task_id=task_id,
        status=task.status,
        was=was,
        attempt_count=0,
    )
    task.refresh_from_db()
    return task


def _wait_again(task: Task, actor_id: UUID, *, was_done: bool) -> None:
    """Open dependents wait for the reopened task once more, and no longer for its reopening.

    Who does not wait for a cancelled task was told so by a human, and that stands.
    """
    for other in _dependents(task, satisfied=True) if was_done else []:
        if other.status == TaskStatus.IN_PROGRESS:
            continue
        TaskDependency.objects.filter(task=other, depends_on=task).update(satisfied_at=None)
        Task.objects.filter(pk=other.pk).update(open_dependencies=F("open_dependencies") + 1)
    for other in _dependents(task, satisfied=False):
        held = hold_task(other.organization_id, other.pk)
        closed = blockers.close_blockers(
            held, Blocker.objects.filter(kind=BlockerKind.DEPENDENCY, subject_id=task.pk)
        )
        if closed:
            blockers.record_unblocked(
                held, actor_id=actor_id, closed=[BlockerKind.DEPENDENCY], subject_id=task.pk
            )


def take_over(caller: Caller, task_id: UUID, *, to: Principal | None, reason: str, epoch: int) -> Task:
    """A human takes the task from whoever holds it: to oneself, to an agent, or (None) to the queue.

    `epoch` is what the page showed; another one is refused. The last holder's run is superseded.
    """
    held = hold_task(caller.organization_id, task_id)
    task = held.task
    refuse_stale(held, epoch)
    refuse_unless(task, "take_over")
    was = task.status
    after = TaskStatus.IN_PROGRESS if to is not None and to.pk == caller.principal_id else TaskStatus.TODO
    last_holder = (
        Run.objects.filter(task=task).order_by("-number").values_list("principal_id", flat=True).first()
    )
    _waive_cancelled(task)
    _end_everything_open(held, because="taken_over", actor_id=caller.principal_id)
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
        "reserved_for": None,
        "reserved_until": None,
        "avoided": None,
        "avoided_until": None,
    }
    if to is None and last_holder:
        changes.update(avoided=last_holder, avoided_until=held.at + AVOIDED_AFTER_TAKEOVER)
    elif to is not None and to.pk != caller.principal_id:
        changes.update(reserved_for=to, reserved_until=held.at + RESERVED_FOR_AGENT)
    Task.objects.filter(pk=task_id).update(**changes)
    Comment.objects.create(
        organization_id=task.organization_id, task=task, author_id=caller.principal_id, body=reason
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
    if to is not None and to.pk == caller.principal_id:
        grant(task, to, because=GrantReason.TAKEOVER, ttl_seconds=settings.HUMAN_LEASE_TTL_SECONDS)
    task.refresh_from_db()
    return task


def set_priority(caller: Caller, task_id: UUID, *, priority: int) -> Task:
    """Move an open task up or down in the queue (-100 to 100)."""
    held = hold_task(caller.organization_id, task_id)
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


def revoke_runs_of(principal: Principal, *, actor_id: UUID | None) -> None:
    """Take back what a disabled principal holds: its tasks return to the queue, or stay blocked."""
    open_runs = Run.objects.filter(
        organization_id=principal.organization_id, principal=principal, ended_at=None
    )
    for task_id in open_runs.order_by("task_id").values_list("task_id", flat=True):
        held = hold_task(principal.organization_id, task_id)
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
