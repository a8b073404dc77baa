"""Reading a log after a cursor: an organization's, or that of one document.

A cursor is a position. A page begins behind it, holds what was asked for, and says from where to go on.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal
from uuid import UUID

from titen.errors import Refused

from . import events
from .database import Row, fetch, fetch_all


@dataclass(frozen=True, slots=True)
class Log:
    """A log with positions of its own; `id` is the organization's or the document's."""

    kind: Literal["organization", "document"]
    id: UUID


@dataclass(frozen=True, slots=True)
class Selection:
    """What a follower asks for. A task is the resource `task` with its printed id, a section `section`."""

    kinds: frozenset[str] | None = None
    task_id: UUID | None = None
    resource_type: str | None = None
    resource_id: str | None = None

    def matches(self, row: Row) -> bool:
        """True for a line that was asked for: what a page's statement says in SQL."""
        return (
            (self.kinds is None or row["kind"] in self.kinds)
            and (self.task_id is None or row["task_id"] == self.task_id)
            and (self.resource_type is None or row["resource_type"] == self.resource_type)
            and (self.resource_id is None or row["resource_id"] == self.resource_id)
        )


ALL = Selection()


@dataclass(frozen=True, slots=True)
class Page:
    """Lines after a cursor, and the position to go on from.

    floor: the last position that is kept no longer; newest: the last that was given.
    missed: the cursor is none of this log as it stands: below the floor, or beyond the newest, as after
    a backup was restored. The page begins behind `start`, the floor or the newest then.
    """

    rows: list[Row]
    start: int
    position: int
    floor: int
    newest: int
    missed: bool

    @property
    def is_last(self) -> bool:
        """True when nothing stands behind it."""
        return self.position >= self.newest


_PLACES = {
    "organization": ("coordination_event_position", "organization_id"),
    "document": ("coordination_document_position", "document_id"),
}
_FLOORS = {
    "organization": "SELECT f.position FROM coordination_log_floor f WHERE f.organization_id = %(log)s",
    "document": "SELECT d.floor AS position FROM coordination_document d WHERE d.id = %(log)s",
}
_COLUMNS = """p.position, e.id, e.created_at, e.kind, e.actor_id, e.task_id, e.run_id, e.lease_id, e.subject_id,
        e.epoch, e.data, r.resource_type, r.resource_id"""
# The resource that an event is about, as leases name it.
_RESOURCE = """
    LEFT JOIN coordination_document d ON e.kind = 'section.edited' AND d.id = e.subject_id
    CROSS JOIN LATERAL (SELECT
        CASE WHEN e.task_id IS NOT NULL THEN 'task' WHEN d.id IS NOT NULL THEN 'section'
            WHEN e.kind LIKE 'lease.%%' THEN e.data ->> 'resource_type' END AS resource_type,
        CASE WHEN e.task_id IS NOT NULL THEN 'task_' || replace(e.task_id::text, '-', '')
            WHEN d.id IS NOT NULL THEN d.slug || '/' || (e.data ->> 'sectionId')
            WHEN e.kind LIKE 'lease.%%' THEN e.data ->> 'resource_id' END AS resource_id) r"""


def lines(kind: str, *, log: str, after: str, more: str = "", limit: int) -> str:
    """The SQL of the lines of a log after a position, in order; `log` and `after` are SQL too."""
    table, column = _PLACES[kind]
    return f"""SELECT {_COLUMNS}
    FROM {table} p JOIN coordination_event e ON e.id = p.event_id AND e.created_at = p.event_created_at{_RESOURCE}
    WHERE p.{column} = {log} AND p.position > {after}{more}
    ORDER BY p.position LIMIT {limit}"""


# How many positions one page looks through, whatever it finds.
SCAN = 5000
# What a page may hold. A statement each: a limit that is a parameter would spoil the plan.
SIZES = (50, 200)


@cache
def _page_sql(kind: str, limit: int) -> str:
    table, column = _PLACES[kind]
    chosen = f""" AND p.position <= c.after + {SCAN}
        AND (%(kinds)s::varchar[] IS NULL OR e.kind = ANY (%(kinds)s::varchar[]))
        AND (%(task)s::uuid IS NULL OR e.task_id = %(task)s)
        AND (%(resource_type)s::text IS NULL OR r.resource_type = %(resource_type)s)
        AND (%(resource_id)s::text IS NULL OR r.resource_id = %(resource_id)s)"""
    found = lines(kind, log="%(log)s::uuid", after="c.after", more=chosen, limit=limit)
    # The floor is of the same snapshot as the lines: what is given up meanwhile cannot be missed.
    return f"""
WITH b AS MATERIALIZED (
    SELECT coalesce(({_FLOORS[kind]}), 0) AS floor, coalesce((SELECT p.position FROM {table} p
        WHERE p.{column} = %(log)s ORDER BY p.position DESC LIMIT 1), 0) AS last
), c AS MATERIALIZED (
    SELECT floor, greatest(floor, last) AS newest, greatest(floor, %(after)s::bigint) AS after FROM b
)
SELECT c.floor, c.newest, n.* FROM c LEFT JOIN LATERAL (
    {found}
) n ON true ORDER BY n.position"""


def look(log: Log, *, after: int | None = None, selection: Selection = ALL, limit: int = SIZES[-1]) -> Page:
    """A page after a cursor; without one, from where the log begins.

    An empty page of a filtered follower still moves its cursor. Numbers first, so that a reader sees its
    own writes.
    """
    events.number()
    size = next(size for size in SIZES if limit <= size)
    found = fetch_all(
        _page_sql(log.kind, size),
        {
            "log": log.id,
            "after": after,
            "kinds": None if selection.kinds is None else sorted(selection.kinds),
            "task": selection.task_id,
            "resource_type": selection.resource_type,
            "resource_id": selection.resource_id,
        },
    )
    floor, newest = found[0]["floor"], found[0]["newest"]
    rows = [row for row in found[:limit] if row["position"] is not None]
    full = len(rows) == limit
    start = min(max(floor, after or 0), newest)
    position = rows[-1]["position"] if full else min(start + SCAN, newest)
    return Page(rows, start, position, floor, newest, missed=after is not None and after != start)


def read(log: Log, *, after: int | None = None, selection: Selection = ALL, limit: int = SIZES[-1]) -> Page:
    """`look`, for who asks page by page. `CURSOR_TOO_OLD` below the floor, with `floor` and `newest`.

    A cursor beyond the newest position is of a log that a restored backup has made shorter: its page is
    empty and goes on from the newest position, so that what comes next is not missed.
    """
    page = look(log, after=after, selection=selection, limit=limit)
    if after is not None and after < page.floor:
        raise Refused(
            "CURSOR_TOO_OLD",
            floor=page.floor + 1,
            details={"floor": str(page.floor), "newest": str(page.newest)},
        )
    return page


def newest(log: Log) -> int:
    """The last position that was given, once everything committed has one."""
    events.number()
    table, column = _PLACES[log.kind]
    row = fetch(
        f"""SELECT greatest(coalesce(({_FLOORS[log.kind]}), 0), coalesce((SELECT p.position FROM {table} p
            WHERE p.{column} = %(log)s ORDER BY p.position DESC LIMIT 1), 0)) AS position""",
        {"log": log.id},
    )
    assert row is not None
    position: int = row["position"]
    return position
