"""What a task waits for: counted on its own row, and on the rows of those that it names."""

from uuid import UUID

from django.db.models import F

from titen.errors import invalid

from . import blockers
from .locks import Held, hold_task
from .models import LONG_COLUMNS, Blocker, BlockerKind, Task, TaskDependency, TaskStatus
from .models.fields import ClockNow
from .transitions import OPEN


def hold_named(organization_id: UUID, ids: list[UUID]) -> list[Task]:
    """Lock the tasks that a new one waits for, and count it on each: their ends see the count."""
    if not ids:
        return []
    found = list(
        Task.objects.select_for_update(no_key=True)
        .defer(*LONG_COLUMNS)
        .filter(organization_id=organization_id, pk__in=ids)
        .order_by("pk")
    )
    if len(found) != len(set(ids)):
        raise invalid("depends_on", "must name existing tasks of your organization, each once.")
    Task.objects.filter(pk__in=[other.pk for other in found]).update(dependent_count=F("dependent_count") + 1)
    return found


def block_by_cancelled(task: Task, other: Task) -> Blocker:
    """Open the blocker of a new task that names a cancelled one."""
    return Blocker.objects.create(
        organization_id=task.organization_id,
        task=task,
        kind=BlockerKind.DEPENDENCY,
        subject_id=other.pk,
        sentence=_cancelled_sentence(other),
    )


def _cancelled_sentence(other: Task) -> str:
    return f"“{other.title[:200]}” was cancelled. An operator can unblock this task or reopen that one."


def _dependents(task: Task, *, satisfied: bool) -> list[Task]:
    """The open tasks that name `task` as a dependency that nobody waived, locked in the order of their ids.

    They are locked whatever their status: a condition in the query would be judged by its snapshot, and
    pass over one that becomes open while we wait.
    """
    named = TaskDependency.objects.filter(depends_on=task, satisfied_at__isnull=not satisfied, waived_at=None)
    ids = named.values("task_id")
    locked = (
        Task.objects.select_for_update(no_key=True).defer(*LONG_COLUMNS).filter(pk__in=ids).order_by("pk")
    )
    return [other for other in locked if other.status in OPEN]


def block_dependents(task: Task, actor_id: UUID) -> None:
    """The task was cancelled: who waits for it is blocked until a human says what to do."""
    for other in _dependents(task, satisfied=False):
        held = hold_task(other.organization_id, other.pk)
        blocker = blockers.open_blocker(
            held, BlockerKind.DEPENDENCY, _cancelled_sentence(task), subject_id=task.pk
        )
        blockers.record_blocked(held, blocker, actor_id=actor_id)


def wait_again(task: Task, actor_id: UUID, *, was_done: bool) -> None:
    """Open dependents wait for the reopened task once more, and no longer for its reopening.

    Whoever was told by a human not to wait for it does not: a dependency that was waived stays waived.
    """
    for other in _dependents(task, satisfied=True) if was_done else []:
        if other.status == TaskStatus.IN_PROGRESS:
            continue
        again = TaskDependency.objects.filter(
            task=other, depends_on=task, satisfied_at__isnull=False, waived_at=None
        )
        if again.update(satisfied_at=None) == 0:
            continue
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


def waive_cancelled(task: Task) -> None:
    """The task waits no longer for what its open `dependency` blockers name."""
    named = Blocker.objects.filter(task=task, closed_at=None, kind=BlockerKind.DEPENDENCY)
    count = TaskDependency.objects.filter(
        task=task, depends_on_id__in=named.values("subject_id"), satisfied_at=None
    ).update(satisfied_at=ClockNow(), waived_at=ClockNow())
    if count:
        Task.objects.filter(pk=task.pk).update(open_dependencies=F("open_dependencies") - count)


def block_by_cancelled_again(held: Held) -> None:
    """A reopened task is blocked again by what it waits for and was cancelled meanwhile."""
    for other in Task.objects.filter(
        dependents__task=held.task, dependents__satisfied_at=None, status=TaskStatus.CANCELLED
    ):
        blockers.open_blocker(held, BlockerKind.DEPENDENCY, _cancelled_sentence(other), subject_id=other.pk)
