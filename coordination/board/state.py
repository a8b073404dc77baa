"""Reading a board: a few bounded queries, judged by the database's clock."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from coordination import participants
from coordination.database import Row, fetch_all
from coordination.locks import clock
from coordination.models import Organization
from coordination.participants import Card
from titen.api.ids import public_id
from titen.errors import not_found

from . import holds, questions, statements
from .holds import Hold
from .rows import PAGE, BlockedRow, BlockerLine, BoardState, EndedRow, QueueRow, RunningRow, Section, Wait

# Rows of a section; counts stop at CAP, so that a large queue costs no more than a small one.
SHOWN = PAGE
ENDED_SHOWN = 20
CAP = 10_000


def read(organization_id: UUID) -> BoardState:
    """The board of one organization as it stands now. `NOT_FOUND` for an unknown one."""
    organization = Organization.objects.filter(pk=organization_id).first()
    if organization is None:
        raise not_found()
    counts = _fetch(statements.COUNTS, organization_id)[0]
    now = counts["at"]
    ready = tuple(_queued(row, ()) for row in _fetch(statements.READY, organization_id))
    waiting: tuple[QueueRow, ...] = ()
    if len(ready) < SHOWN and counts["todo"] > counts["ready"]:
        rows = _fetch(statements.WAITING, organization_id, limit=SHOWN - len(ready))
        waiting = tuple(_queued(row, _waits(row, now)) for row in rows)
    needs = _needs(organization_id)
    state = BoardState(
        name=organization.name,
        slug=organization.slug,
        notices=participants.notices(organization_id),
        needs=needs,
        holds=_holds(needs),
        running=_running(organization_id, counts["running"]),
        ready=Section(ready, max(counts["ready"], len(ready))),
        waiting=Section(waiting, max(counts["todo"] - counts["ready"], len(waiting))),
        blocked=_section(_blocked(organization_id), counts["blocked"]),
        ended=tuple(_ended(row) for row in _fetch(statements.ENDED, organization_id, limit=ENDED_SHOWN)),
        ended_lately=counts["ended_lately"],
    )
    return replace(state, due=_due(state, now))


def read_part(organization_id: UUID, part: str, page: int) -> BoardState:
    """The board with another page of one of its lists, of which `PARTS` are the names."""
    board, before, limit = read(organization_id), SHOWN * (page - 1), SHOWN * page
    if part == "needs":
        needs = _needs(organization_id, before, limit)
        return replace(board, needs=needs, holds=_holds(needs))
    now = clock()
    read_rows, sql = PARTS[part]
    rows = _fetch(sql, organization_id, limit=limit)[before:]
    whole: Section[Any] = getattr(board, part)
    section = Section(tuple(read_rows(row, now) for row in rows), whole.total, before)
    # The queue has two lists: only the one that is asked for is shown.
    changes: dict[str, Any] = (
        {"ready": Section(), "waiting": Section()} if part in ("ready", "waiting") else {}
    )
    return replace(board, **{**changes, part: section})


def refresh_running(organization_id: UUID, state: BoardState) -> BoardState:
    """The same board with what heartbeats move read anew, as they write no events: its running rows, in one
    query, and the leases of those who wait, if any do."""
    running = _running(organization_id, 0)
    if len(running.rows) == SHOWN:
        running = replace(running, total=max(SHOWN, state.running.total))
    blocked = state.blocked
    if any(row.agent for row in blocked.rows):
        blocked = replace(blocked, rows=tuple(_blocked(organization_id)))
    return replace(state, running=running, blocked=blocked, holds=_holds(state.needs))


def _fetch(sql: str, organization_id: UUID, limit: int = SHOWN) -> list[Row]:
    return fetch_all(sql, {"organization": organization_id, "limit": limit, "cap": CAP})


def _section[R](rows: list[R], total: int) -> Section[R]:
    return Section(tuple(rows), max(total, len(rows)))


def _task_id(value: UUID) -> str:
    return public_id("task", value)


def _running(organization_id: UUID, total: int) -> Section[RunningRow]:
    return _section([_run(row) for row in _fetch(statements.RUNNING, organization_id)], total)


def _run(row: Row) -> RunningRow:
    return RunningRow(**{**row, "task_id": _task_id(row["task_id"])})


def _queued(row: Row, waits: tuple[Wait, ...]) -> QueueRow:
    return QueueRow(
        task_id=_task_id(row["task_id"]),
        title=row["title"],
        priority=row["priority"],
        capabilities=tuple(row["capabilities"]),
        created_at=row["created_at"],
        attempt_count=row["attempt_count"],
        max_attempts=row["max_attempts"],
        open_effects=row["open_effects"],
        waits=waits,
    )


def _waits(row: Row, now: datetime) -> tuple[Wait, ...]:
    """Why a queued task is not ready, by the same conditions as the claim's."""
    waits = [
        Wait("dependency", item["title"], task_id=public_id("task", UUID(item["id"])))
        for item in row["dependencies"] or []
    ]
    if row["open_dependencies"] > len(waits):
        waits.append(Wait("more", f"{row['open_dependencies'] - len(waits)} more"))
    for kind, words, until in (
        ("not_before", "", row["not_before"]),
        ("backoff", "", row["backoff_until"]),
        ("reserved", row["reserved_for"] or "", row["reserved_until"] if row["reserved_for"] else None),
    ):
        if until is not None and until > now:
            waits.append(Wait(kind, words, until))
    return tuple(waits)


