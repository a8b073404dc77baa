"""Giving up the oldest part of the log, and the traces of heartbeats. All of it as the owner of the tables.

An organization's log begins behind its floor: the floor is written first, then what lies at or below it goes,
whole months at a time. Every step finds what is left to do by itself, so that one that was cut short is
finished by the next run. Nothing that is younger than the limit is given up, whatever its neighbours are.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from django.db import OperationalError, connection, transaction

from . import events, partitions
from .database import fetch, fetch_all

# Whoever reads a whole log holds it shared, whoever gives up a part of it holds it alone.
LOCK = 0x7469_7465_6E02
BATCH = 5000
# Events of an old month that a younger neighbour keeps: so many are moved, more make the month stay.
MOVED_AT_MOST = 10_000
# A DROP waits for everybody who uses the table, and everybody else waits behind it: never longer than this.
DROP_WAITS = "200ms"
# Such a pause, in seconds, lets them all pass; so often it is tried again.
PAUSE = 0.3
TRIES = 20


@contextmanager
def undisturbed() -> Iterator[None]:
    """Nothing of any log is given up inside the block. Waits for a run that is under way."""
    fetch("SELECT pg_advisory_lock_shared(%(key)s::bigint)::text", {"key": LOCK})
    try:
        yield
    finally:
        fetch("SELECT pg_advisory_unlock_shared(%(key)s::bigint)", {"key": LOCK})


def drop_old(*, months_kept: int) -> list[str]:
    """Give up the events of months that ended more than `months_kept` months ago (0: none), and the
    partitions of renewals that nothing needs; a sentence for each thing that was dropped or had to stay.

    It never waits long for a lock, and holds none for long: what is in use stays until the next run.
    """
    held = fetch("SELECT pg_try_advisory_lock(%(key)s::bigint) AS mine", {"key": LOCK})
    if not held or not held["mine"]:
        return ["Somebody reads or shortens the whole log right now: nothing was dropped."]
    try:
        said = _drop_events(months_kept) if months_kept else []
        return said + _drop_renewals()
    finally:
        fetch("SELECT pg_advisory_unlock(%(key)s::bigint)", {"key": LOCK})


# Nothing is given up from the month on that holds an event without a position, or one that a webhook waits for.
_CUTOFF = """
SELECT least(
    date_trunc('month', clock_timestamp(), 'UTC') - make_interval(months => %(months)s::int),
    (SELECT date_trunc('month', min(event_created_at), 'UTC') FROM coordination_event_unnumbered),
    (SELECT date_trunc('month', min(event_created_at), 'UTC') FROM coordination_delivery WHERE status = 'pending')
) AS cutoff"""


def _drop_events(months_kept: int) -> list[str]:
    events.number()
    found = fetch(_CUTOFF, {"months": months_kept})
    if found is None:
        return []
    cutoff: datetime = found["cutoff"]
    for row in fetch_all("SELECT id FROM coordination_organization", {}):
        with transaction.atomic():
            _raise_floor(row["id"], cutoff)
    with connection.cursor() as cursor:
        old = partitions.older_than(cursor, "coordination_event", cutoff.date())
    said = [_drop("coordination_event", name, _give_up_events) for name in old]
    _delete_in_batches(_DELETE_FROM_DEFAULT)
    _delete_positions()
    _delete_in_batches(_DELETE_DOCUMENT_POSITIONS)
    return said


# The last position before the first event that is young enough to stay.
_NEW_FLOOR = """
SELECT p.position, p.digest FROM coordination_event_position p
WHERE p.organization_id = %(organization)s AND p.position = coalesce(
    (SELECT q.position - 1 FROM coordination_event_position q
        WHERE q.organization_id = %(organization)s AND q.event_created_at >= %(cutoff)s
            AND q.position > coalesce((SELECT position FROM coordination_log_floor
                WHERE organization_id = %(organization)s), 0)
        ORDER BY q.position LIMIT 1),
    (SELECT max(q.position) FROM coordination_event_position q WHERE q.organization_id = %(organization)s))"""

_RAISE_FLOOR = """
INSERT INTO coordination_log_floor AS f (organization_id, position, digest)
VALUES (%(organization)s, %(position)s, %(digest)s)
ON CONFLICT (organization_id) DO UPDATE SET position = excluded.position, digest = excluded.digest
    WHERE f.position < excluded.position
RETURNING f.position"""

# A document's places are in the order of its organization's, so they are given up from the beginning, too.
_RAISE_FLOORS_OF_DOCUMENTS = """
UPDATE coordination_document d SET floor = g.position
FROM (
    SELECT o.document_id, max(o.position) AS position
    FROM coordination_document c
    JOIN coordination_document_position o ON o.document_id = c.id AND o.position > c.floor
    JOIN coordination_event_position p ON p.event_id = o.event_id AND p.position <= %(position)s
    WHERE c.organization_id = %(organization)s
    GROUP BY o.document_id) g
