"""The database goes away, freezes or is restarted: waiters go on waiting, and nothing needs a restart."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from .cast import Agent, Company, founded
from .hub import DatabaseProxy, Stream, connections_of, eventually, looks_of, run_hub
from .servers import Server
from .test_hub_streams import open_board

pytestmark = pytest.mark.alone

LOST = "the hub has lost the database"
WAIT = "/tasks/claim?wait=25"


@pytest.fixture(scope="module")
def database_proxy() -> Iterator[DatabaseProxy]:
    with DatabaseProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def hub(database: None, database_proxy: DatabaseProxy) -> Iterator[Server]:
    with run_hub(DATABASE_URL=database_proxy.url) as server:
        yield server
        assert "Traceback" not in server.log.read_text()


@pytest.fixture
def company(web: Server) -> Iterator[Company]:
    with founded(web.url) as company:
        yield company


@pytest.fixture
def waiting(hub: Server, agent: Agent) -> Iterator[Any]:
    """A claim that waits at the hub, with the look of the hub that found nothing for it behind it."""
    there = Agent(agent.principal, agent.secret, hub.url)
    with ThreadPoolExecutor(1) as pool:
        before = looks_of(hub)
        future = pool.submit(there.post, WAIT, {})
        eventually(lambda: looks_of(hub) - before)
        yield future
    there.close()


@pytest.fixture
def said(hub: Server) -> Callable[[str], int]:
    """How often the hub has said something since the test began."""
    before = len(hub.log.read_text())
    return lambda text: hub.log.read_text()[before:].count(text)


def test_a_cut_connection_is_made_again(
    said: Callable[[str], int], database_proxy: DatabaseProxy, agent: Agent, waiting: Any
) -> None:
    database_proxy.cut()
    eventually(lambda: said(LOST))
    made = agent.create()
    assert waiting.result(10)["task"]["id"] == made["id"]


def test_a_database_that_is_away_is_asked_again_until_it_is_back(
    said: Callable[[str], int], database_proxy: DatabaseProxy, agent: Agent, waiting: Any
) -> None:
    database_proxy.refusing = True
    database_proxy.cut()
    eventually(lambda: said(LOST))
    made = agent.create()
    database_proxy.refusing = False
    assert waiting.result(15)["task"]["id"] == made["id"]
    assert said(LOST) == 1
    eventually(lambda: said("the hub has the database again"))


def test_a_frozen_connection_is_given_up(
    said: Callable[[str], int], database_proxy: DatabaseProxy, agent: Agent, waiting: Any
) -> None:
    database_proxy.freeze()
    eventually(lambda: said(LOST))
    made = agent.create()
    database_proxy.thaw()
    assert waiting.result(15)["task"]["id"] == made["id"]


def test_killed_backends_are_replaced(hub: Server, agent: Agent, waiting: Any) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        for _ in range(3):
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                [f"hub-{hub.url.rpartition(':')[2]}"],
            )
            eventually(lambda: connections_of(hub))
    made = agent.create()
    assert waiting.result(15)["task"]["id"] == made["id"]


def test_a_request_while_the_database_is_away_is_answered_in_its_time(
    hub: Server, database_proxy: DatabaseProxy, agent: Agent
) -> None:
    there = Agent(agent.principal, agent.secret, hub.url)
    database_proxy.refusing = True
    database_proxy.cut()
    error = there.refused("NOT_READY", "/tasks/claim?wait=1")
    assert error["message"]
    database_proxy.refusing = False
    eventually(lambda: there.send("POST", "/tasks/claim?wait=1", {}).status_code == 204)
    there.close()


def test_a_board_stays_open_and_goes_on(
    hub: Server,
    database_proxy: DatabaseProxy,
    agent: Agent,
    company: Company,
    said: Callable[[str], int],
) -> None:
    stream: Stream
    with open_board(hub, company.human()) as stream:
        eventually(lambda: stream.events)
        database_proxy.refusing = True
        database_proxy.cut()
        eventually(lambda: said("no news for"))
        agent.create("Made in the dark")
        database_proxy.refusing = False
        eventually(lambda: stream.has("Made in the dark"))
        assert said("no news for") == 1
