"""Streams of the log: what they send, where they begin and go on, whom they leave out, when they close."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.utils import timezone

from coordination.models import ApiKey, Membership, Principal

from .cast import Agent, Company, Human, founded
from .following import (
    STREAM,
    Follower,
    Message,
    floor_at,
    follow,
    log_of,
    messages_of,
    write_events,
)
from .hub import connections_of, eventually, run_hub
from .leasing import named
from .servers import Server
from .test_hub_streams import log_in

pytestmark = pytest.mark.alone

CLOSED = ("closed", {"code": "UNAUTHENTICATED"})


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    """It looks after its streams once a second and allows a principal five."""
    with run_hub("tests.hub_quick:application") as server:
        yield server
        assert not server.trouble()


@pytest.fixture
def listed(agent: Agent) -> Callable[..., list[Any]]:
    """The events as pages give them."""

    def listed(**query: Any) -> list[Any]:
        found, cursor = [], None
        while True:
            page = agent.get(
                "/events", params={"limit": 200, **query, **({"after": cursor} if cursor else {})}
            )
            found += page["events"]
            if page["cursor"] == cursor:
                return found
            cursor = page["cursor"]

    return listed


def test_a_stream_without_a_cursor_begins_now_and_shows_what_a_page_shows(
    hub: Server, agent: Agent, listed: Callable[..., list[Any]]
) -> None:
    agent.create("Before")
    with follow(agent, hub.url) as stream:
        assert stream.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.answer.headers["cache-control"] == "no-store"
        assert "content-length" not in stream.answer.headers
        (place,) = eventually(lambda: stream.messages)
        assert (place.event, place.data) == ("cursor", {"cursor": place.id})
        task = agent.create("After")
        agent.claim(task_id=task["id"])
        wanted = listed(after=place.id)
        eventually(lambda: len(stream.events) >= len(wanted))
        assert stream.events == wanted
        assert [(one.id, one.event) for one in stream.messages[1:]] == [
            (event["cursor"], event["kind"]) for event in wanted
        ]
        assert {"task.created", "task.claimed"} <= {event["kind"] for event in wanted}


def test_the_first_bytes_are_a_comment_and_the_pause_before_coming_again(hub: Server, agent: Agent) -> None:
    headers = {"Authorization": f"Bearer {agent.secret}"}
    with httpx.stream("GET", f"{hub.url}{STREAM}", headers=headers) as answer:
        assert next(answer.iter_bytes()).startswith(b": events follow\nretry: 1000\n\n")


def test_a_stream_goes_on_behind_the_last_id_which_wins_over_after(
    hub: Server, company: Company, agent: Agent
) -> None:
    write_events(company, 450)
    with follow(agent, hub.url, after="0") as whole:
        eventually(lambda: len(whole.events) >= 450)
    log = log_of(company)
    assert [event["id"] for event in whole.events] == log
    with Follower(hub.url, agent.secret, after="0", last="440") as rest:
        write_events(company, 3)
        eventually(lambda: len(rest.events) >= len(log) + 3 - 440)
        assert [event["id"] for event in rest.events] == log_of(company)[440:]


def test_filters_choose_the_same_from_the_backlog_and_from_what_is_new(
    hub: Server, agent: Agent, other: Agent, listed: Callable[..., list[Any]]
) -> None:
    def happen() -> tuple[str, Any]:
        task = agent.create()["id"]
        agent.claim(task_id=task)
        lease = agent.post("/leases", named("shop/checkout"))
        agent.post("/leases", named("shop/search"))
        agent.client.delete(f"/v1/leases/{lease['lease_id']}")
        path = "/api/v1/documents/book/sections/a%2Fb/lease"
        for sid in ("/api/v1/documents/book/sections/c/lease", path):
            assert agent.client.post(sid, json={"leaseDurationSeconds": 60}).status_code == 200
            assert agent.client.delete(sid).status_code == 200
        return task, lease

    task, _ = happen()
    cases: list[dict[str, str]] = [
        {"kind": "task.claimed"},
        {"kind": "task.claimed,lease.acquired"},
        {"task_id": task},
        {"resource_type": "task", "resource_id": task},
        {"resource_type": "task"},
        {"resource_type": "shop"},
        {"resource_type": "shop", "resource_id": "checkout"},
        {"resource_type": "section", "resource_id": "book/a/b"},
        {"resource_type": "section"},
        {"resource_type": "shop", "kind": "lease.released"},
        {"resource_type": "nothing"},
    ]
    with ExitStack() as stack:
        # A principal may have five streams.
        readers = [agent, other] * 5
        streams = [
            (case, stack.enter_context(follow(reader, hub.url, after="0", **case)))
            for case, reader in zip(cases[:-1], readers, strict=True)
        ]
        happen()
        for case, stream in streams:
            wanted = listed(**case)
            eventually(lambda: len(stream.events) >= len(wanted))  # noqa: B023
            assert stream.events == wanted, case
            assert len(wanted) >= 2, case
    assert listed(**cases[-1]) == []
    assert len(listed(resource_type="shop", resource_id="checkout")) == 4
    assert {
        event["data"]["sectionId"] for event in listed(resource_type="section", resource_id="book/a/b")
    } == {"a/b"}


def test_a_stream_that_shows_nothing_says_where_it_stands(
    hub: Server, company: Company, agent: Agent
) -> None:
    with follow(agent, hub.url, kind="limit.set") as stream:
        eventually(lambda: stream.messages)
        write_events(company, 7)
        eventually(lambda: stream.last == str(len(log_of(company))))
        assert stream.events == []
        assert {message.event for message in stream.messages} == {"cursor"}
        pings = stream.pings
        eventually(lambda: stream.pings > pings)


def test_it_says_so_at_once_after_a_thousand_positions(hub: Server, company: Company, agent: Agent) -> None:
    write_events(company, 6100)
    with follow(agent, hub.url, kind="limit.set", after="0") as stream:
        eventually(lambda: int(stream.last or 0) >= 6100)
        # The first page looks through 5,000 positions.
        assert int(stream.messages[0].id) == 5000


@pytest.mark.parametrize(
    ("query", "last", "field"),
    [
        ({"after": "-1"}, None, "after"),
        ({"after": "x"}, None, "after"),
        ({"after": "9" * 19}, None, "after"),
        ({}, "x", "Last-Event-ID"),
        ({}, "-1", "Last-Event-ID"),
        ({"after": "1"}, "1.5", "Last-Event-ID"),
        ({"kind": "TASK"}, None, "kind"),
        ({"resource_id": "checkout"}, None, "resource_type"),
        ({"limit": "5"}, None, "limit"),
        ({"org": "acme"}, None, "org"),
    ],
)
def test_a_bad_query_opens_no_stream(
    hub: Server, agent: Agent, query: dict[str, str], last: str | None, field: str
) -> None:
    headers = {"Authorization": f"Bearer {agent.secret}"} | ({"Last-Event-ID": last} if last else {})
    answer = httpx.get(f"{hub.url}{STREAM}", params=query, headers=headers)
    assert answer.status_code == 400
    assert field in answer.json()["error"]["details"]["fields"]


def test_who_may_not_follow_is_told_as_at_every_door(hub: Server, company: Company) -> None:
    lacking = company.agent(scopes="tasks:read")
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer titen_sk_unknown"}, 401),
        ({"Authorization": f"Bearer {lacking.secret}"}, 403),
    ):
        answer = httpx.get(f"{hub.url}{STREAM}", headers=headers)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
    answer = httpx.post(f"{hub.url}{STREAM}", headers={"Authorization": f"Bearer {company.agent().secret}"})
    assert answer.status_code == 405


def test_a_person_follows_an_organization_of_theirs(hub: Server, company: Company, agent: Agent) -> None:
    person = company.human("viewer")
    session = log_in(person).session_key or ""
    with Follower(hub.url, session=session, org=company.organization.slug) as stream:
        eventually(lambda: stream.messages)
        agent.post("/leases", named("shop"))
        eventually(lambda: stream.events)
        assert stream.events[0]["actor_id"] == agent.get("/principal")["principal_id"]
    with founded(hub.url) as elsewhere:
        for slug in (elsewhere.organization.slug, "no-such-organization"):
            answer = httpx.get(f"{hub.url}{STREAM}", params={"org": slug}, cookies={"sessionid": session})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")
    answer = httpx.get(f"{hub.url}{STREAM}", cookies={"sessionid": session})
    assert "org" in answer.json()["error"]["details"]["fields"]


def test_a_cursor_below_the_floor_gets_one_resync_and_what_is_kept(
    hub: Server, company: Company, agent: Agent
) -> None:
    write_events(company, 20)
    newest = int(agent.get("/events", params={"limit": 200})["cursor"])
    with floor_at(company, 12), follow(agent, hub.url, after="3") as stream:
        agent.create()
        eventually(lambda: len(stream.events) > newest - 12)
        first = stream.messages[0]
        assert first == Message("12", "resync", {"floor": "12", "newest": str(newest)})
        assert len(stream.signs("resync")) == 1
        assert [event["cursor"] for event in stream.events[:3]] == ["13", "14", "15"]


def test_pages_below_the_floor_are_gone_and_a_page_without_a_cursor_begins_there(
    company: Company, agent: Agent
) -> None:
    write_events(company, 20)
    newest = agent.get("/events", params={"limit": 200})["cursor"]
    with floor_at(company, 12):
        for after in ("0", "11"):
            error = agent.refused("CURSOR_TOO_OLD", "/events", method="GET", params={"after": after})
            assert error["details"] == {"floor": "12", "newest": newest}
        for query in ({}, {"after": "12"}):
            assert agent.get("/events", params=query)["events"][0]["cursor"] == "13"


def test_a_cursor_of_a_longer_log_goes_on_from_the_newest_position(
    hub: Server, company: Company, agent: Agent
) -> None:
    """As after a backup was restored: what comes next must not be missed."""
    write_events(company, 5)
    newest = agent.get("/events")["cursor"]
    page = agent.get("/events", params={"after": "900"})
    assert page == {"events": [], "cursor": newest}
    with follow(agent, hub.url, after="900") as stream:
        (sign,) = eventually(lambda: stream.messages)
        assert sign == Message(newest, "resync", {"floor": "0", "newest": newest})
        agent.create()
        eventually(lambda: stream.events)
        assert stream.events[0]["cursor"] == str(int(newest) + 1)


@pytest.mark.parametrize("how", ["revoked", "expired", "disabled"])
def test_a_stream_ends_with_its_key(hub: Server, company: Company, how: str) -> None:
    agent, stays = company.agent(), company.agent()
    key = ApiKey.objects.get(principal=agent.principal)
    with follow(agent, hub.url) as stream, follow(stays, hub.url) as other:
        eventually(lambda: stream.messages and other.messages)
        match how:
            case "revoked":
                agent.client.delete(f"/v1/keys/key_{key.pk.hex}")
            case "expired":
                ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now())
            case "disabled":
                Principal.objects.filter(pk=agent.principal.pk).update(disabled_at=timezone.now())
        assert stream.ended.wait(10)
        assert (stream.messages[-1].event, stream.messages[-1].data) == CLOSED
        assert not other.ended.is_set()


@pytest.mark.parametrize("how", ["logout", "membership", "inactive"])
def test_a_stream_ends_with_its_session(hub: Server, company: Company, admin: Human, how: str) -> None:
    session = log_in(admin)
    key, slug = session.session_key or "", admin.organization.slug
    with Follower(hub.url, session=key, org=slug) as stream:
        eventually(lambda: stream.messages)
        match how:
            case "logout":
                session.flush()
            case "membership":
                Membership.objects.filter(user=admin.user).update(ended_at=timezone.now())
            case "inactive":
                admin.user.is_active = False
                admin.user.save()
        assert stream.ended.wait(10)
        assert (stream.messages[-1].event, stream.messages[-1].data) == CLOSED


def test_a_principal_may_have_so_many_streams_and_no_more(hub: Server, agent: Agent, other: Agent) -> None:
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(follow(agent, hub.url))
        headers = {"Authorization": f"Bearer {agent.secret}"}
        answer = httpx.get(f"{hub.url}{STREAM}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "RATE_LIMITED")
        assert int(answer.headers["Retry-After"]) > 0
        with follow(other, hub.url) as free:
            eventually(lambda: free.messages)

    def again() -> bool:
        with follow(agent, hub.url) as stream:
            return stream.answer.status_code == 200

    eventually(again)


def test_beyond_the_hubs_limit_a_stream_is_turned_away(database: None, agent: Agent) -> None:
    with run_hub(TITEN_HUB_LIMIT="2") as small:
        agent.client.get("/v1/principal")
        with follow(agent, small.url), follow(agent, small.url):
            answer = httpx.get(
                f"{small.url}/api/v1/documents/x/events/stream",
                headers={"Authorization": f"Bearer {agent.secret}"},
            )
            assert (answer.status_code, answer.json()["error"]) == (503, "OVERLOADED")
            assert int(answer.headers["Retry-After"]) > 0


def test_streams_hold_no_connection_each(hub: Server, company: Company) -> None:
    agents = [company.agent() for _ in range(8)]
    with ExitStack() as stack:
        streams = [stack.enter_context(follow(agent, hub.url)) for agent in agents for _ in range(5)]
        agents[0].create()
        eventually(lambda: all(stream.events for stream in streams))
        states = connections_of(hub)
        # One of its own, two each for streams and other work, at most four for views.
        assert len(states) <= 9
        eventually(lambda: "idle in transaction" not in connections_of(hub))


def test_a_reader_that_is_slow_misses_nothing_and_holds_nobody_up(
    hub: Server, company: Company, agent: Agent, other: Agent
) -> None:
    address = urlsplit(hub.url)
    request = (
        f"GET {STREAM} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {agent.secret}\r\n\r\n"
    )
    with socket.socket() as slow, follow(other, hub.url) as quick:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((address.hostname or "", address.port or 0))
        slow.sendall(request.encode())
        first = slow.recv(10)
        eventually(lambda: quick.messages)
        begin = int(quick.last)
        # More than sockets and queue hold.
        for round in range(10):
            write_events(company, 2000, filling="x" * 300)
            eventually(lambda: len(quick.events) >= 2000 * (round + 1))  # noqa: B023
        slow.settimeout(20)
        received = bytearray(first)
        ending = f'"cursor":"{begin + 20_000}"'.encode()
        while ending not in received[-10_000:]:
            part = slow.recv(1_000_000)
            assert part
            received += part
    lines = [line for line in bytes(received).split(b"\n") if line.startswith(b"id: ")]
    ids = [int(line[4:]) for line in lines]
    assert ids == sorted(ids)
    events = [number for number in ids if number > begin]
    assert set(events) == set(range(begin + 1, begin + 20_001))


def test_a_stop_ends_streams_at_once(database: None, agent: Agent) -> None:
    with run_hub() as server, follow(agent, server.url) as stream:
        eventually(lambda: stream.messages)
        server.process.terminate()
        assert stream.ended.wait(3)
        assert not stream.signs("closed")
        assert server.process.wait(4) == 0


def test_without_a_hub_a_stream_shows_what_there_is_and_ends(agent: Agent, company: Company) -> None:
    """Its reader comes again with the last id, and misses nothing either."""
    write_events(company, 250)
    answer = agent.client.get(STREAM, params={"after": "0"})
    first = messages_of(answer.content)
    again = agent.client.get(STREAM, headers={"Last-Event-ID": first[-1].id})
    found = [message.data["id"] for message in [*first, *messages_of(again.content)]]
    assert found == log_of(company)


def test_frames_hold_no_secret(hub: Server, agent: Agent) -> None:
    with follow(agent, hub.url) as stream:
        eventually(lambda: stream.messages)
        made = agent.post("/keys", {"scopes": ["tasks:read"], "label": "walrus"})
        eventually(lambda: stream.events)
        assert made["api_key"] not in str(stream.messages)
        assert "walrus" not in str(stream.messages)
