"""40 writers, transactions that are held open, followers that are cut off: each one's set is the log's.

Short: one transaction is open for 3 s in this database and one for 2 s in another of the cluster. With
`TITEN_LONG=1` the other is open for 10 s and the writers write as long.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connections, transaction

from coordination import couriers, events
from titen.embedded import drop_database

from .cases.tools import LONG
from .cast import Agent, Company
from .following import Follower, follow, log_of
from .hub import eventually, run_hub
from .servers import Server
from .sinks import Handler, Sink, hook, sink

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("nothing_owed")]

WRITERS = 40
HELD_HERE = 3.0
HELD_ELSEWHERE = 10.0 if LONG else 2.0
# So that the writers go on after both have ended.
LONGEST = HELD_ELSEWHERE + 2 if LONG else 4.0
RARE = "limit.set"


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub("tests.hub_quick:application") as server:
        yield server
        assert not server.trouble()


def url_of(database: str) -> str:
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{database}"))


@contextmanager
def another_database() -> Iterator[psycopg.Connection[Any]]:
    """A session in another database of the cluster."""
    name = f"{urlsplit(os.environ['DATABASE_URL']).path[1:]}_other"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        owner.execute(f'CREATE DATABASE "{name}"')
        try:
            with psycopg.connect(url_of(name)) as session:
                yield session
        finally:
            drop_database(owner, name)


class Cut:
    """A follower by SSE that is cut off at random, and comes again with the last id that it saw."""

    def __init__(self, agent: Agent, hub: Server) -> None:
        self.seen: list[str] = []
        self.repeated = 0
        self.cuts = -1
        self._agent, self._hub = agent, hub
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last, chance = "0", random.Random(self._agent.secret)
        while not self._stop.is_set():
            self.cuts += 1
            with Follower(self._hub.url, self._agent.secret, last=last) as stream:
                self._stop.wait(chance.uniform(0.05, 0.6))
            new = [message for message in stream.messages if message.event != "cursor"]
            ids = [message.data["id"] for message in new]
            # Within a stream nothing comes twice.
            assert len(set(ids)) == len(ids)
            self.seen += ids
            last = stream.last or last

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)
        assert not self._thread.is_alive()


class Polling:
    """A follower by pages with a rare filter. `moved`: how often an empty page has moved its cursor."""

    def __init__(self, agent: Agent) -> None:
        self.seen: list[str] = []
        self.moved = 0
        self._agent, self._cursor = agent, "0"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()

    def look(self) -> bool:
        """One page; True when the cursor has moved."""
        page = self._agent.get("/events", params={"after": self._cursor, "kind": RARE, "limit": 7})
        self.seen += [event["id"] for event in page["events"]]
        moved = bool(page["cursor"] != self._cursor)
        self.moved += moved and not page["events"]
        self._cursor = page["cursor"]
        return moved

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)
        assert not self._thread.is_alive()


def moody(handler: Handler) -> None:
    """Every third request fails, whatever it brings."""
    handler.answer(503 if len(handler.server.sink.requests) % 3 == 0 else 200)


class Told:
    """A follower by webhook. Its receiver fails at times, so that what it gets comes at least once."""

    def __init__(self, agent: Agent, receiver: Sink, kinds: list[str]) -> None:
        self._receiver = receiver
        self._secret = hook(agent, receiver, kinds=kinds)["secret"]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.1):
                couriers.deliver()
        finally:
            connections.close_all()

    @property
    def seen(self) -> list[str]:
        """The events in the order in which they first came."""
        told = [request.verified(self._secret) for request in list(self._receiver.requests)]
        return list(dict.fromkeys(content["data"]["event"] for content in told))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def write(company: Company, number: int, until: float) -> int:
    """Transactions of one to three events, few of the events rare ones; how many events."""
    chance, written = random.Random(number), 0
    try:
        while time.monotonic() < until:
            with transaction.atomic():
                for _ in range(chance.randint(1, 3)):
                    kind = RARE if chance.random() < 0.004 else "test.happened"
                    events.record(kind, organization_id=company.organization.pk, actor_id=None)
                    written += 1
            time.sleep(chance.uniform(0, 0.1))
    finally:
        connections.close_all()
    return written


def hold_open(company: Company, seconds: float) -> int:
    """Events of a transaction that commits long after those that began later."""
    try:
        with transaction.atomic():
            for kind in ("member.removed", RARE):
                events.record(kind, organization_id=company.organization.pk, actor_id=None)
            time.sleep(seconds)
    finally:
        connections.close_all()
    return 2


def test_every_followers_set_is_the_log(hub: Server, company: Company, settings: Any) -> None:
    settings.WEBHOOK_FIRST_RETRY_SECONDS = 0.05
    cut = [Cut(company.agent(), hub) for _ in range(6)]
    polling = Polling(company.agent())
    agent = company.agent()
    with (
        another_database() as elsewhere,
        sink(moody) as receiver,
        closing(agent),
        follow(agent, hub.url, after="0") as steady,
    ):
        told = Told(agent, receiver, [RARE, "member.removed"])
        elsewhere.execute("SELECT pg_current_xact_id()")
        began = time.monotonic()
        with ThreadPoolExecutor(WRITERS + 1) as pool:
            late = pool.submit(hold_open, company, HELD_HERE)
            works = [pool.submit(write, company, n, began + LONGEST) for n in range(WRITERS)]
            time.sleep(max(HELD_ELSEWHERE - (time.monotonic() - began), 0))
            # With that transaction still open everything else has long been shown.
            assert len(steady.events) > 100
            elsewhere.rollback()
            written = late.result() + sum(work.result() for work in works)
        agent.get("/events")
        log = log_of(company)
        rare = [event["id"] for event in _all(agent) if event["kind"] == RARE]
        assert written <= len(log)
        eventually(lambda: len(steady.events) >= len(log))
        assert [event["id"] for event in steady.events] == log
        for follower in cut:
            eventually(lambda: set(follower.seen) == set(log))  # noqa: B023
            follower.stop()
            assert follower.cuts >= 3
            # At least once: what came twice did so after a cut.
            assert sum(Counter(follower.seen).values()) - len(log) <= 0
        polling.stop()
        while polling.look():
            pass
        assert polling.seen == rare
        owed = [event["id"] for event in _all(agent) if event["kind"] in (RARE, "member.removed")]
        eventually(lambda: len(told.seen) >= len(owed), within=30)
        told.stop()
        assert told.seen == owed
        assert polling.moved > 0
        assert "member.removed" in {event["kind"] for event in steady.events}


def _all(agent: Agent) -> list[Any]:
    found, cursor = [], "0"
    while True:
        page = agent.get("/events", params={"after": cursor, "limit": 200})
        found += page["events"]
        if page["cursor"] == cursor:
            return found
        cursor = page["cursor"]