WHERE d.id = g.document_id
RETURNING d.id"""


def _raise_floor(organization_id: UUID, cutoff: datetime) -> None:
    """From now on readers below it are told; what lies below it is still there."""
    found = fetch(_NEW_FLOOR, {"organization": organization_id, "cutoff": cutoff})
    if found is None:
        return
    if fetch(_RAISE_FLOOR, {"organization": organization_id, **found}):
        fetch_all(
            _RAISE_FLOORS_OF_DOCUMENTS, {"organization": organization_id, "position": found["position"]}
        )


# What of a month is not given up: it stands above the floor, or has no position.
_STAYING = """
SELECT e.id FROM ONLY {partition} e
LEFT JOIN coordination_event_position p ON p.event_id = e.id AND p.event_created_at = e.created_at
LEFT JOIN coordination_log_floor f ON f.organization_id = p.organization_id
WHERE f.position IS NULL OR p.position > f.position
LIMIT {limit}"""


class _StaysError(Exception):
    """The partition is still needed; the sentence says for what."""


def _give_up_events(cursor: Any, partition: str) -> str:
    """What saves the few events of `partition` that stay: into the default partition, once it is detached."""
    cursor.execute(_STAYING.format(partition=partition, limit=MOVED_AT_MOST + 1))
    staying = [row[0] for row in cursor.fetchall()]
    if len(staying) > MOVED_AT_MOST:
        raise _StaysError("more than a few of its events stand above the floors of their logs")
    if not staying:
        return ""
    ids = ", ".join(f"'{value}'" for value in staying)
    return f"INSERT INTO coordination_event SELECT * FROM {partition} WHERE id IN ({ids})"


# Renewals are kept until a week after their lease ended, as the hourly clean-up does with single rows.
_NEEDED_RENEWALS = """
SELECT FROM ONLY {partition} n LEFT JOIN coordination_lease l ON l.id = n.lease_id
WHERE l.ended_at IS NULL OR l.ended_at >= clock_timestamp() - interval '7 days' LIMIT 1"""


def _give_up_renewals(cursor: Any, partition: str) -> str:
    """Nothing of it is saved."""
    cursor.execute(_NEEDED_RENEWALS.format(partition=partition))
    if cursor.fetchone() is not None:
        raise _StaysError("it has renewals of leases that live or ended less than a week ago")
    return ""


def _drop_renewals() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT (clock_timestamp() - interval '7 days')::date")
        old = partitions.older_than(cursor, "coordination_renewal", cursor.fetchone()[0])
    return [_drop("coordination_renewal", name, _give_up_renewals) for name in old]


def _drop(table: str, partition: str, give_up: Callable[[Any, str], str]) -> str:
    """Drop one partition; a sentence says what came of it. `give_up` gives the statement that saves some rows.

    A default partition rules DETACH CONCURRENTLY out. So the search for what stays is made under a lock that
    only writers into this very month would notice, and everybody's lock is taken for a moment at the end.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '5s'")
            cursor.execute(f"LOCK TABLE ONLY {partition} IN SHARE MODE")
            save = give_up(cursor, partition)
            cursor.execute(f"SET LOCAL lock_timeout = '{DROP_WAITS}'")
            _insist(
                f"ALTER TABLE {table} DETACH PARTITION {partition}; {save or 'SELECT'}; DROP TABLE {partition}"
            )
    except _StaysError as reason:
        return f"{partition} stays: {reason}."
    except OperationalError as problem:
        if not isinstance(problem.__cause__, psycopg.errors.LockNotAvailable):
            raise
        return f"{partition} stays until the next run: it is in use."
    return f"Dropped {partition}."


def _insist(statements: str) -> None:
    """Run statements that wait for everybody's lock, again and again; nobody waits for them meanwhile."""
    for tries in range(TRIES, 0, -1):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statements)
                return
        except OperationalError as problem:
            if tries == 1 or not isinstance(problem.__cause__, psycopg.errors.LockNotAvailable):
                raise
        time.sleep(PAUSE)


_DELETE_FROM_DEFAULT = f"""
DELETE FROM coordination_event_default WHERE (id, created_at) IN (
    SELECT e.id, e.created_at FROM coordination_event_default e
    JOIN coordination_event_position p ON p.event_id = e.id AND p.event_created_at = e.created_at
    JOIN coordination_log_floor f ON f.organization_id = p.organization_id AND p.position <= f.position
    LIMIT {BATCH})
RETURNING 1 AS one"""

_DELETE_DOCUMENT_POSITIONS = f"""
DELETE FROM coordination_document_position WHERE event_id IN (
    SELECT o.event_id FROM coordination_document d
    JOIN coordination_document_position o ON o.document_id = d.id AND o.position <= d.floor
    WHERE d.floor > 0 AND NOT EXISTS (
        SELECT FROM coordination_event e WHERE e.id = o.event_id AND e.created_at = o.event_created_at)
    LIMIT {BATCH})
RETURNING 1 AS one"""


def _delete_in_batches(statement: str) -> None:
    while len(fetch_all(statement, {})) == BATCH:
        pass


_FLOORS = """
SELECT f.organization_id, f.position,
    (SELECT min(p.position) FROM coordination_event_position p WHERE p.organization_id = f.organization_id) AS first
FROM coordination_log_floor f"""

# A month that had to stay keeps its positions: the log's check knows no event without one.
_DELETE_POSITIONS = """
DELETE FROM coordination_event_position p
WHERE p.organization_id = %(organization)s AND p.position >= %(first)s AND p.position <= %(last)s
    AND NOT EXISTS (
        SELECT FROM coordination_event e WHERE e.id = p.event_id AND e.created_at = p.event_created_at)
RETURNING 1 AS one"""


def _delete_positions() -> None:
    for row in fetch_all(_FLOORS, {}):
        for first in range(row["first"] or row["position"] + 1, row["position"] + 1, BATCH):
            last = min(first + BATCH - 1, row["position"])
            params = {"organization": row["organization_id"], "first": first, "last": last}
            fetch_all(_DELETE_POSITIONS, params)
