"""What can be looked at live: an organization's board, its leases, what is passed on in it, a task's page, and
approvals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from coordination.board import (
    fragments,
    leases_fragments,
    leases_state,
    passing_fragments,
    passing_state,
    state,
    task_fragments,
    task_state,
)
from coordination.board.leases_state import LeasesState
from coordination.board.passing_state import PassingState
from coordination.board.rows import BoardState
from coordination.board.task_state import TaskState
from coordination.models import Organization, Run, Task
from titen.api.ids import read_id

from . import approval_boards
from .channels import Fragments, Source, Subject
from .positions import is_due, newest


@dataclass(frozen=True, slots=True)
class BoardSight:
    """A board as it was read, and the position of the newest event then."""

    board: BoardState
    position: int


@dataclass(frozen=True, slots=True)
class TaskSight:
    """A task's page as it was read, with the newest event's position and the last heartbeat then."""

    page: TaskState | None
    position: int
    beat: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class TaskKey:
    """A task's page, as a channel's key."""

    organization_id: UUID
    task_id: UUID


@dataclass(frozen=True, slots=True)
class LeasesKey:
    """An organization's page of leases, as a channel's key."""

    organization_id: UUID


@dataclass(frozen=True, slots=True)
class LeasesSight:
    """The leases as they were read, and the position of the newest event then."""

    page: LeasesState
    position: int


@dataclass(frozen=True, slots=True)
class PassingKey:
    """An organization's page of handoffs and messages, as a channel's key."""

    organization_id: UUID


@dataclass(frozen=True, slots=True)
class PassingSight:
    """Handoffs and messages as they were read, and the position of the newest event then."""

    page: PassingState
    position: int


def find_board(query: Mapping[str, str]) -> Subject | None:
    """`?org=<slug>`."""
    pk = _organization(query)
    return Subject(pk, pk) if pk else None


def _organization(query: Mapping[str, str]) -> UUID | None:
    return Organization.objects.filter(slug=query.get("org", "")).values_list("pk", flat=True).first()


def read_board(organization_id: UUID, before: BoardSight | None) -> BoardSight:
    """The board as it stands. When no event came and nothing fell due, only what heartbeats move is read."""
    position = newest(organization_id)
    if before is None or before.position != position or is_due(before.board.due):
        return BoardSight(state.read(organization_id), position)
    return BoardSight(state.refresh_running(organization_id, before.board), position)


def render_board(sight: BoardSight, role: str) -> Fragments:
    """The board's sections for one role."""
    return fragments.render(sight.board, role)


def find_task(query: Mapping[str, str]) -> Subject | None:
    """`?id=task_…`."""
    if (task_id := read_id("task", query.get("id", ""))) is None:
        return None
    organization = Task.objects.filter(pk=task_id).values_list("organization_id", flat=True).first()
    return Subject(TaskKey(organization, task_id), organization) if organization else None


def read_task(key: TaskKey, before: TaskSight | None) -> TaskSight:
    """The page as it stands; the one before when no event came, nothing fell due and no heartbeat arrived."""
    position = newest(key.organization_id)
    beat = (
        Run.objects.filter(task_id=key.task_id, ended_at=None)
        .values_list("pk", "progress", "status_line", "lease__renewed_at", "lease__expires_at")
        .first()
    )
    if before is None or (before.position, before.beat) != (position, beat):
        known = None
    else:
        known = None if before.page and is_due(before.page.due) else before
    return known or TaskSight(task_state.read(key.organization_id, key.task_id), position, beat)


def render_task(sight: TaskSight, role: str) -> Fragments:
    """The page's sections for one role."""
    return task_fragments.render(sight.page, role) if sight.page else {}


def find_leases(query: Mapping[str, str]) -> Subject | None:
    """`?org=<slug>`."""
    pk = _organization(query)
    return Subject(LeasesKey(pk), pk) if pk else None


def read_leases(key: LeasesKey, before: LeasesSight | None) -> LeasesSight:
    """The leases as they stand. When no event came, only what renewals and time move is read."""
    position = newest(key.organization_id)
    if before is None or before.position != position:
        return LeasesSight(leases_state.read(key.organization_id), position)
    return LeasesSight(leases_state.refresh(key.organization_id, before.page), position)


def render_leases(sight: LeasesSight, role: str) -> Fragments:
    """The page's sections for one role."""
    return leases_fragments.render(sight.page, role)


def find_passing(query: Mapping[str, str]) -> Subject | None:
    """`?org=<slug>`."""
    pk = _organization(query)
    return Subject(PassingKey(pk), pk) if pk else None


def read_passing(key: PassingKey, before: PassingSight | None) -> PassingSight:
    """Handoffs and messages as they stand. When no event came and nothing fell due, only messages are read."""
    position = newest(key.organization_id)
    if before is None or before.position != position or is_due(before.page.due):
        return PassingSight(passing_state.read(key.organization_id), position)
    return PassingSight(passing_state.refresh(key.organization_id, before.page), position)


def render_passing(sight: PassingSight, role: str) -> Fragments:
    """The page's sections for one role."""
    return passing_fragments.render(sight.page, role)


SOURCES = {
    "/live/board": Source(find_board, read_board, render_board, fragments.as_message),
    "/live/leases": Source(find_leases, read_leases, render_leases, fragments.as_message),
    "/live/messages": Source(find_passing, read_passing, render_passing, fragments.as_message),
    "/live/task": Source(find_task, read_task, render_task, fragments.as_message),
    **approval_boards.SOURCES,
}
