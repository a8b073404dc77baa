"""Old months are given up: what is kept stays readable and whole, and nobody who writes is held up or refused."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from coordination import events, retention
from coordination.models import Document, Event, EventPosition, LogFloor

from .cast import Agent, Company, found_company
from .locking import second_connection, until
from .logbook import event_at, export, forget, positions, sql, verify, write
from .months import drop, exists, half_a_year, month, partition
from .servers import Server


@pytest.fixture
def old_months(database: None) -> Iterator[None]:
    """Partitions of the last six months."""
    with half_a_year():
        yield


@pytest.fixture
def company(web: Server, old_months: None) -> Iterator[Company]:
    """An organization whose log is six months old, with ten events in each month: 11 to 20 five months ago."""
    company = found_company(web.url)
    sql("DELETE FROM coordination_event_unnumbered WHERE organization_id = %(o)s", o=company.organization.pk)
    sql("DELETE FROM coordination_event WHERE organization_id = %(o)s", o=company.organization.pk)
    for back in range(6, -1, -1):
        write(company, 10, at=month(back) + timedelta(hours=1))
    yield company
    for agent in company.agents:
        agent.close()
    forget(company)


def floor(company: Company) -> int:
    """Where its log begins."""
    found = LogFloor.objects.filter(organization=company.organization).first()
    return found.position if found else 0


def test_months_that_are_over_for_long_enough_are_dropped(company: Company, agent: Agent) -> None:
    kept = verify(company).head
    said = drop(3)
    assert [line for line in said if "_event_" in line] == [
        f"Dropped {partition(back)}." for back in (6, 5, 4)
    ]
    assert floor(company) == 30
    assert positions(company)[0] == 31
    assert not any(exists(partition(back)) for back in (6, 5, 4))
    assert exists(partition(3))
    assert verify(company, kept).faults == []
    write(company, 5)
    assert verify(company, kept).faults == []
    assert [line["cursor"] for line in export(company)][:2] == ["31", "32"]
    assert not [line for line in drop(3) if "_event_" in line], "a second run finds nothing to do"


def test_all_is_kept_unless_it_is_said_how_long(company: Company) -> None:
    drop(0)
    assert floor(company) == 0
    assert exists(partition(6))


def test_a_follower_that_was_away_too_long_is_told(company: Company) -> None:
    follower = company.agent()
    events.number()
    assert follower.get("/events", params={"after": "5", "limit": 1})["events"]
    drop(3)
    for path in ("/events", "/events/export"):
        error = follower.refused("CURSOR_TOO_OLD", path, method="GET", params={"after": "29"})
        assert error["details"]["floor"] == "30"
    page = follower.get("/events", params={"after": "30", "limit": 100})
    assert [event["cursor"] for event in page["events"]][:2] == ["31", "32"]


def test_a_log_that_was_given_up_whole_goes_on_from_its_floor(old_months: None) -> None:
    company = found_company()
    events.number()
    before = positions(company)[-1]
    sql(
        "WITH e AS (DELETE FROM coordination_event WHERE organization_id = %(o)s)"
        " DELETE FROM coordination_event_position WHERE organization_id = %(o)s",
        o=company.organization.pk,
    )
    document = Document.objects.create(organization=company.organization, slug="handbook")
    write(company, 4, at=month(5))
    write(company, 3, at=month(5) + timedelta(days=1), document=document)
    assert before > 0
    drop(3)
    assert (floor(company), positions(company)) == (7, [])
    assert Document.objects.get(pk=document.pk).floor == 3
    write(company, 2)
    write(company, 2, document=document)
    assert positions(company) == [8, 9, 10, 11]
    places = sql(
        "SELECT position FROM coordination_document_position WHERE document_id = %(d)s ORDER BY 1",
        d=document.pk,
    )
    assert places == [(4,), (5,)]
    assert verify(company).faults == []
    forget(company)


def test_what_is_young_is_never_given_up_whatever_stands_behind_it(company: Company) -> None:
    """A transaction that was slow over the end of a month leaves an older event behind a younger one."""
    write(company, 1, at=month(5) + timedelta(hours=2), kind="test.late")
    newest = positions(company)[-1]
    drop(3)
    assert floor(company) == 30
    assert not exists(partition(5))
    assert positions(company) == list(range(31, newest + 1))
    assert Event.objects.get(pk=event_at(company, newest)).kind == "test.late"
    assert verify(company).faults == []
    default = "SELECT count(*) FROM coordination_event_default WHERE organization_id = %(o)s"
    assert sql(default, o=company.organization.pk) == [(1,)]


def test_old_rows_of_the_default_partition_go_too(company: Company) -> None:
    early = found_company()
    sql("DELETE FROM coordination_event_unnumbered WHERE organization_id = %(o)s", o=early.organization.pk)
    sql("DELETE FROM coordination_event WHERE organization_id = %(o)s", o=early.organization.pk)
    write(early, 5, at=datetime(2020, 2, 1, tzinfo=UTC))
    write(early, 5)
    default = "SELECT count(*) FROM coordination_event_default WHERE organization_id = %(o)s"
    assert sql(default, o=early.organization.pk) == [(5,)]
    drop(3)
    assert sql(default, o=early.organization.pk) == [(0,)]
    assert (floor(early), positions(early)) == (5, [6, 7, 8, 9, 10])
    assert verify(early).faults == []
    forget(early)


OWED = """
INSERT INTO coordination_delivery
    (webhook_id, organization_id, kind, event_id, event_created_at, position, object_key)
