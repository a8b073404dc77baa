"""Months that are over, and their partitions."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime

from coordination import partitions, retention

from .logbook import as_owner, sql


def month(back: int) -> datetime:
    """The beginning of the month so many months ago."""
    today = datetime.now(UTC).date()
    ((start, _),) = partitions.months(date(today.year - 2, today.month, 1), 24 - back + 1)[-1:]
    return datetime(start.year, start.month, 1, tzinfo=UTC)


def partition(back: int, table: str = "coordination_event") -> str:
    """The name of that month's partition."""
    return f"{table}_{month(back):%Y_%m}"


def exists(name: str) -> bool:
    """True while the table is there."""
    return bool(sql("SELECT to_regclass(%(name)s) IS NOT NULL", name=name)[0][0])


@contextmanager
def half_a_year() -> Iterator[None]:
    """Partitions of the last six months, as a server has that runs for so long."""
    with as_owner() as owner:
        for back in range(1, 7):
            for table in partitions.PARTITIONED:
                partitions.make_month(owner, table, month(back).date(), month(back - 1).date())
    yield
    with as_owner() as owner:
        for back in range(1, 7):
            for table in partitions.PARTITIONED:
                owner.execute(f"DROP TABLE IF EXISTS {partition(back, table)}")


def drop(months_kept: int) -> list[str]:
    """Run retention as the owner."""
    with partitions.as_owner():
        return retention.drop_old(months_kept=months_kept)
