"""Who waits for what, and whom a look at the database wakes.

Nothing here says what is true: a waiter that is woken runs its view again, and only that answers. A
waiter keeps its place in the line until it leaves.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from uuid import UUID

# Pauses of a waiter, and of a task, after an attempt in vain: doubled each time, in seconds.
FIRST_REST = 0.1
LONGEST_REST = 2.0
# How many ready tasks one look names for each wish, at most.
LOOK_LIMIT = 64


@dataclass(frozen=True, slots=True)
class ClaimWish:
    """A claim: whose key (SHA-256 in hexadecimal digits), which capabilities, and which task if only one."""

    digest: str
    capabilities: tuple[str, ...] | None = None
    task_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class EndWish:
    """The end of an approval or the answer to a question, by its id."""

    subject_id: UUID


type Wish = ClaimWish | EndWish


@dataclass(frozen=True, slots=True)
class Found:
    """What one look saw: ready tasks by wish, and approvals and questions that are over."""

    ready: dict[ClaimWish, list[UUID]] = field(default_factory=dict)
    ended: frozenset[UUID] = frozenset()


@dataclass(slots=True, eq=False)
class Waiter:
    """One waiting request. `repeats` is the key's digest and the `Idempotency-Key`, if it has one."""

    wish: Wish
    repeats: tuple[str, str] | None = None
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    # Its last answer said nothing about its wish (the database was away): ask again at once.
    unsettled: bool = False
    attempting: bool = False
    offer: UUID | None = None
    failures: int = 0
    rests_until: float = 0.0

    def is_idle(self, now: float) -> bool:
        """True when it may be woken."""
        return not self.attempting and self.rests_until <= now


@dataclass(slots=True)
class Offer:
    """A ready task for which somebody was woken."""

    until: float = inf
    failures: int = 0
    settled: bool = False


def rest(failures: int) -> float:
    """Seconds of pause after this many attempts in vain."""
    return min(FIRST_REST * 2.0 ** (failures - 1), LONGEST_REST)


class Waiting:
    """All waiters, in the order in which they came."""

    def __init__(self) -> None:
        self.somebody = asyncio.Event()
        self._waiters: dict[Waiter, None] = {}
        self._offers: dict[UUID, Offer] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    @contextmanager
    def joined(self, waiter: Waiter) -> Iterator[None]:
        """`waiter` waits inside the block."""
        self._waiters[waiter] = None
        self.somebody.set()
        try:
            yield
        finally:
            del self._waiters[waiter]
            self._end_offer(waiter, served=True)
            if not self._waiters:
                self.somebody.clear()

    def settle(self, waiter: Waiter, *, served: bool, unsettled: bool = False) -> None:
        """An attempt of `waiter` is over. Not served: it rests for a moment, and so does what woke it."""
        waiter.attempting = False
        waiter.unsettled = unsettled
        self._end_offer(waiter, served=served)
        if not served:
            waiter.failures += 1
            waiter.rests_until = time.monotonic() + rest(waiter.failures)
        else:
            self.answered(waiter.repeats, by=waiter)

    def answered(self, repeats: tuple[str, str] | None, by: Waiter | None = None) -> None:
        """An answer is stored now: a waiting repeat of the same request gets it without a ready task."""
        for other in self._waiters if repeats else ():
            if other.repeats == repeats and other is not by:
                other.unsettled, other.rests_until = True, 0.0

    def _end_offer(self, waiter: Waiter, *, served: bool) -> None:
        offer = self._offers.get(waiter.offer) if waiter.offer else None
        waiter.offer = None
        if offer is None:
            return
        if served:
            offer.settled = True
        else:
            offer.failures += 1
            offer.until = time.monotonic() + rest(offer.failures)

    def begin_look(self) -> tuple[dict[ClaimWish, int], list[UUID]]:
        """What to look for: each wish of an idle waiter with how many tasks to name, and ids to look up.

        Offers that were settled before the look are forgotten: it sees what became of them.
        """
        self._offers = {task: offer for task, offer in self._offers.items() if not offer.settled}
        now = time.monotonic()
        idle = [waiter.wish for waiter in self._waiters if waiter.is_idle(now)]
        claims = [wish for wish in idle if isinstance(wish, ClaimWish)]
        limit = min(len(claims) + len(self._offers), LOOK_LIMIT)
        ends = {wish.subject_id for wish in idle if isinstance(wish, EndWish)}
        return dict.fromkeys(claims, limit), list(ends)

    def wake(self, found: Found) -> int:
        """Wake as many as there is something for; how many were woken.

        First come first served, but who has tried in vain stands behind who has not.
        """
        now = time.monotonic()
        seen = {task for tasks in found.ready.values() for task in tasks}
        # A rest is over once somebody else took the task.
        self._offers = {
            task: offer for task, offer in self._offers.items() if offer.until == inf or task in seen
        }
        lines = {wish: iter(tasks) for wish, tasks in found.ready.items()}
        count = 0
        for waiter in sorted(self._waiters, key=lambda waiter: waiter.failures):
            if not waiter.is_idle(now):
                continue
            task = None
            if not waiter.unsettled:
                if isinstance(waiter.wish, EndWish):
                    if waiter.wish.subject_id not in found.ended:
                        continue
                elif (task := self._next_offer(lines.get(waiter.wish), now)) is None:
                    continue
            waiter.offer, waiter.attempting = task, True
            waiter.woken.set()
            count += 1
        return count

    def _next_offer(self, line: Iterator[UUID] | None, now: float) -> UUID | None:
        for task in line or ():
            offer = self._offers.setdefault(task, Offer(until=now))
            if offer.until <= now and not offer.settled:
                offer.until = inf
                return task
        return None

    def release(self) -> None:
        """Wake everybody: the hub stops."""
        for waiter in self._waiters:
            waiter.woken.set()
