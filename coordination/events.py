"""The log: writing events, and giving them positions.

Numbers given before a commit lie: who remembers the last one misses what commits later. So an
event is written without a position, and whoever reads next numbers what has been committed.
"""

import hashlib
import json
from collections import Counter
from datetime import UTC
from typing import Any
from uuid import UUID

import psycopg
from django.db import InternalError, transaction

from titen.api.ids import public_id
from titen.redaction import redacted

from . import deliveries
from .database import Row, fetch, fetch_all
from .statements import logged

NUMBERING_LOCK = 0x7469_7465_6E01
BATCH = 2000

_RECORD = f"""WITH {
    logged(
        "written",
        '''
    SELECT %(organization)s::uuid, %(kind)s, %(actor)s::uuid, %(task)s::uuid, %(run)s::uuid, %(lease)s::uuid,
        %(subject)s::uuid, %(epoch)s::bigint, %(data)s::jsonb''',
    )
}
SELECT seq FROM written"""


def record(
    kind: str,
    *,
    organization_id: UUID,
    actor_id: UUID | None,
    task_id: UUID | None = None,
    run_id: UUID | None = None,
    lease_id: UUID | None = None,
    subject_id: UUID | None = None,
    epoch: int | None = None,
    user_id: UUID | None = None,
    **data: Any,
) -> None:
    """Write one event in the caller's transaction. `data` holds ids, states, numbers and codes only.

    `user_id` is a user who acts without being a principal of the organization.
    """
    if user_id is not None:
        data["user_id"] = public_id("user", user_id)
    fetch(
        _RECORD,
        {
            "organization": organization_id,
            "kind": kind,
            "actor": actor_id,
            "task": task_id,
            "run": run_id,
            "lease": lease_id,
            "subject": subject_id,
            "epoch": epoch,
            "data": json.dumps(redacted(data)),
        },
    )


_TAKE = f"""
WITH taken AS (
    DELETE FROM coordination_event_unnumbered WHERE seq IN (
        SELECT seq FROM coordination_event_unnumbered ORDER BY seq LIMIT {BATCH})
    RETURNING seq, organization_id, event_id, event_created_at
)
SELECT t.seq, t.organization_id, t.event_id, t.event_created_at, e.kind, e.actor_id, e.task_id, e.run_id, e.lease_id,
    e.subject_id, e.epoch, e.data
FROM taken t JOIN coordination_event e ON e.id = t.event_id AND e.created_at = t.event_created_at
ORDER BY t.seq"""

# Where all positions were given up, the log goes on from its floor.
_LAST = """
SELECT o.id AS organization_id, coalesce(p.position, f.position) AS position, coalesce(p.digest, f.digest) AS digest
FROM unnest(%(organizations)s::uuid[]) o (id)
LEFT JOIN LATERAL (
    SELECT position, digest FROM coordination_event_position
    WHERE organization_id = o.id ORDER BY position DESC LIMIT 1) p ON true
LEFT JOIN coordination_log_floor f ON f.organization_id = o.id
WHERE p.position IS NOT NULL OR f.position IS NOT NULL"""

# Kinds whose events also have a place in the log of the document that is their subject.
OF_DOCUMENTS = ("section.edited",)

_LAST_IN_DOCUMENT = """
SELECT d.id AS document_id, coalesce(p.position, d.floor) AS position
FROM coordination_document d
LEFT JOIN LATERAL (
    SELECT position FROM coordination_document_position
    WHERE document_id = d.id ORDER BY position DESC LIMIT 1) p ON true
WHERE d.id = ANY (%(documents)s::uuid[])"""

_PLACE_IN_DOCUMENT = """
INSERT INTO coordination_document_position (document_id, position, event_id, event_created_at)
SELECT * FROM unnest(%(documents)s::uuid[], %(positions)s::bigint[], %(events)s::uuid[], %(times)s::timestamptz[])
RETURNING 1 AS one"""

_PLACE = """
INSERT INTO coordination_event_position (organization_id, position, event_id, event_created_at, digest)
SELECT * FROM unnest(%(organizations)s::uuid[], %(positions)s::bigint[], %(events)s::uuid[],
    %(times)s::timestamptz[], %(digests)s::bytea[])
RETURNING 1 AS one"""


def digest(previous: bytes, position: int, event: Row) -> bytes:
    """SHA-256 over the entry before, the position, and the event as canonical JSON."""
    content = {
        key: event[key].hex if isinstance(event[key], UUID) else event[key]
        for key in (
            "organization_id",
            "event_id",
            "kind",
            "actor_id",
            "task_id",
            "run_id",
            "lease_id",
            "subject_id",
            "epoch",
            "data",
        )
    }
    # In UTC, whatever zone the session that reads has.
    content["created_at"] = event["event_created_at"].astimezone(UTC).isoformat()
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(previous + position.to_bytes(8) + text.encode()).digest()


def number() -> int:
    """Give every committed event its organization's next position, and its document's; how many events.

    One numbering step runs at a time, under an advisory lock that ends with its transaction. Within
    a transaction events keep the order in which they were written; an event that depends on another
    was written after that one's commit, so it comes later here too. While the database takes no writes,
    readers read what has been numbered before.
    """
    total = 0
    while True:
        try:
            count = _number_batch()
        except InternalError as problem:
            if isinstance(problem.__cause__, psycopg.errors.ReadOnlySqlTransaction):
                return total
            raise
        total += count
        if count < BATCH:
            return total


def _number_batch() -> int:
    with transaction.atomic():
        fetch("SELECT pg_advisory_xact_lock(%(key)s::bigint)::text", {"key": NUMBERING_LOCK})
        events = fetch_all(_TAKE, {})
        if events:
            _place(events)
            _place_in_documents([event for event in events if event["kind"] in OF_DOCUMENTS])
    return len(events)


def _place(events: list[Row]) -> None:
    organizations = list({event["organization_id"] for event in events})
    last: dict[UUID, tuple[int, bytes]] = dict.fromkeys(organizations, (0, bytes(32)))
    for row in fetch_all(_LAST, {"organizations": organizations}):
        last[row["organization_id"]] = (row["position"], bytes(row["digest"]))
    columns: dict[str, list[Any]] = {
        "organizations": [],
        "positions": [],
        "events": [],
        "times": [],
        "digests": [],
    }
    for event in events:
        organization = event["organization_id"]
        position = last[organization][0] + 1
        chained = digest(last[organization][1], position, event)
        last[organization] = (position, chained)
        values = (organization, position, event["event_id"], event["event_created_at"], chained)
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    fetch_all(_PLACE, columns)
    deliveries.owe(events, columns["positions"])


def _place_in_documents(events: list[Row]) -> None:
    """In the order of their organizations' positions."""
    if not events:
        return
    documents = [event["subject_id"] for event in events]
    found = fetch_all(_LAST_IN_DOCUMENT, {"documents": list(set(documents))})
    last = Counter[UUID]({row["document_id"]: row["position"] for row in found})
    positions = []
    for document in documents:
        last[document] += 1
        positions.append(last[document])
    fetch_all(
        _PLACE_IN_DOCUMENT,
        {
            "documents": documents,
            "positions": positions,
            "events": [event["event_id"] for event in events],
            "times": [event["event_created_at"] for event in events],
        },
    )


def newest_position(organization_id: UUID) -> int:
    """The last position that was given in an organization, 0 when there is none."""
    rows = fetch_all(_LAST, {"organizations": [organization_id]})
    return rows[0]["position"] if rows else 0
