"""The database goes away, freezes or drops the hub: streams stay open, recover by themselves, and miss nothing."""

import os
from collections.abc import Callable, Iterator

import psycopg
import pytest

from .cast import Agent, Company, founded
from .following import Follower, follow, log_of, write_events
from .hub import DatabaseProxy, connections_of, eventually, looks_of, run_hub
from .servers import Server

pytestmark = pytest.mark.alone

LOST = "the hub has lost the database"


@pytest.fixture(scope="module")
def database_proxy() -> Iterator[DatabaseProxy]:
    with DatabaseProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def hub(database: None, database_proxy: DatabaseProxy) -> Iterator[Server]:
    with run_hub("tests.hub_quick:application", DATABASE_URL=database_proxy.url) as server:
        yield server
        assert "Traceback" not in server.log.read_text()


@pytest.fixture
def company(web: Server) -> Iterator[Company]:
    with founded(web.url) as company:
        yield company


@pytest.fixture
def stream(hub: Server, company: Company, agent: Agent) -> Iterator[Follower]:
    """A stream that the tail feeds: with the looks of the hub that it needs behind it."""
    before = looks_of(hub)
    with follow(agent, hub.url, after="0") as stream:
        write_events(company, 1)
        eventually(lambda: stream.events and looks_of(hub) - before)
        yield stream


@pytest.fixture(autouse=True)
def healed(database_proxy: DatabaseProxy) -> Iterator[None]:
    """A test that fails leaves no fault to the next."""
    yield
    database_proxy.refusing = False
    database_proxy.thaw()


@pytest.fixture
def said(hub: Server) -> Callable[[str], int]:
    """How often the hub has said something since the test began."""
    before = len(hub.log.read_text())
    return lambda text: hub.log.read_text()[before:].count(text)


def shows_everything(stream: Follower, company: Company, agent: Agent) -> None:
    """Sooner or later, in order, and nothing twice, without having been opened again."""
    write_events(company, 2)
    agent.get("/events")
    log = log_of(company)
    eventually(lambda: len(stream.events) >= len(log), within=30)
    assert [event["id"] for event in stream.events] == log
    assert not stream.ended.is_set()


def test_after_a_cut_connection(
    stream: Follower, company: Company, agent: Agent, database_proxy: DatabaseProxy
) -> None:
    database_proxy.cut()
    write_events(company, 40)
    shows_everything(stream, company, agent)


def test_after_a_restart_with_the_database_away_for_a_while(
    hub: Server,
    stream: Follower,
    company: Company,
    agent: Agent,
    database_proxy: DatabaseProxy,
    said: Callable[[str], int],
) -> None:
    database_proxy.refusing = True
    database_proxy.cut()
    eventually(lambda: said(LOST))
    # More than one look reads.
    write_events(company, 700)
    pings = stream.pings
    eventually(lambda: stream.pings > pings)
    database_proxy.refusing = False
    shows_everything(stream, company, agent)


def test_after_a_freeze(
    stream: Follower,
    company: Company,
    agent: Agent,
    database_proxy: DatabaseProxy,
    said: Callable[[str], int],
) -> None:
    database_proxy.freeze()
    write_events(company, 40)
    eventually(lambda: said(LOST))
    database_proxy.thaw()
    shows_everything(stream, company, agent)


def test_after_its_backends_were_killed(
    hub: Server, stream: Follower, company: Company, agent: Agent
) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        for _ in range(3):
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                [f"hub-{hub.url.rpartition(':')[2]}"],
            )
            write_events(company, 20)
            eventually(lambda: connections_of(hub))
    shows_everything(stream, company, agent)


def test_a_stream_that_is_catching_up_when_the_database_goes(
    hub: Server, company: Company, agent: Agent, database_proxy: DatabaseProxy
) -> None:
    write_events(company, 12_000)
    with follow(agent, hub.url, after="0") as stream:
        eventually(lambda: stream.events)
        database_proxy.cut()
        shows_everything(stream, company, agent)
