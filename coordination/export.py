"""The log as JSON Lines: every line of one organization after a cursor, page by page."""

import json
from collections.abc import Iterator
from uuid import UUID

from . import following
from .database import Row, fetch_all
from .shapes import event_json
from .visibility import Sight

# Read in pages instead of by a cursor, so that a slow reader keeps no snapshot open.
PAGE = 1000

_PAGE = f"""
SELECT p.position, p.digest, e.id, e.created_at, e.kind, e.actor_id, e.task_id, e.run_id, e.lease_id, e.subject_id,
    e.epoch, e.data
FROM coordination_event_position p
JOIN coordination_event e ON e.id = p.event_id AND e.created_at = p.event_created_at
WHERE p.organization_id = %(organization)s AND p.position > %(after)s AND p.position <= %(until)s
ORDER BY p.position LIMIT {PAGE}"""


class BrokenLogError(Exception):
    """A position that must be there is not: the log is damaged."""


def bounds(organization_id: UUID, *, after: int | None) -> tuple[int, int]:
    """(after, until): what an export that begins now holds; without a cursor, from where the log begins.

    Numbers first. `CURSOR_TOO_OLD` below the floor.
    """
    log = following.Log("organization", organization_id)
    page = following.read(log, after=after, limit=1)
    return page.floor if after is None else after, page.newest


def lines(sight: Sight, *, after: int, until: int) -> Iterator[bytes]:
    """The lines of positions `after` < n <= `until` that a reader sees, a page at a time, each with its line end.

    Who sees everything gets each line's digest as well: to others it would confirm guesses about what is
    hidden from them. Where a position is missing: `CURSOR_TOO_OLD` if it was given up meanwhile, else
    `BrokenLogError`.
    """
    while after < until:
        params = {"organization": sight.organization_id, "after": after, "until": until}
        # Planned anew: a plan from when the log was short would read far too much.
        rows = fetch_all(_PAGE, params, prepare=False)
        places = [row["position"] for row in rows]
        wanted = range(after + 1, min(after + PAGE, until) + 1)
        if missing := sorted({*wanted}.difference(places)):
            bounds(sight.organization_id, after=after)
            raise BrokenLogError(f"position {missing[0]} is missing")
        after = places[-1]
        yield b"".join(_line(row, sight) for row in rows if sight.sees(row["kind"]))


def _line(row: Row, sight: Sight) -> bytes:
    content = event_json(row, sees_holders=not sight.hides_actor(row))
    if sight.everything:
        content["digest"] = bytes(row["digest"]).hex()
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
