"""Boards: rendered once, sent to all; a stream ends with the standing of who looks."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone

from coordination import identity
from coordination.models import Membership
from titen.api.doors import transact

from .cast import Agent, Company, Human, found_company, founded
from .following import follow
from .hub import Stream, connections_of, eventually, run_hub
from .hub_stub import LARGE
from .servers import Server

pytestmark = pytest.mark.alone

ENDED = ("titen-session-ended", "login")


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub("tests.hub_stub:application") as server:
        yield server
        assert not server.trouble()


@pytest.fixture
def company(hub: Server) -> Iterator[Company]:
    with founded(hub.url) as company:
        yield company


def log_in(human: Human) -> SessionStore:
    """A browser's session, as Django's login makes it."""
    session = SessionStore()
    session[SESSION_KEY] = str(human.user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = human.user.get_session_auth_hash()
    session.save()
    return session


def open_board(hub: Server, human: Human, session: SessionStore | None = None) -> Stream:
    session = session or log_in(human)
    return Stream(f"{hub.url}/live/board", session.session_key or "", org=human.organization.slug)


def test_a_viewer_gets_the_whole_board_then_what_changes(hub: Server, agent: Agent, admin: Human) -> None:
    agent.create("First")
    with open_board(hub, admin) as stream:
        assert stream.answer.headers["cache-control"] == "no-store"
        assert stream.answer.headers["x-accel-buffering"] == "no"
        eventually(lambda: stream.events)
        assert stream.events == [("", "<ul id=titles>\n<li>First\n</ul>\n<p id=role>admin\n<p id=large>")]
        agent.create("Second")
        eventually(lambda: stream.has("Second"))
        assert stream.events[-1] == ("", "<ul id=titles>\n<li>First\n<li>Second\n</ul>")


def test_each_role_gets_its_own_page(hub: Server, admin: Human, company: Company) -> None:
    with open_board(hub, admin) as one, open_board(hub, company.human("viewer")) as two:
        eventually(lambda: one.has("admin") and two.has("viewer"))
        assert not one.has("viewer")
        assert not two.has("admin")


def test_nobody_sees_another_organizations_board(hub: Server, admin: Human) -> None:
    stranger = found_company(hub.url).human("admin")
    cookies = {"sessionid": log_in(stranger).session_key or ""}
    answers = [
        httpx.get(f"{hub.url}/live/board", params={"org": slug}, cookies=cookies)
        for slug in (admin.organization.slug, "no-such-organization")
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert len({answer.json()["error"]["message"] for answer in answers}) == 1


@pytest.mark.parametrize("session", ["", "made-up"])
def test_without_a_session_the_page_is_sent_to_the_login(hub: Server, admin: Human, session: str) -> None:
    with Stream(f"{hub.url}/live/board", session, org=admin.organization.slug) as stream:
        assert stream.ended.wait(5)
        assert stream.events == [ENDED]


@pytest.mark.parametrize("how", ["logout", "password", "membership", "inactive"])
def test_a_stream_ends_with_the_standing_of_its_viewer(
    hub: Server, admin: Human, company: Company, how: str
) -> None:
    stays = company.human("viewer")
    session = log_in(admin)
    with open_board(hub, admin, session) as stream, open_board(hub, stays) as other:
        eventually(lambda: stream.events and other.events)
        match how:
            case "logout":
                session.flush()
            case "password":
                admin.user.set_password("another-good-passphrase")
                admin.user.save()
            case "membership":
                Membership.objects.filter(user=admin.user).update(ended_at=timezone.now())
            case "inactive":
                admin.user.is_active = False
                admin.user.save()
        assert stream.ended.wait(30)
        assert stream.events[-1] == ENDED
        assert not other.ended.is_set()
        assert other.pings > 0


def test_a_new_role_repaints_the_page(hub: Server, admin: Human) -> None:
    with open_board(hub, admin) as stream:
        eventually(lambda: stream.has("admin"))
        Membership.objects.filter(user=admin.user).update(role="viewer")
        eventually(lambda: stream.has("viewer"), within=30)


def request_for(human: Human, hub: Server) -> bytes:
    """A board's request as bytes, for clients that are not as polite as a browser."""
    return (
        f"GET /live/board?org={human.organization.slug} HTTP/1.1\r\nHost: {urlsplit(hub.url).netloc}\r\n"
        f"Cookie: sessionid={log_in(human).session_key}\r\n\r\n"
    ).encode()


