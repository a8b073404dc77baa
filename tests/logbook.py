"""The log as its tables' owner can write it, and what `verify_log` says of it."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any
from uuid import UUID

import psycopg
from django.core.management import CommandError, call_command

from coordination import events
from coordination.models import Document, EventPosition

from .cast import Company

ADD = """
WITH e AS (
    INSERT INTO coordination_event (organization_id, kind, subject_id, created_at, data)
    SELECT %(organization)s, %(kind)s, %(subject)s::uuid,
        coalesce(%(at)s::timestamptz, clock_timestamp()) + n * interval '1 ms', jsonb_build_object('number', n)
    FROM generate_series(1, %(count)s) n
    RETURNING seq, organization_id, id, created_at
)
INSERT INTO coordination_event_unnumbered (seq, organization_id, event_id, event_created_at) SELECT * FROM e"""


@contextmanager
def as_owner() -> Iterator[psycopg.Connection[Any]]:
    """A session of the tables' owner; every statement commits."""
    options = "-c timezone=UTC"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, options=options) as owner:
        yield owner


def sql(statement: str, **params: Any) -> list[tuple[Any, ...]]:
    """Run one statement as the owner; its rows, if it has any."""
    with as_owner() as owner:
        cursor = owner.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def write(
    company: Company,
    count: int,
    *,
    at: Any = None,
    kind: str = "test.happened",
    document: Document | None = None,
    number: bool = True,
) -> None:
    """Add events, a millisecond apart from `at` (now without it) on; of a document's sections with `document`."""
    params = {
        "organization": company.organization.pk,
        "kind": kind,
        "count": count,
        "at": at,
        "subject": None,
    }
    if document is not None:
        params |= {"kind": "section.edited", "subject": document.pk}
    sql(ADD, **params)
    if number:
        events.number()


def positions(company: Company) -> list[int]:
    """The positions that are kept."""
    found = EventPosition.objects.filter(organization=company.organization)
    return list(found.order_by("position").values_list("position", flat=True))


def event_at(company: Company, position: int) -> UUID:
    """The event at a position."""
    found: UUID = EventPosition.objects.get(organization=company.organization, position=position).event_id
    return found


@dataclass(frozen=True)
class Verdict:
    """What `verify_log` says of one organization."""

    head: str
    faults: list[str]

    @property
    def places(self) -> list[int]:
        """The positions it names."""
        return [int(found[1]) for line in self.faults if (found := re.search(r"position (\d+):", line))]


def verify(company: Company, *expected: str) -> Verdict:
    """Run `verify_log` on one organization."""
    slug, out, err = company.organization.slug, StringIO(), StringIO()
    options = ["--expect", *expected] if expected else []
    try:
        call_command("verify_log", "--org", slug, *options, stdout=out, stderr=err)
        failed = ""
    except CommandError as problem:
        failed = str(problem)
    faults = [line for line in err.getvalue().splitlines() if line and not line.endswith(" so far")]
    assert bool(failed) == bool(faults), (failed, faults)
    assert all(line.startswith(f"{slug}: ") for line in faults)
    return Verdict(out.getvalue().strip(), faults)


def export(company: Company, *options: str) -> list[dict[str, Any]]:
    """What `export_log` writes."""
    out = StringIO()
    call_command("export_log", "--org", company.organization.slug, *options, stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def forget(company: Company) -> None:
    """Remove a long log, so that what looks at all of them after every later test stays fast."""
    mine = {"id": company.organization.pk}
    for table, key in (("document_position", "event_id"), ("event", "id")):
        sql(
            f"DELETE FROM coordination_{table} WHERE {key} IN"
            " (SELECT event_id FROM coordination_event_position WHERE organization_id = %(id)s)",
            **mine,
        )
    for table in ("event_unnumbered", "event_position", "log_floor", "event"):
        sql(f"DELETE FROM coordination_{table} WHERE organization_id = %(id)s", **mine)
