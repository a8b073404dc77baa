"""The monthly partitions of the tables that only grow."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

MONTHS_AHEAD = 12
PARTITIONED = {"coordination_event": "created_at", "coordination_renewal": "renewed_at"}


@contextmanager
def as_owner(alias: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """Act as the user of DATABASE_URL, who owns the tables, instead of the application's role."""
    connection = connections[alias]
    options = connection.settings_dict["OPTIONS"].pop("options", None)
    connection.close()
    try:
        yield
    finally:
        connection.close()
        if options is not None:
            connection.settings_dict["OPTIONS"]["options"] = options


def months(first: date, count: int) -> list[tuple[date, date]]:
    """`count` months from that of `first` on, each as (its first day, the next one's first day)."""
    starts = [
        date(first.year + (first.month - 1 + i) // 12, (first.month - 1 + i) % 12 + 1, 1)
        for i in range(count + 1)
    ]
    return list(pairwise(starts))


def make_ahead(cursor: Any) -> None:
    """Make the partitions of this month and the coming year. Needs the owner's role.

    A default partition takes what falls outside, so that an insert never fails for want of one. A month
    of which it holds rows already stays there: PostgreSQL refuses a partition beside them.
    """
    for table, column in PARTITIONED.items():
        for start, end in months(datetime.now(UTC).date(), MONTHS_AHEAD):
            cursor.execute(
                f"SELECT FROM {table}_default WHERE {column} >= %s AND {column} < %s LIMIT 1", [start, end]
            )
            if cursor.fetchone() is None:
                make_month(cursor, table, start, end)


def make_month(cursor: Any, table: str, start: date, end: date) -> None:
    """Make the partition of one month, unless it is there."""
    partition = f"{table}_{start:%Y_%m}"
    cursor.execute(
        f"CREATE TABLE IF NOT EXISTS {partition} PARTITION OF {table}"
        f" FOR VALUES FROM ('{start}') TO ('{end}')"
    )
    if settings.DB_ROLE:
        # The parent's rights are enough, and there the log can only be added to.
        cursor.execute(f'REVOKE ALL ON {partition} FROM "{settings.DB_ROLE}"')


_OLD = """
SELECT c.oid::regclass::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = %s::regclass AND c.relname ~ '_[0-9]{4}_[0-9]{2}$' AND right(c.relname, 7) < %s
ORDER BY right(c.relname, 7)"""


def older_than(cursor: Any, table: str, month: date) -> list[str]:
    """The partitions of the months before `month`, the oldest first."""
    cursor.execute(_OLD, [table, f"{month:%Y_%m}"])
    return [name for (name,) in cursor.fetchall()]
