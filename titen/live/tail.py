"""The loop that looks at the database for all waiters at once, while there are any."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
from django.conf import settings

from .link import Link, LostError
from .looks import Look, look
from .waiters import Waiting

TICK_SECONDS = 0.1
# A look may keep the database busy for this share of the time at most.
BUSY_SHARE = 0.25


class Tail:
    """Wakes waiters. `sweep` writes down what has run out; it is called when a lease has."""

    def __init__(self, waiting: Waiting, sweep: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._waiting = waiting
        self._sweep = sweep
        self._link = Link()
        self._sweeping: asyncio.Task[None] | None = None
        self._expiries_at = 0.0

    async def run(self) -> None:
        """Until cancelled. Without waiters it sleeps; without a database it tries again."""
        try:
            while True:
                await self._waiting.somebody.wait()
                began = time.monotonic()
                try:
                    await self.tick()
                except LostError:
                    await asyncio.sleep(self._link.pause)
                    continue
                took = time.monotonic() - began
                await asyncio.sleep(max(TICK_SECONDS - took, took / BUSY_SHARE - took, 0))
        finally:
            self._link.close()

    async def tick(self) -> int:
        """Look once and wake whom that concerns; how many."""
        looking = self._waiting.begin_look()
        expiries = bool(looking.claims) and time.monotonic() >= self._expiries_at

        async def ask(connection: psycopg.AsyncConnection[object]) -> Look:
            return await look(connection, looking, expiries=expiries)

        seen = await self._link.ask(ask)
        if expiries:
            self._note_expiry(seen.next_expiry)
        return self._waiting.wake(seen.found)

    def _note_expiry(self, seconds: float | None) -> None:
        """Ask again when the next lease runs out. One granted meanwhile lives for the shortest TTL at least."""
        shortest = float(settings.LEASE_TTL_MINIMUM)
        if seconds is not None and seconds <= 0:
            if self._sweeping is None or self._sweeping.done():
                self._sweeping = asyncio.create_task(self._sweep())
            seconds = TICK_SECONDS * 3
        self._expiries_at = time.monotonic() + min(shortest, shortest if seconds is None else seconds)
