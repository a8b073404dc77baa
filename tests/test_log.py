"""The log: positions without gaps, pages, filters, the hash chain, and no text of people."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction

from coordination import events
from coordination.models import Event, EventPosition

from .cast import Agent, Company, found_company

SECRET_WORDS = "walrus-and-carpenter"


def record(company: Company, kind: str = "policy.rule_added", **data: Any) -> None:
    events.record(kind, organization_id=company.organization.pk, actor_id=None, **data)


@contextmanager
def another_session() -> Iterator[psycopg.Connection[Any]]:
    """A second session of the same database, with a transaction that stays open."""
    parameters = connection.get_connection_params()
    with psycopg.connect(**{**parameters, "cursor_factory": psycopg.Cursor}) as session:
        yield session


def follow(
    agent: Agent, *, after: str = "0", limit: int = 7, **query: Any
) -> tuple[list[dict[str, Any]], str]:
    """Read pages until the cursor stops moving."""
    found: list[dict[str, Any]] = []
    while True:
        page = agent.get("/events", params={"after": after, "limit": limit, **query})
        found += page["events"]
        if page["cursor"] == after:
            return found, after
        after = page["cursor"]


def test_a_reader_sees_its_own_writes_at_once(agent: Agent) -> None:
    task = agent.create()
    assert follow(agent)[0][-1]["task_id"] == task["id"]


def test_positions_have_no_gaps_and_no_follower_misses_what_commits_late(
    company: Company, agent: Agent
) -> None:
    record(company)
    _, cursor = follow(agent)
    with another_session() as late:
        late.execute(
            "WITH e AS (INSERT INTO coordination_event (organization_id, kind) VALUES (%s, 'policy.rule_ended')"
            " RETURNING seq, organization_id, id, created_at) INSERT INTO coordination_event_unnumbered"
            " (seq, organization_id, event_id, event_created_at) SELECT * FROM e",
            [company.organization.pk],
        )
        record(company)
        first, cursor = follow(agent, after=cursor)
        late.commit()
    record(company)
    second, _ = follow(agent, after=cursor)
    assert [event["kind"] for event in first] == ["policy.rule_added"]
    assert [event["kind"] for event in second] == ["policy.rule_ended", "policy.rule_added"]


def test_many_writers_and_numberers_leave_each_event_one_position(company: Company, agent: Agent) -> None:
    def write() -> None:
        try:
            for number in range(40):
                with transaction.atomic():
                    record(company, number=number)
                    record(company, number=number)
                events.number()
        finally:
            connections.close_all()

    writers = [threading.Thread(target=write) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found, cursor = follow(agent, limit=100, kind="policy.rule_added")
    assert len({event["id"] for event in found}) == len(found) == 640
    assert int(cursor) == EventPosition.objects.filter(organization=company.organization).count()


def test_events_of_a_transaction_keep_their_order(company: Company, agent: Agent) -> None:
    _, cursor = follow(agent)
    with transaction.atomic():
        for number in range(20):
            record(company, number=number)
    found, _ = follow(agent, after=cursor)
    assert [event["data"]["number"] for event in found] == list(range(20))


def test_an_empty_page_of_a_filtered_follower_moves_its_cursor(company: Company, agent: Agent) -> None:
    for _ in range(5):
        record(company)
    page = agent.get("/events", params={"after": "0", "kind": "limit.set"})
    assert page["events"] == []
    assert int(page["cursor"]) >= 5


def test_filters_by_kind_and_task(agent: Agent) -> None:
    first, second = agent.create(), agent.create()
    agent.claim(task_id=second["id"])
    found, _ = follow(agent, kind="task.created,task.claimed", task_id=second["id"])
    assert [(event["kind"], event["task_id"]) for event in found] == [
        ("task.created", second["id"]),
        ("task.claimed", second["id"]),
    ]
    assert first["id"] not in {event["task_id"] for event in found}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"after": "-1"}, "after"),
        ({"after": "9" * 30}, "after"),
        ({"after": "x"}, "after"),
        ({"kind": "TASK"}, "kind"),
        ({"task_id": "task_1"}, "task_id"),
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"afterr": "1"}, "afterr"),
    ],
)
def test_a_bad_query_is_refused_by_name(agent: Agent, query: dict[str, str], field: str) -> None:
    error = agent.refused("VALIDATION_ERROR", "/events", method="GET", params=query)
    assert field in error["details"]["fields"]


def test_another_organization_has_its_own_positions(company: Company, agent: Agent) -> None:
    stranger = found_company(company.url)
    record(company)
    record(stranger)
    outsider = stranger.agent()
    mine, _ = follow(agent)
    theirs, _ = follow(outsider)
    outsider.close()
    assert not {event["id"] for event in mine} & {event["id"] for event in theirs}
    assert [event["cursor"] for event in theirs] == [str(number + 1) for number in range(len(theirs))]


def chain(company: Company) -> list[bool]:
    """For each position, whether its digest follows from the entry before and the event."""
    previous, holds = bytes(32), []
    places = EventPosition.objects.filter(organization=company.organization).order_by("position")
    for place in places:
        found: dict[str, Any] = dict(Event.objects.filter(pk=place.event_id).values().get())
        event = {**found, "event_id": found["id"], "event_created_at": found["created_at"]}
        holds.append(events.digest(previous, place.position, event) == bytes(place.digest))
        previous = bytes(place.digest)
    return holds


def test_the_chain_of_digests_holds_and_a_changed_line_breaks_it(company: Company, agent: Agent) -> None:
    agent.create()
    agent.claim()
    events.number()
    assert all(chain(company))
    assert len(chain(company)) >= 4
    victim = (
        Event.objects.filter(organization=company.organization, kind="task.created")
        .values("pk", "data")
        .get()
    )
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET ROLE NONE")
            cursor.execute("UPDATE coordination_event SET kind = 'task.forged' WHERE id = %s", [victim["pk"]])
        assert not all(chain(company))
        transaction.set_rollback(True)
    with connection.cursor() as cursor:
        cursor.execute("SET ROLE titen_app")


def test_events_hold_no_text_that_people_or_agents_wrote(
    company: Company, agent: Agent, other: Agent
) -> None:
    task = agent.create(SECRET_WORDS, description=SECRET_WORDS, payload={"text": SECRET_WORDS})
    claim = agent.claim(task_id=task["id"])
    run, epoch = claim["run"]["id"], claim["lease"]["epoch"]
    agent.post(f"/runs/{run}/heartbeat", {"epoch": epoch, "status": SECRET_WORDS})
    asked = agent.post(
        f"/tasks/{task['id']}/comments",
        {"body": SECRET_WORDS, "blocking": True, "run_id": run, "epoch": epoch},
    )
    other.post(f"/tasks/{task['id']}/comments/{asked['id']}/answer", {"body": SECRET_WORDS})
    agent.post(f"/runs/{run}/fail", {"epoch": epoch, "error": SECRET_WORDS, "retryable": False})
    agent.post(f"/tasks/{task['id']}/cancel", {"reason": SECRET_WORDS})
    found, _ = follow(agent, limit=100)
    assert {"task.claimed", "comment.asked", "comment.answered", "task.failed", "task.cancelled"} <= {
        event["kind"] for event in found
    }
    assert SECRET_WORDS not in str(found)
