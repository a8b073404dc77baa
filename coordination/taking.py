"""Taking the deliveries that are due, with all that is needed to send them.

Of the deliveries to one webhook about one object only the first that is owed may be under way, so that they
keep their order over retries.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from titen.api.ids import public_id

from .database import Row, fetch, fetch_all
from .deliveries import sight_of
from .locks import clock
from .shapes import event_json
from .times import stamp

# How many deliveries to one webhook may be under way, so that one that hangs takes little.
AT_ONCE = 4
# How many of a webhook's that are due are looked at together.
LOOK = 2000
# A worker that has not said what came of an attempt after so many times the longest one is dead.
TAKEN_SHARE = 3

_DUE = """status = 'pending' AND d.next_attempt_at <= %(at)s::timestamptz
    AND (d.taken_until IS NULL OR d.taken_until <= %(at)s::timestamptz)"""

_SOMETHING_DUE = f"""
SELECT count(*) AS count FROM coordination_webhook w JOIN coordination_principal p ON p.id = w.principal_id
WHERE w.deleted_at IS NULL AND w.paused_at IS NULL AND p.disabled_at IS NULL
    AND EXISTS (SELECT FROM coordination_delivery d WHERE d.webhook_id = w.id AND d.{_DUE})"""

# Whoever has a webhook's row takes for it; others pass over it.
_HOLD_WEBHOOKS = f"""
SELECT w.id FROM coordination_webhook w JOIN coordination_principal p ON p.id = w.principal_id
WHERE w.deleted_at IS NULL AND w.paused_at IS NULL AND p.disabled_at IS NULL
    AND EXISTS (SELECT FROM coordination_delivery d WHERE d.webhook_id = w.id AND d.{_DUE})
ORDER BY w.id FOR NO KEY UPDATE OF w SKIP LOCKED"""

# Of what is due the first of each object is taken. What waits behind another is put off until that one can
# be over, so that it is not looked at again and again; whoever ends the other makes it due (`next_in_line`).
_TAKE = f"""WITH looked AS MATERIALIZED (
    SELECT n.* FROM unnest(%(webhooks)s::uuid[]) w (id) CROSS JOIN LATERAL (
        SELECT d.id, d.webhook_id, d.object_key, d.position, d.next_attempt_at FROM coordination_delivery d
        WHERE d.webhook_id = w.id AND d.{_DUE} ORDER BY d.next_attempt_at LIMIT {LOOK}
    ) n
), heads AS MATERIALIZED (
    SELECT o.webhook_id, o.object_key, h.position, h.until
    FROM (SELECT DISTINCT webhook_id, object_key FROM looked) o CROSS JOIN LATERAL (
        SELECT e.position, greatest(e.next_attempt_at, e.taken_until) AS until FROM coordination_delivery e
        WHERE e.webhook_id = o.webhook_id AND e.object_key = o.object_key AND e.status = 'pending'
        ORDER BY e.position LIMIT 1
    ) h
), judged AS MATERIALIZED (
    SELECT l.*, h.until + interval '1 ms' AS behind, coalesce(h.position < l.position, false) AS waits
    FROM looked l JOIN heads h ON h.webhook_id = l.webhook_id AND h.object_key = l.object_key
), put_off AS (
    UPDATE coordination_delivery d SET next_attempt_at = j.behind
    FROM judged j WHERE d.id = j.id AND j.waits AND j.behind > j.next_attempt_at
), chosen AS MATERIALIZED (
    SELECT c.id, row_number() OVER (ORDER BY c.rank, c.next_attempt_at) AS place
    FROM (
        SELECT j.*, row_number() OVER (PARTITION BY j.webhook_id ORDER BY j.next_attempt_at, j.id) AS rank
        FROM judged j WHERE NOT j.waits
    ) c CROSS JOIN LATERAL (
        SELECT count(*) AS count FROM coordination_delivery d
        WHERE d.webhook_id = c.webhook_id AND d.taken_until > %(at)s::timestamptz
    ) under_way
    WHERE c.rank <= {AT_ONCE} AND c.rank + under_way.count <= {AT_ONCE}
), taken AS (
    UPDATE coordination_delivery d SET taken_until = %(at)s::timestamptz + %(seconds)s * interval '1 s',
        attempt_count = d.attempt_count + 1, last_attempt_at = %(at)s::timestamptz
    FROM chosen c WHERE d.id = c.id AND c.place <= %(room)s
    RETURNING d.id, d.webhook_id, d.organization_id, d.kind, d.event_id, d.event_created_at, d.position,
        d.attempt_count, d.created_at, d.last_attempt_at
)
SELECT t.id AS delivery_id, t.webhook_id, t.organization_id, t.kind, t.event_id AS id, t.position, t.attempt_count,
    t.last_attempt_at, coalesce(t.event_created_at, t.created_at) AS created_at, e.id IS NOT NULL AS known,
    e.actor_id, e.task_id, e.run_id, e.lease_id, e.subject_id, e.epoch, e.data, w.url, w.principal_id, w.scopes,
    w.secret, CASE WHEN w.previous_until > t.last_attempt_at THEN w.previous_secret END AS previous_secret
