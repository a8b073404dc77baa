"""A document's own log: pages and streams, as clients of the section leases expect them."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from .cast import Agent, Company, founded
from .clockwork import sql
from .editing import SLUG, acquire, delete_document, expire, log_of, release
from .following import Follower
from .hub import eventually, run_hub
from .servers import Server

pytestmark = pytest.mark.alone

BACKLOG = 5000


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub("tests.hub_quick:application") as server:
        yield server
        assert not server.trouble()


def path(slug: str = SLUG) -> str:
    return f"/api/v1/documents/{quote(slug, safe='')}/events"


def get(agent: Agent, *, slug: str = SLUG, **query: str) -> httpx.Response:
    return agent.client.get(path(slug), params=query)


def watch(agent: Agent, hub: Server, *, slug: str = SLUG, **options: Any) -> Follower:
    return Follower(hub.url, agent.secret, path=f"{path(slug)}/stream", **options)


def write(company: Company, count: int, slug: str = SLUG) -> None:
    """Many entries at once."""
    sql(
        "WITH e AS (INSERT INTO coordination_event (organization_id, kind, subject_id, data)"
        " SELECT d.organization_id, 'section.edited', d.id,"
        "  jsonb_build_object('event', 'SECTION_LEASED', 'sectionId', 's' || n)"
        " FROM coordination_document d, generate_series(1, %s) n"
        " WHERE d.organization_id = %s AND d.slug = %s ORDER BY n RETURNING seq, organization_id, id, created_at)"
        " INSERT INTO coordination_event_unnumbered (seq, organization_id, event_id, event_created_at)"
        " SELECT * FROM e",
        count,
        company.organization.pk,
        slug,
    )


@pytest.fixture
def edited(company: Company, agent: Agent) -> list[Any]:
    """A document whose log has three entries: leased, released, leased; their payloads."""
    acquire(agent)
    release(agent)
    acquire(agent)
    return [payload for _, payload in log_of(company)]


def test_entries_are_printed_as_clients_know_them(agent: Agent, edited: list[Any]) -> None:
    answer = get(agent)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    page = answer.json()
    assert set(page) == {"events", "has_more", "next_since"}
    assert [entry["payload"] for entry in page["events"]] == edited
    assert [entry["seq"] for entry in page["events"]] == ["1", "2", "3"]
    first = page["events"][0]
    assert set(first) == {"id", "seq", "event_type", "actor_id", "payload", "created_at"}
    assert first["event_type"] == "section.edited"
    assert first["actor_id"] == str(agent.principal.pk)
    assert first["payload"]["event"] == "SECTION_LEASED"
    assert (page["has_more"], page["next_since"]) == (False, "3")


def test_paging_ends(company: Company, agent: Agent, edited: list[Any]) -> None:
    write(company, 450)
    found, since, pages = [], "0", 0
    while True:
        page = get(agent, since=since, limit="200").json()
        found += [int(entry["seq"]) for entry in page["events"]]
        since, pages = page["next_since"], pages + 1
        if not page["has_more"]:
            break
    assert found == list(range(1, 454))
    assert pages == 3
    assert get(agent, since=since).json() == {"events": [], "has_more": False, "next_since": since}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "x"}, "since"),
        ({"since": "-1"}, "since"),
        ({"since": "1.5"}, "since"),
        ({"since": ""}, "since"),
        ({"since": "9" * 19}, "since"),
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"before": "1"}, "before"),
    ],
)
def test_a_bad_query_is_400_and_named(
    hub: Server, agent: Agent, edited: list[Any], query: dict[str, str], field: str
) -> None:
    answer = get(agent, **query)
    assert answer.status_code == 400
    assert (answer.json()["error"], answer.json()["field"]) == ("VALIDATION_ERROR", field)
    with Follower(hub.url, agent.secret, path=f"{path()}/stream", **query) as stream:
        assert stream.answer.status_code == 400


def test_a_bad_last_event_id_is_400(hub: Server, agent: Agent, edited: list[Any]) -> None:
    with watch(agent, hub, last="x") as stream:
        assert stream.answer.status_code == 400


def test_an_unknown_document_has_no_log_and_another_organizations_is_unknown(
    hub: Server, agent: Agent, edited: list[Any]
) -> None:
    with founded(agent.url) as elsewhere:
        stranger = elsewhere.agent()
        for who, slug in ((agent, "no-such-document"), (stranger, SLUG)):
            answer = get(who, slug=slug)
            assert (answer.status_code, answer.json()["error"]) == (404, "NOT_FOUND")
            with watch(who, hub, slug=slug) as stream:
                assert stream.answer.status_code == 404


def test_the_scope_is_leases_read(company: Company, hub: Server, edited: list[Any]) -> None:
    lacking = company.agent(scopes="events:read")
    assert get(lacking).status_code == 403
    with watch(lacking, hub) as stream:
        assert stream.answer.status_code == 403
    assert get(company.agent(scopes="leases:read")).status_code == 200
    assert httpx.get(f"{lacking.url}{path()}").json()["error"] == "UNAUTHENTICATED"


def test_the_log_of_a_deleted_document_tells_its_end_and_its_revival(
    hub: Server, company: Company, agent: Agent, edited: list[Any]
) -> None:
    with watch(agent, hub) as stream:
        assert delete_document(agent).status_code == 200
        assert len(get(agent).json()["events"]) == 4
        acquire(agent)
        eventually(lambda: len(stream.events) >= 5)
        kinds = [entry["payload"]["event"] for entry in stream.events]
        assert kinds[2:] == ["SECTION_LEASED", "SECTION_LEASE_RELEASED", "SECTION_LEASED"]


def test_a_stream_begins_at_the_beginning_and_goes_on(
    hub: Server, company: Company, agent: Agent, other: Agent, edited: list[Any]
) -> None:
    with watch(agent, hub) as stream:
        eventually(lambda: len(stream.events) == 3)
        release(agent)
        acquire(other)
        eventually(lambda: len(stream.events) == 5)
        assert stream.events == get(agent).json()["events"]
        assert [(message.id, message.event) for message in stream.messages] == [
            (str(number), "section.edited") for number in range(1, 6)
        ]
        assert [entry["payload"] for entry in stream.events] == [payload for _, payload in log_of(company)]
        eventually(lambda: stream.pings)


def test_the_last_event_id_wins_over_since(hub: Server, agent: Agent, edited: list[Any]) -> None:
    with watch(agent, hub, since="0", last="2") as stream, watch(agent, hub, since="1") as later:
        eventually(lambda: stream.events and len(later.events) >= 2)
        assert [message.id for message in stream.messages] == ["3"]
        assert [message.id for message in later.messages] == ["2", "3"]


def test_a_long_backlog_drains(hub: Server, company: Company, agent: Agent, edited: list[Any]) -> None:
    write(company, BACKLOG)
    with watch(agent, hub) as stream:
        eventually(lambda: len(stream.events) >= BACKLOG)
        write(company, 10)
        eventually(lambda: len(stream.events) >= BACKLOG + 13)
        assert [int(message.id) for message in stream.messages] == list(range(1, BACKLOG + 14))


def test_a_since_below_the_floor_is_told(
    hub: Server, company: Company, agent: Agent, edited: list[Any]
) -> None:
    sql(
        "UPDATE coordination_document SET floor = 2 WHERE organization_id = %s AND slug = %s",
        company.organization.pk,
        SLUG,
    )
    answer = get(agent, since="1")
    assert answer.status_code == 410
    told = answer.json()
    assert (told["error"], told["floor"], told["newest"]) == ("CURSOR_TOO_OLD", "2", "3")
    assert [entry["seq"] for entry in get(agent).json()["events"]] == ["3"]
    with watch(agent, hub, since="1") as stream:
        eventually(lambda: stream.events)
        assert [(message.id, message.event) for message in stream.messages] == [
            ("2", "resync"),
            ("3", "section.edited"),
        ]
    sql("UPDATE coordination_document SET floor = 0 WHERE organization_id = %s", company.organization.pk)


def test_a_stream_ends_with_its_key_by_an_error_at_which_clients_stop(
    hub: Server, company: Company, edited: list[Any]
) -> None:
    reader = company.agent(scopes="leases:read keys:manage")
    with watch(reader, hub) as stream:
        eventually(lambda: stream.events)
        key = reader.get("/keys")["keys"][0]["key_id"]
        reader.client.delete(f"/v1/keys/{key}")
        assert stream.ended.wait(10)
        assert (stream.messages[-1].event, stream.messages[-1].data) == (
            "error",
            {"error": "UNAUTHENTICATED"},
        )


def test_what_runs_out_shows_within_15_s_with_nobody_but_the_hub(
    database: None, company: Company, agent: Agent, edited: list[Any]
) -> None:
    with run_hub() as real, watch(agent, real, last="2") as stream:
        eventually(lambda: stream.events)
        # As late as can be: the hub has just swept.
        expire(acquire(agent, sid="other"))
        eventually(lambda: len(stream.events) >= 2)
        began = time.monotonic()
        eventually(lambda: len(stream.events) >= 3, within=16)
        assert time.monotonic() - began < 15
        last = stream.events[-1]
        assert (last["payload"]["event"], last["payload"]["holder"]) == ("SECTION_LEASE_EXPIRED", "ada")
        assert last["actor_id"] == "system"