SELECT w.id, p.organization_id, 'test.happened', p.event_id, p.event_created_at, p.position, 'x'
FROM coordination_event_position p
JOIN coordination_webhook w ON w.organization_id = p.organization_id
WHERE p.organization_id = %(o)s AND p.position = 15"""


def test_a_month_that_a_webhook_waits_for_stays(company: Company) -> None:
    agent = company.agent()
    own = {"o": company.organization.pk}
    sql(
        "INSERT INTO coordination_webhook (organization_id, principal_id, url, kinds, scopes, description, secret,"
        " failures_in_a_row, pause_reason) VALUES (%(o)s, %(p)s, 'https://x.invalid', '{}', '{}', '', '', 0, '')",
        p=agent.principal.pk,
        **own,
    )
    sql(OWED, **own)
    drop(3)
    assert floor(company) == 10, "up to the month before"
    sql(
        "UPDATE coordination_delivery SET status = 'failed', ended_at = now() WHERE organization_id = %(o)s",
        **own,
    )
    drop(3)
    assert floor(company) == 30
    sql("DELETE FROM coordination_delivery WHERE organization_id = %(o)s", **own)
    sql("DELETE FROM coordination_webhook WHERE organization_id = %(o)s", **own)


def test_writers_and_readers_are_neither_refused_nor_missed_while_months_are_dropped(
    company: Company,
) -> None:
    written, problems, stop = [0] * 4, list[BaseException](), threading.Event()

    def work(mine: int) -> None:
        try:
            while not stop.is_set():
                with transaction.atomic():
                    events.record(
                        "test.busy",
                        organization_id=company.organization.pk,
                        actor_id=None,
                        number=written[mine],
                    )
                written[mine] += 1
                if mine == 0:
                    events.number()
                    EventPosition.objects.filter(organization=company.organization).count()
        except BaseException as problem:
            problems.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=[mine]) for mine in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: min(written) > 3, "everybody writes")
    said = drop(3)
    before = list(written)
    until(
        lambda: all(now > then for now, then in zip(written, before, strict=True)), "everybody still writes"
    )
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len([line for line in said if line.startswith("Dropped coordination_event")]) == 3
    events.number()
    assert Event.objects.filter(organization=company.organization, kind="test.busy").count() == sum(written)
    assert positions(company) == list(range(31, 71 + sum(written)))


def test_a_month_that_somebody_reads_stays_until_the_next_run(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TRIES", 2)
    with second_connection() as reader:
        reader.run(f"SELECT FROM {partition(6)} LIMIT 1")
        said = drop(3)
        assert f"{partition(6)} stays until the next run: it is in use." in said
        assert exists(partition(6))
        assert floor(company) == 30
        assert verify(company).faults == [], "what is still there has its positions"
    assert f"Dropped {partition(6)}." in drop(3)
    assert positions(company)[0] == 31


def test_nothing_is_dropped_while_a_whole_log_is_read(company: Company) -> None:
    with second_connection() as reader:
        reader.run("SELECT pg_advisory_lock_shared(%s)", retention.LOCK)
        assert drop(3) == ["Somebody reads or shortens the whole log right now: nothing was dropped."]
    until(lambda: drop(3)[0].startswith("Dropped"), "the drop")


def test_a_run_that_was_cut_short_is_finished_by_the_next(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Floors are raised and months dropped, but the positions are still there."""

    def fail() -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(retention, "_delete_positions", fail)
        with pytest.raises(RuntimeError, match="killed"):
            drop(3)
    assert positions(company)[0] == 1
    assert verify(company).faults == []
    drop(3)
    assert positions(company)[0] == 31
    assert verify(company).faults == []


def test_the_command_and_migrate_do_it_by_the_setting(company: Company, settings: Any) -> None:
    settings.EVENTS_KEPT_MONTHS = 4
    out = StringIO()
    call_command("drop_old_events", stdout=out)
    assert f"Dropped {partition(5)}." in out.getvalue()
    assert exists(partition(4))
    settings.EVENTS_KEPT_MONTHS = 3
    call_command("migrate", verbosity=0, stderr=StringIO())
    assert not exists(partition(4))
