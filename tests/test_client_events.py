"""The SDK follows the log: through cuts and restarts, with every event once and in order."""

import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from titen.client import CursorTooOld, Forbidden, Titen, Unauthenticated, Unreachable, ValidationError

from .cast import Agent, Company
from .following import floor_at, log_of, write_events
from .hub import eventually, run_hub
from .proxy import Proxy
from .servers import Server


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub("tests.hub_quick:application") as server:
        yield server
        assert not server.trouble()


@pytest.fixture
def proxy(hub: Server) -> Iterator[Proxy]:
    with Proxy(hub.port) as proxy:
        yield proxy


@pytest.fixture
def titen(proxy: Proxy, agent: Agent) -> Iterator[Titen]:
    """A client of `agent` that reaches the hub through the proxy."""
    with Titen(proxy.url, agent.secret, retry_for=5) as client:
        yield client


def test_events_come_in_order_and_as_pages_show_them(titen: Titen, agent: Agent, company: Company) -> None:
    write_events(company, 250)
    listed = agent.get("/events", params={"limit": 200})["events"]
    assert list(islice(titen.events(after="0"), 200)) == listed


def test_only_the_kinds_that_were_asked_for(titen: Titen, agent: Agent, company: Company) -> None:
    write_events(company, 5)
    task = agent.create()
    found = next(titen.events(after="0", kinds=["task.created", "task.claimed"]))
    assert (found["kind"], found["task_id"]) == ("task.created", task["id"])
    with pytest.raises(TypeError):
        titen.events(kinds="task.created")


def test_without_a_cursor_it_begins_now(titen: Titen, agent: Agent, proxy: Proxy) -> None:
    agent.create("Before")
    found: list[str | None] = []
    reader = threading.Thread(target=lambda: found.append(next(titen.events())["task_id"]))
    reader.start()
    eventually(lambda: proxy.requests)
    after = [agent.create()["id"]]
    while not found:
        after.append(agent.create()["id"])
        reader.join(0.05)
    assert found[0] in after


def test_cuts_lose_nothing_and_repeat_nothing(
    titen: Titen, company: Company, agent: Agent, proxy: Proxy
) -> None:
    write_events(company, 30)
    seen: list[str] = []
    for event in titen.events(after="0"):
        seen.append(event["id"])
        if len(seen) in (5, 35, 45):
            proxy.cut()
            write_events(company, 10)
        if len(seen) >= 60:
            break
    assert seen == log_of(company)[:60]
    assert len(proxy.requests) >= 4


def test_a_server_that_turns_it_away_for_a_moment_is_asked_again(
    titen: Titen, company: Company, proxy: Proxy
) -> None:
    write_events(company, 1)
    proxy.refuse(times=2)
    assert next(titen.events(after="0"))["cursor"] == "1"


def test_a_server_that_stays_away_is_an_error(hub: Server, agent: Agent) -> None:
    with Proxy(hub.port) as proxy:
        url = proxy.url
    with Titen(url, agent.secret, retry_for=1) as client, pytest.raises(Unreachable):
        next(client.events(after="0"))


def test_events_that_are_no_longer_kept_are_told(titen: Titen, company: Company, agent: Agent) -> None:
    write_events(company, 20)
    newest = agent.get("/events", params={"limit": 200})["cursor"]
    with floor_at(company, 12):
        with pytest.raises(CursorTooOld) as raised:
            next(titen.events(after="3"))
        assert raised.value.details == {"floor": "12", "newest": newest}
        assert next(titen.events(after="12"))["cursor"] == "13"


def test_a_key_that_ends_ends_it(titen: Titen, company: Company, agent: Agent) -> None:
    following = titen.events(after="0")
    write_events(company, 1)
    assert next(following)
    key = agent.get("/keys")["keys"][0]["key_id"]
    agent.client.delete(f"/v1/keys/{key}")
    with pytest.raises(Unauthenticated):
        for _ in following:
            pass


def test_refusals_are_what_they_are_elsewhere(proxy: Proxy, titen: Titen, company: Company) -> None:
    with pytest.raises(ValidationError):
        next(titen.events(after="x"))
    with Titen(proxy.url, company.agent(scopes="tasks:read").secret) as lacking, pytest.raises(Forbidden):
        next(lacking.events())
