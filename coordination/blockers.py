"""Opening and closing the reasons why a task is blocked.

The task is locked by the caller. Status and counter change in one statement: the table's check ties
them together.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet

from titen.errors import Refused

from . import events
from .locks import Held
from .models import Blocker, BlockerKind, Run, RunStatus, Task, TaskStatus
from .models.fields import ClockNow
from .reservations import keep_for
from .transitions import OPEN, TASK

RESERVED_AFTER_WAIT = timedelta(minutes=2)


def open_blocker(
    held: Held, kind: str, sentence: str, *, subject_id: UUID | None = None, pause: bool = False
) -> Blocker:
    """Block the task for one more reason; its run, if any, waits from now on.

    `pause` asks the holder to stop: its next heartbeat says so.
    """
    task, run = held.task, held.run
    if task.status not in OPEN:
        raise Refused(
            "CONFLICT",
            object="task",
            state=task.status,
            details={"state": task.status, "allowed": TASK.allowed_in(task.status)},
        )
    blocker = Blocker.objects.create(
        organization_id=task.organization_id, task=task, kind=kind, sentence=sentence, subject_id=subject_id
    )
    Task.objects.filter(pk=task.pk).update(status=TaskStatus.BLOCKED, open_blockers=F("open_blockers") + 1)
    if run is not None:
        changes: dict[str, Any] = {"status": RunStatus.WAITING}
        if pause:
            changes["pause_requested_at"] = held.at
        Run.objects.filter(pk=run.pk).update(**changes)
        run.status = RunStatus.WAITING
    task.status = TaskStatus.BLOCKED
    task.open_blockers += 1
    return blocker


def close_blockers(held: Held, blockers: "QuerySet[Blocker]", *, resume: bool = True) -> int:
    """Close the given open blockers; when none is left the task goes on. The number that were closed.

    With `resume=False` the caller moves the task on in the same transaction itself, by
    `settle_unblocked` or by an end: until then the task's row is not written.
    """
    task = held.task
    count = blockers.filter(task=task, closed_at=None).update(closed_at=ClockNow())
    task.open_blockers -= count
    if not resume or count == 0:
        return count
    if task.open_blockers:
        Task.objects.filter(pk=task.pk).update(open_blockers=task.open_blockers)
        _end_pause(held)
    else:
        go_on(held)
    return count


def _end_pause(held: Held) -> None:
    """Other blockers are left: the run waits, and is asked to pause only while a manual one is among them."""
    run = held.run
    if run is None or run.pause_requested_at is None:
        return
    if not Blocker.objects.filter(task=held.task, kind=BlockerKind.MANUAL, closed_at=None).exists():
        Run.objects.filter(pk=run.pk).update(pause_requested_at=None)
        run.pause_requested_at = None


def go_on(held: Held) -> None:
    """The last blocker is closed: on with the run if its lease lives, else back to the queue."""
    task, run = held.task, held.run
    if run is not None:
        Run.objects.filter(pk=run.pk).update(status=RunStatus.RUNNING, pause_requested_at=None)
        run.status = RunStatus.RUNNING
        _move(task, status=TaskStatus.IN_PROGRESS)
        return
    last = None
    if task.last_run_end == RunStatus.PARKED:
        last = Run.objects.filter(task=task).order_by("-number").first()
    reserved = keep_for(last.principal_id, at=held.at, lasting=RESERVED_AFTER_WAIT) if last else {}
    _move(task, status=TaskStatus.TODO, **reserved)


def _move(task: Task, **changes: Any) -> None:
    Task.objects.filter(pk=task.pk).update(open_blockers=0, **changes)
    task.open_blockers = 0
    for name, value in changes.items():
        setattr(task, name, value)


def record_blocked(
    held: Held, blocker: Blocker, *, actor_id: UUID | None, kind: str = "task.blocked", **data: Any
) -> None:
    """Write that the task was blocked (or what else `kind` says), and by what."""
    _record(held, kind, actor_id, blocker.subject_id, blocker=blocker.kind, **data)


def record_unblocked(
    held: Held, *, actor_id: UUID | None, closed: Iterable[str], subject_id: UUID | None = None
) -> None:
    """Write which blockers were closed and how the task stands now."""
    _record(held, "task.unblocked", actor_id, subject_id, closed=sorted(closed))


def _record(held: Held, kind: str, actor_id: UUID | None, subject_id: UUID | None, **data: Any) -> None:
    run = held.run
    events.record(
        kind,
        organization_id=held.task.organization_id,
        actor_id=actor_id,
        task_id=held.task.pk,
        run_id=run.pk if run else None,
        lease_id=run.lease_id if run else None,
        subject_id=subject_id,
        epoch=run.epoch if run else None,
        status=held.task.status,
        **data,
    )
