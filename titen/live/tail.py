"""The loop that looks at the database for all waiters and followers at once, while there are any."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
from django.conf import settings

from .followers import Following
from .link import Link, LostError
from .looks import Look, look
from .news import News, read_news
from .waiters import Waiting

TICK_SECONDS = 0.1
# A look may keep the database busy for this share of the time at most.
BUSY_SHARE = 0.25

type Chore = Callable[[], Coroutine[Any, Any, None]]


class Tail:
    """Wakes waiters and hands new lines to followers.

    sweep: writes down what has run out; called when a lease has.
    number: gives committed events their positions; called when some have none and somebody follows.
    """

    def __init__(self, waiting: Waiting, following: Following, *, sweep: Chore, number: Chore) -> None:
        self._waiting = waiting
        self._following = following
        self._sweep = sweep
        self._number = number
        self._link = Link()
        self._sweeping: asyncio.Task[None] | None = None
        self._numbering: asyncio.Task[None] | None = None
        self._expiries_at = 0.0

    async def run(self) -> None:
        """Until cancelled. Without anybody it sleeps; without a database it tries again."""
        regular = True
        try:
            while True:
                await self._somebody()
                began = time.monotonic()
                try:
                    more = await self.tick(numbers=regular)
                except LostError:
                    await asyncio.sleep(self._link.pause)
                    regular = True
                    continue
                took = time.monotonic() - began
                tick = 0.0 if more else TICK_SECONDS
                regular = not await self._numbered(max(tick - took, took / BUSY_SHARE - took, 0))
        finally:
            self._link.close()

    async def _somebody(self) -> None:
        events = (self._waiting.somebody, self._following.somebody)
        if any(event.is_set() for event in events):
            return
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _numbered(self, seconds: float) -> bool:
        """Rest; True when that was cut short because events have got their positions.

        The look after that starts no numbering: under a steady load one would follow the other.
        """
        if self._numbering is None:
            await asyncio.sleep(seconds)
            return False
        done, _ = await asyncio.wait({self._numbering}, timeout=seconds)
        if done:
            self._numbering = None
        return bool(done)

    async def tick(self, *, numbers: bool = True) -> bool:
        """Look once, and wake and hand on; True when there is more to read at once."""
        looking, asked = self._waiting.begin_look(), self._following.begin_look()
        expiries = bool(looking.claims) and time.monotonic() >= self._expiries_at

        async def ask(connection: psycopg.AsyncConnection[object]) -> tuple[Look, News]:
            seen = await look(connection, looking, expiries=expiries)
            return seen, await read_news(connection, asked) if asked else News(asked)

        seen, news = await self._link.ask(ask)
        if expiries:
            self._note_expiry(seen.next_expiry)
        self._waiting.wake(seen.found)
        self._following.publish(news)
        if news.unnumbered and numbers and self._numbering is None:
            self._numbering = asyncio.create_task(self._number())
        return news.more

    def _note_expiry(self, seconds: float | None) -> None:
        """Ask again when the next lease runs out. One granted meanwhile lives for the shortest TTL at least."""
        shortest = float(settings.LEASE_TTL_MINIMUM)
        if seconds is not None and seconds <= 0:
            if self._sweeping is None or self._sweeping.done():
                self._sweeping = asyncio.create_task(self._sweep())
            seconds = TICK_SECONDS * 3
        self._expiries_at = time.monotonic() + min(shortest, shortest if seconds is None else seconds)
