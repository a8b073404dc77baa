"""Digests of what a page shows of a row. Whoever acts on it carries one, and another truth is refused."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from .canonical import digest
from .locks import current_epoch
from .models import Blocker, Task
from .times import stamp


def of_task(task: Task) -> str:
    """Of what a human judges a task by: who has it, its state, its place in the queue, and what blocks it."""
    blockers = Blocker.objects.filter(task=task, closed_at=None).order_by("pk").values_list("pk", flat=True)
    return digest(
        [
            current_epoch(task),
            task.status,
            task.priority,
            stamp(task.finished_at),
            _plain(task.reserved_for_id),
            [_plain(pk) for pk in blockers],
        ]
    )


def of_columns(row: Any, columns: Iterable[str]) -> str:
    """Of some columns of a row."""
    return digest({name: _plain(getattr(row, name)) for name in columns})


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return str(value)
