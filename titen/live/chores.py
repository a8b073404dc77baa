"""What the hub does beside its clients: the sweeper's work, so that no beat is needed for it."""

import asyncio
import logging

from django.db import DatabaseError

from approvals.jobs import expire
from coordination import events, handoffs, leasing, sweeping

from .pool import Pool

logger = logging.getLogger("titen.live")

SWEEP_SECONDS = 15.0
CHORE_SECONDS = 60.0


def sweep() -> None:
    """Write down all that has run out, and number what that wrote."""
    sweeping.sweep()
    leasing.sweep()
    handoffs.expire_due()
    expire()
    events.number()


class Chores:
    """Sweeps every 15 seconds, and when the tail sees that a lease has run out."""

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
        try:
            await self._pool.run(sweep, seconds=CHORE_SECONDS)
        except (DatabaseError, TimeoutError) as problem:
            if not self._lost:
                logger.warning(
                    "sweeping is put off: %s", str(problem).split("\n", 1)[0] or "no answer in time"
                )
            self._lost = True
        else:
            self._lost = False