def _blocked(organization_id: UUID) -> list[BlockedRow]:
    return [_blocked_row(row) for row in _fetch(statements.BLOCKED, organization_id)]


def _blocked_row(row: Row) -> BlockedRow:
    return BlockedRow(
        task_id=_task_id(row["task_id"]),
        title=row["title"],
        priority=row["priority"],
        open_effects=row["open_effects"],
        blockers=tuple(
            BlockerLine(item["kind"], item["sentence"], datetime.fromisoformat(item["opened_at"]))
            for item in row["blockers"] or []
        ),
        agent=row["agent"] or "",
        expires_at=row["expires_at"],
        certainty=row["certainty"] or "",
    )


# The lists of the board that can be longer than it: how a row is read, and the query.
PARTS: dict[str, tuple[Callable[[Row, datetime], Any], str]] = {
    "running": (lambda row, now: _run(row), statements.RUNNING),
    "ready": (lambda row, now: _queued(row, ()), statements.READY),
    "waiting": (lambda row, now: _queued(row, _waits(row, now)), statements.WAITING),
    "blocked": (lambda row, now: _blocked_row(row), statements.BLOCKED),
}


def _ended(row: Row) -> EndedRow:
    return EndedRow(**{**row, "task_id": _task_id(row["task_id"]), "agent": row["agent"] or ""})


def _needs(organization_id: UUID, before: int = 0, limit: int = SHOWN) -> Section[Card]:
    """Everything that waits for a human, oldest first."""
    cards, total = questions.needs_you(organization_id, limit)
    for participant in participants.everyone():
        more, count = participant.needs_you(organization_id, limit)
        cards, total = cards + more, total + count
    cards.sort(key=lambda card: (card.since, card.key))
    return Section(tuple(cards[before:limit]), total, before)


def _holds(needs: Section[Card]) -> dict[str, Hold]:
    return holds.read(card.task_id for card in needs.rows)


def _due(state: BoardState, now: datetime) -> datetime | None:
    """When the next pause, reservation or deadline on the board ends."""
    moments = [wait.until for row in state.waiting.rows for wait in row.waits]
    moments += [card.until for card in state.needs.rows]
    moments += [row.expires_at for row in state.blocked.rows]
    return min((moment for moment in moments if moment is not None and moment > now), default=None)