def test_streams_hold_no_connection_and_leave_nothing_behind(hub: Server, admin: Human) -> None:
    address, request = urlsplit(hub.url), request_for(admin, hub)

    def connect() -> socket.socket:
        client = socket.create_connection((address.hostname, address.port), timeout=20)
        client.sendall(request)
        return client

    for _ in range(2):
        with ExitStack() as clients:
            opened = [clients.enter_context(connect()) for _ in range(60)]
            assert {client.recv(12) for client in opened} == {b"HTTP/1.1 200"}
            assert len(connections_of(hub)) <= 7
    # They have let go of their places: all 200 can be taken again, and one more is turned away.
    with ExitStack() as clients:

        def take_place() -> bool:
            client = clients.enter_context(connect())
            return client.recv(12) == b"HTTP/1.1 200"

        for _ in range(200):
            eventually(take_place)
        refused = httpx.get(f"{hub.url}/live/board", params={"org": admin.organization.slug})
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) > 0
    assert eventually(lambda: httpx.get(f"{hub.url}/healthz").status_code == 200)


def test_a_viewer_that_does_not_read_is_sent_the_whole_picture_later(
    hub: Server, agent: Agent, admin: Human
) -> None:
    address, request = urlsplit(hub.url), request_for(admin, hub)
    with socket.socket() as slow, open_board(hub, admin) as quick:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((address.hostname or "", address.port or 0))
        slow.sendall(request)
        # More than sockets and queue hold.
        for number in range(16):
            title = f"Large {number}"
            agent.create(title)
            eventually(partial(quick.has, title))
        agent.create("The last")
        eventually(lambda: quick.has("The last"))
        slow.settimeout(20)
        received = bytearray()
        while b"The last" not in received[-100_000:]:
            part = slow.recv(1_000_000)
            assert part
            received += part
    assert len(received) < 8 * LARGE


def test_a_stop_ends_streams_at_once(database: None) -> None:
    with run_hub("tests.hub_stub:application") as server:
        company = found_company(server.url)
        with open_board(server, company.human()) as stream:
            eventually(lambda: stream.events)
            server.process.terminate()
            assert stream.ended.wait(3)
            assert ENDED not in stream.events
            assert server.process.wait(4) == 0


def test_the_real_board_and_log_are_sent_and_end_within_30_s_of_a_logout_and_a_revocation(
    database: None,
) -> None:
    with run_hub() as server, founded(server.url) as company:
        agent, revoked = company.agent(), company.agent()
        admin = company.human()
        session = log_in(admin)
        with open_board(server, admin, session) as stream, follow(revoked, server.url) as log:
            eventually(lambda: stream.has('id="queue"'))
            agent.create("Polish the brass")
            eventually(lambda: stream.has("Polish the brass"))
            claim = agent.claim()
            eventually(lambda: stream.has('id="running"') and stream.has(agent.principal.name))
            beat = {"epoch": claim["lease"]["epoch"], "progress": 42, "status": "nearly half-way"}
            agent.post(f"/runs/{claim['run']['id']}/heartbeat", beat)
            eventually(lambda: stream.has("nearly half-way"))
            eventually(lambda: log.events)
            session.flush()
            key = revoked.caller.key_id
            assert key
            transact(lambda: identity.revoke_key(company.organization.pk, key))
            began = time.monotonic()
            assert stream.ended.wait(30)
            assert stream.events[-1] == ENDED
            assert log.ended.wait(max(0, began + 30 - time.monotonic()))
            assert log.messages[-1].event == "closed"
        assert not server.trouble()
