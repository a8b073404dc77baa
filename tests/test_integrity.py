"""Whoever changes the log is found out: each kind of tampering, by the one who may write its tables."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from coordination import events
from coordination.database import fetch
from coordination.models import Document
from coordination.shapes import event_json

from .cast import Company, founded
from .logbook import Verdict, event_at, forget, positions, sql, verify, write

pytestmark = pytest.mark.alone

LONG = 50_000


@pytest.fixture
def company() -> Iterator[Company]:
    """An organization with a log of its own; what was done to it goes at the end."""
    with founded("") as company:
        write(company, 12)
        yield company
    forget(company)


@pytest.fixture
def document(company: Company) -> Document:
    """A document with three events of its sections."""
    document = Document.objects.create(organization=company.organization, slug="handbook")
    write(company, 3, document=document)
    return document


def test_a_log_that_nobody_touched_holds(company: Company, document: Document) -> None:
    verdict = verify(company)
    assert verdict.faults == []
    assert verdict.head.startswith(f"{company.organization.slug}:{positions(company)[-1]}:")
    assert verify(company, verdict.head).faults == []


# Statements as the owner -> the first positions that are named. %(e)s is the event at position 5.
TAMPERING: dict[str, tuple[str, list[int]]] = {
    "its data is changed": (
        "UPDATE coordination_event SET data = data || '{\"number\": 99}' WHERE id = %(e)s",
        [5],
    ),
    "its kind is changed": ("UPDATE coordination_event SET kind = 'test.forged' WHERE id = %(e)s", [5]),
    "its time is changed": (
        "UPDATE coordination_event SET created_at = created_at + interval '1 us' WHERE id = %(e)s",
        [5],
    ),
    "its time is changed, and where the position says it": (
        "WITH e AS (UPDATE coordination_event SET created_at = created_at + interval '1 us' WHERE id = %(e)s"
        " RETURNING id, created_at) UPDATE coordination_event_position p SET event_created_at = e.created_at"
        " FROM e WHERE p.event_id = e.id",
        [5],
    ),
    "somebody else did it": (
        "UPDATE coordination_event SET actor_id = gen_random_uuid() WHERE id = %(e)s",
        [5],
    ),
    "it is given to another organization": (
        "UPDATE coordination_event SET organization_id = gen_random_uuid() WHERE id = %(e)s",
        [5],
    ),
    "the event is deleted": ("DELETE FROM coordination_event WHERE id = %(e)s", [5]),
    "event and position are deleted": (
        "WITH e AS (DELETE FROM coordination_event WHERE id = %(e)s)"
        " DELETE FROM coordination_event_position WHERE event_id = %(e)s",
        [5],
    ),
    "the beginning is deleted": (
        "WITH p AS (DELETE FROM coordination_event_position WHERE organization_id = %(o)s AND position <= 5"
        " RETURNING event_id) DELETE FROM coordination_event WHERE id IN (SELECT event_id FROM p)",
        [1],
    ),
    "two events change places": (
        "UPDATE coordination_event_position SET position = -position WHERE organization_id = %(o)s"
        " AND position IN (5, 6);"
        "UPDATE coordination_event_position SET position = 11 + position WHERE organization_id = %(o)s"
        " AND position < 0",
        [5, 6, 7],
    ),
    "a digest is changed": (
        "UPDATE coordination_event_position SET digest = sha256('forged') WHERE event_id = %(e)s",
        [5, 6],
    ),
    "it is renumbered": (
        "UPDATE coordination_event_position SET position = 1000 WHERE event_id = %(e)s",
        [5],
    ),
    "a line is slipped in": (
        "UPDATE coordination_event_position SET position = -position WHERE organization_id = %(o)s AND position > 5;"
        "UPDATE coordination_event_position SET position = 1 - position WHERE organization_id = %(o)s AND position < 0;"
        "WITH e AS (INSERT INTO coordination_event (organization_id, kind) VALUES (%(o)s, 'test.forged')"
        " RETURNING id, created_at)"
        " INSERT INTO coordination_event_position (organization_id, position, event_id, event_created_at, digest)"
        " SELECT %(o)s, 6, id, created_at, sha256('x') FROM e",
        [6, 7],
    ),
}


@pytest.mark.parametrize("what", TAMPERING)
def test_a_line_that_was_tampered_with_is_named(company: Company, what: str) -> None:
    statements, places = TAMPERING[what]
    known = {"e": event_at(company, 5), "o": company.organization.pk}
    for statement in statements.split(";"):
        sql(statement, **known)
    assert verify(company).places[: len(places)] == places


def test_a_line_without_a_position_is_named(company: Company) -> None:
    sql(
        "INSERT INTO coordination_event (organization_id, kind) VALUES (%(o)s, 'test.forged')",
        o=company.organization.pk,
    )
    (fault,) = verify(company).faults
    assert "stands in the log without a position" in fault


PLACES = {
    "a place is missing": "DELETE FROM coordination_document_position WHERE document_id = %(d)s AND position = 2",
    "a place is renumbered": (
        "UPDATE coordination_document_position SET position = 9 WHERE document_id = %(d)s AND position = 2"
    ),
    "a place is another document's": (
        "UPDATE coordination_document_position SET document_id = gen_random_uuid()"
        " WHERE document_id = %(d)s AND position = 2"
    ),
    "a place has another time": (
        "UPDATE coordination_document_position SET event_created_at = event_created_at + interval '1 s'"
        " WHERE document_id = %(d)s AND position = 2"
    ),
}


@pytest.mark.parametrize("what", PLACES)
def test_a_wrong_place_in_a_document_is_named(company: Company, document: Document, what: str) -> None:
    sql(PLACES[what], d=document.pk)
    assert positions(company)[-2] in verify(company).places


def rewrite(company: Company, position: int) -> None:
    """What only the owner of the tables can do: change a line and compute every digest after it anew."""
    sql("UPDATE coordination_event SET kind = 'test.forged' WHERE id = %(e)s", e=event_at(company, position))
    previous = sql(
        "SELECT digest FROM coordination_event_position WHERE organization_id = %(o)s AND position = %(p)s",
        o=company.organization.pk,
        p=position - 1,
    )[0][0]
    for place in range(position, positions(company)[-1] + 1):
        row = fetch(
            "SELECT p.event_id, p.event_created_at, e.* FROM coordination_event_position p"
            " JOIN coordination_event e ON e.id = p.event_id"
            " WHERE p.organization_id = %(o)s AND p.position = %(p)s",
            {"o": company.organization.pk, "p": place},
        )
        assert row is not None
        previous = events.digest(bytes(previous), place, row)
        sql(
            "UPDATE coordination_event_position SET digest = %(d)s WHERE event_id = %(e)s",
            d=previous,
            e=row["event_id"],
        )


def cut(company: Company, position: int) -> None:
    """Delete the newest lines."""
    sql(
        "WITH p AS (DELETE FROM coordination_event_position WHERE organization_id = %(o)s AND position >= %(p)s"
        " RETURNING event_id) DELETE FROM coordination_event WHERE id IN (SELECT event_id FROM p)",
        o=company.organization.pk,
        p=position,
    )


@pytest.mark.parametrize(("forge", "words"), [(rewrite, "the log was rewritten"), (cut, "the log ends at")])
def test_a_rewritten_or_shortened_log_is_found_by_a_head_kept_elsewhere(
    company: Company, forge: Any, words: str
) -> None:
    kept = verify(company).head
    newest = positions(company)[-1]
    write(company, 1)
    assert verify(company, kept).faults == []
    forge(company, newest - 1)
    assert verify(company).faults == [], "it holds together"
    verdict = verify(company, kept)
    assert verdict.places == [newest]
    assert words in verdict.faults[0]


def test_a_shortened_log_that_went_on_is_found_too(company: Company) -> None:
    kept = verify(company).head
    cut(company, positions(company)[-1] - 2)
    write(company, 20)
    assert "the log was rewritten" in verify(company, kept).faults[0]


def test_all_organizations_are_looked_at_and_a_lost_one_is_missed(
    company: Company, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = verify(company).head
    call_command("verify_log", "--expect", kept)
    assert kept in capsys.readouterr().out.splitlines()
    with pytest.raises(CommandError, match="1 fault"):
        call_command("verify_log", "--expect", "nobody:1:" + "0" * 64)
    with pytest.raises(CommandError, match="There is no organization nobody"):
        call_command("verify_log", "--org", "nobody")
    with pytest.raises(CommandError, match="must be ORG:POSITION:DIGEST"):
        call_command("verify_log", "--expect", "nobody:1")


AWKWARD = r"""{"whole": 9223372036854775809, "small": 1e-9, "tenth": 0.1, "trailing": 1.50, "exponent": 1E3,
    "minus": -0.0, "large": 1.7976931348623157e308, "long": 3.14159265358979323846264338327950288,
    "text": "\u00fc\u2028\ud83d\ude00\"\\\\", "nested": {"b": [1, 2.0, null, true], "a": {}}, "": ""}"""


def test_awkward_data_has_one_digest_however_it_is_read(company: Company) -> None:
    sql(
        "WITH e AS (INSERT INTO coordination_event (organization_id, kind, data) VALUES (%(o)s, 'test.odd', %(d)s::jsonb)"
        " RETURNING seq, organization_id, id, created_at) INSERT INTO coordination_event_unnumbered"
        " (seq, organization_id, event_id, event_created_at) SELECT * FROM e",
        o=company.organization.pk,
        d=AWKWARD,
    )
    events.number()
    assert verify(company).faults == []
    # As a dump and a restore do: through text and back.
    sql(
        "UPDATE coordination_event SET data = data::text::jsonb, created_at = created_at::text::timestamptz"
        " WHERE organization_id = %(o)s",
        o=company.organization.pk,
    )
    assert verify(company).faults == []


OTHER: dict[str, Any] = {
    "organization_id": UUID(int=1),
    "event_id": UUID(int=2),
    "event_created_at": datetime(2026, 1, 2, tzinfo=UTC),
    "kind": "test.other",
    **dict.fromkeys(["actor_id", "task_id", "run_id", "lease_id", "subject_id"], UUID(int=3)),
    "epoch": 7,
    "data": {"other": True},
}


@pytest.mark.parametrize("name", OTHER)
def test_everything_that_a_reader_is_shown_is_in_the_digest(name: str) -> None:
    event = dict.fromkeys(OTHER, None) | {
        "event_created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "organization_id": UUID(int=9),
    }
    before = events.digest(bytes(32), 1, event)
    assert events.digest(bytes(32), 1, event | {name: OTHER[name]}) != before
    assert events.digest(bytes(32), 2, event) != before
    shown = event_json(
        {**event, "position": 1, "id": UUID(int=9), "kind": "", "created_at": event["event_created_at"]},
        sees_holders=True,
    )
    assert set(shown) - {"id", "created_at", "cursor"} <= set(OTHER)


def test_a_long_log_is_verified_fast(company: Company) -> None:
    write(company, LONG)
    began = time.monotonic()
    verdict = verify(company)
    took = time.monotonic() - began
    print(f"\nverify_log: {LONG:,} events in {took:.1f} s, {LONG / took:,.0f} a second")
    assert verdict == Verdict(verdict.head, [])
    assert took < 30
