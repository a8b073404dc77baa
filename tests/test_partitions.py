"""The monthly partitions: made ahead, dropped when nothing needs them, and closed to the application."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from coordination import partitions

from .cast import found_company
from .clockwork import sql as as_application
from .logbook import forget, sql, write
from .months import drop, exists, half_a_year, month, partition


@pytest.fixture
def old_months(database: None) -> Iterator[None]:
    """Partitions of the last six months."""
    with half_a_year():
        yield


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM coordination_event",
        "DELETE FROM coordination_event_position",
        "DELETE FROM coordination_document_position",
        "UPDATE coordination_log_floor SET position = 0",
        "INSERT INTO coordination_log_floor VALUES (gen_random_uuid(), 1, '')",
        "DELETE FROM coordination_log_floor",
        "DROP TABLE coordination_event_default",
    ],
)
def test_the_applications_role_can_give_up_nothing(statement: str) -> None:
    with pytest.raises(DatabaseError, match=r"permission denied|must be owner"), transaction.atomic():
        as_application(statement)


def test_renewals_go_by_the_month_once_no_lease_needs_them(old_months: None, claimed: Any) -> None:
    add = (
        "INSERT INTO coordination_renewal (lease_id, renewed_at, expires_at)"
        " SELECT id, %(at)s, %(at)s FROM coordination_lease WHERE id = %(lease)s"
    )
    lease = claimed["lease"]["lease_id"].removeprefix("lease_")
    sql(add, at=month(3), lease=lease)
    said = drop(0)
    name = partition(3, "coordination_renewal")
    assert f"{name} stays: it has renewals of leases that live or ended less than a week ago." in said
    assert not exists(partition(4, "coordination_renewal"))
    sql(f"DELETE FROM {name}")
    assert f"Dropped {name}." in drop(0)


def test_a_month_that_the_default_partition_has_begun_stays_there() -> None:
    """A server that nobody migrated for a year must still be able to migrate."""
    company = found_company()
    ahead = datetime.now(UTC) + timedelta(days=200)
    name = f"coordination_event_{ahead:%Y_%m}"
    sql(f"DROP TABLE {name}")
    write(company, 1, at=ahead)
    with partitions.as_owner(), connection.cursor() as cursor:
        partitions.make_ahead(cursor)
    assert not exists(name)
    forget(company)
    with partitions.as_owner(), connection.cursor() as cursor:
        partitions.make_ahead(cursor)
    assert exists(name)
