"""R15: open streams do not eat the database's connections.

Through the whole stack, with a database that allows few. Short: one round; `TITEN_LONG=1`: three of 20 s.
"""

import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from tests.cast import Agent
from tests.following import Follower, follow
from tests.processes import eventually
from tests.stack import Founded, Stack

from .tools import LONG

pytestmark = pytest.mark.alone

KEYS, PAGES = 30, 30
ROUNDS, SECONDS = (3, 20.0) if LONG else (1, 6.0)
# What the case's setting leaves to others than superusers: max_connections 25, three of them reserved.
CONNECTIONS = 22
HELD = """SELECT count(*), count(*) FILTER (WHERE state = 'idle in transaction' AND state_change < now() - interval '2 s')
FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""


@pytest.fixture
def firm(stack: Stack) -> Iterator[Founded]:
    """Thirty-one agents and a viewer, of whom the last agent works."""
    firm = stack.found(KEYS + 1, "viewer")
    yield firm
    firm.close()


def work(agent: Agent, over: Event, times: list[float], failed: list[str]) -> None:
    """Create, claim, heartbeat, complete; each request's time."""

    def post(path: str, body: Any) -> Any:
        began = time.monotonic()
        answer = agent.client.post(f"/v1{path}", json=body)
        times.append(time.monotonic() - began)
        if answer.status_code >= 400:
            failed.append(answer.text)
        return answer.json()["data"]

    while not over.is_set():
        post("/tasks", {"title": "Work"})
        claim = post("/tasks/claim", {})
        epoch = {"epoch": claim["lease"]["epoch"]}
        post(f"/runs/{claim['run']['id']}/heartbeat", epoch)
        post(f"/runs/{claim['run']['id']}/complete", epoch)


def held(stack: Stack) -> tuple[int, int]:
    """How many connections there are, and how many idle in a transaction for more than 2 s."""
    with psycopg.connect(stack.database) as connection:
        row = connection.execute(HELD).fetchone()
    assert row is not None
    return row[0], row[1]


def test_60_streams_beside_the_work(stack: Stack, firm: Founded) -> None:
    url, worker = stack.address, firm.agents[-1]
    times: list[float] = []
    failed: list[str] = []
    most = 0
    with firm.session() as person:
        cookie = person.client.cookies["sessionid"]
        before = held(stack)[0]
        for _ in range(ROUNDS):
            over = Event()
            with ExitStack() as streams:
                opened = [streams.enter_context(follow(agent, url)) for agent in firm.agents[:KEYS]]
                opened += [
                    streams.enter_context(Follower(url, session=cookie, org=firm.slug)) for _ in range(PAGES)
                ]
                eventually(lambda: all(stream.messages for stream in opened))  # noqa: B023
                threads = [Thread(target=work, args=(worker, over, times, failed))]
                for thread in threads:
                    thread.start()
                until = time.monotonic() + SECONDS
                while time.monotonic() < until:
                    assert person.client.get("/").status_code == 200
                    count, stuck = held(stack)
                    most = max(most, count)
                    assert stuck == 0
                    # Half of them vanish without a word.
                    if time.monotonic() > until - SECONDS / 2 and not opened[0].ended.is_set():
                        for stream in opened[::2]:
                            stream.__exit__()
                    time.sleep(0.2)
                over.set()
                for thread in threads:
                    thread.join(20)
                log = worker.get("/events", params={"limit": 200})
                staying = opened[1::2]
                assert all(not stream.ended.is_set() for stream in staying)
                newest = worker.get("/events", params={"after": "999999999"})["cursor"]
                eventually(lambda: all(stream.last == newest for stream in staying), within=40)  # noqa: B023
                assert {tuple(event["id"] for event in stream.events) for stream in staying} != set()
                assert log["events"]
            # Counts fall back once the clients have gone.
            eventually(lambda: held(stack)[0] <= max(before, CONNECTIONS))
    p95 = statistics.quantiles(times, n=20)[-1]
    print(
        f"\nR15: {KEYS + PAGES} streams, {len(times)} requests: p95 {p95 * 1000:.0f} ms, longest"
        f" {max(times) * 1000:.0f} ms, at most {most} connections"
    )
    assert failed == []
    assert p95 < 1
    assert most <= CONNECTIONS


def test_streams_survive_a_restart_of_the_database(stack: Stack, firm: Founded) -> None:
    """PostgreSQL itself is stopped and started under an open stream: the hub goes on, and so does the stream."""
    agent = firm.agents[0]
    with follow(agent, stack.address) as stream:
        eventually(lambda: stream.messages)
        start, hub = stream.last, stack.pid("hub")
        agent.create("Before")
        eventually(lambda: stream.events)
        restarted = stack.pid("postgres")
        assert restarted
        os.kill(restarted, signal.SIGINT)
        eventually(lambda: stack.pid("postgres") not in (None, restarted), within=60)
        eventually(stack.answers, within=60)

        def create() -> bool:
            return agent.client.post("/v1/tasks", json={"title": "After"}).status_code == 201

        eventually(create, within=30)
        wanted = agent.get("/events", params={"after": start})["events"]
        eventually(lambda: len(stream.events) >= len(wanted), within=30)
        assert stream.events[: len(wanted)] == wanted
        assert not stream.ended.is_set()
        assert stack.pid("hub") == hub
