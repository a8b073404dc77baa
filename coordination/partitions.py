"""The monthly partitions of the tables that only grow."""

from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

from django.conf import settings

MONTHS_AHEAD = 12
PARTITIONED = {"coordination_event": "created_at", "coordination_renewal": "renewed_at"}


def months(first: date, count: int) -> list[tuple[date, date]]:
    """`count` months from that of `first` on, each as (its first day, the next one's first day)."""
    starts = [
        date(first.year + (first.month - 1 + i) // 12, (first.month - 1 + i) % 12 + 1, 1)
        for i in range(count + 1)
    ]
    return list(pairwise(starts))


def make_ahead(cursor: Any) -> None:
    """Make the partitions of this month and the coming year. Needs the owner's role.

    A default partition takes what falls outside, so that an insert never fails for want of one.
    """
    for table in PARTITIONED:
        for start, end in months(datetime.now(UTC).date(), MONTHS_AHEAD):
            partition = f"{table}_{start:%Y_%m}"
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {partition} PARTITION OF {table}"
                f" FOR VALUES FROM ('{start}') TO ('{end}')"
            )
            if settings.DB_ROLE:
                # The parent's rights are enough, and there the log can only be added to.
                cursor.execute(f'REVOKE ALL ON {partition} FROM "{settings.DB_ROLE}"')
