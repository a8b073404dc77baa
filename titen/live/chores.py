"""What the hub does beside its clients: the sweeper's work, so that no beat is needed for it."""

import asyncio
import logging
from collections.abc import Callable

from django.db import DatabaseError

from approvals.jobs import expire
from coordination import events, handoffs, leasing, sweeping

from .pool import Pool

logger = logging.getLogger("titen.live")

# What has run out shows within 15 seconds, this and the look at the log included.
SWEEP_SECONDS = 12.0
CHORE_SECONDS = 60.0


def sweep() -> None:
    """Write down all that has run out, and number what that wrote."""
    sweeping.sweep()
    leasing.sweep()
    handoffs.expire_due()
    expire()
    events.number()


class Chores:
    """Sweeps every 12 seconds, and when the tail sees that a lease has run out. Numbers when it says so."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lost = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.sweep()
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Sweep on a pool thread. A failure is logged, once per loss of the database."""
        await self._do(sweep, "sweeping")

    async def number(self) -> None:
        """Give committed events their positions, likewise."""
        await self._do(events.number, "numbering")

    async def _do(self, chore: Callable[[], object], name: str) -> None:
        try:
            await self._pool.run(chore, seconds=CHORE_SECONDS)
        except (DatabaseError, TimeoutError) as problem:
            if not self._lost:
                logger.warning(
                    "%s is put off: %s", name, str(problem).split("\n", 1)[0] or "no answer in time"
                )
            self._lost = True
        else:
            self._lost = False