FROM taken t JOIN coordination_webhook w ON w.id = t.webhook_id
LEFT JOIN coordination_event e ON e.id = t.event_id AND e.created_at = t.event_created_at
ORDER BY t.position"""


@dataclass(frozen=True, slots=True)
class Taken:
    """One attempt: what is sent, where, and with which (sealed) secrets it is signed.

    `problem` is why it is not sent at all: what it is about is gone, or is not for the webhook any more.
    """

    delivery_id: UUID
    webhook_id: UUID
    attempt: int
    at: datetime
    url: str
    body: bytes
    secrets: tuple[bytes, ...]
    problem: str = ""


def due() -> int:
    """How many webhooks have something due; one cheap look."""
    row = fetch(_SOMETHING_DUE, {"at": clock()})
    return row["count"] if row else 0


def take(room: int) -> list[Taken]:
    """Take at most `room` deliveries that are due. Who takes one says what came of it, or is taken for dead.

    Takers pass over each other's webhooks; one webhook has at most four under way.
    """
    if room <= 0:
        return []
    webhooks = [row["id"] for row in fetch_all(_HOLD_WEBHOOKS, {"at": clock()})]
    if not webhooks:
        return []
    seconds = settings.WEBHOOK_TIMEOUT_SECONDS * TAKEN_SHARE
    rows = fetch_all(_TAKE, {"webhooks": webhooks, "at": clock(), "seconds": seconds, "room": room})
    return [_taken(row) for row in rows]


def _taken(row: Row) -> Taken:
    problem = ""
    if row["id"] is not None:
        problem = "" if row["known"] else "event_gone"
        problem = problem if sight_of(row).sees(row["kind"]) else "not_visible"
    return Taken(
        delivery_id=row["delivery_id"],
        webhook_id=row["webhook_id"],
        attempt=row["attempt_count"],
        at=row["last_attempt_at"],
        url=row["url"],
        body=b"" if problem else body_of(row),
        secrets=tuple(bytes(row[name]) for name in ("secret", "previous_secret") if row[name] is not None),
        problem=problem,
    )


def body_of(row: Row) -> bytes:
    """The body: the same bytes at every attempt, since they come from an event, which never changes."""
    organization = public_id("org", row["organization_id"])
    if row["id"] is None:
        data: dict[str, Any] = {"webhook": public_id("whk", row["webhook_id"]), "organization": organization}
    else:
        sight = sight_of(row)
        event = event_json(row, sees_holders=sight.sees_holders, reader_id=sight.reader_id)
        data = {
            "event": event["id"],
            "cursor": event["cursor"],
            "organization": organization,
            "actor": event["actor_id"],
            "object": {name: event[name] for name in ("task_id", "run_id", "lease_id", "subject_id")},
            "epoch": event["epoch"],
            "data": event["data"],
        }
    content = {"type": row["kind"], "timestamp": stamp(row["created_at"]), "data": data}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
