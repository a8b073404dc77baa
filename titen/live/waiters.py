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
# How many ready tasks one look names for each claim, at most.
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


@dataclass(frozen=True, slots=True)
class LeaseWish:
    """Leases on all of these (type, id): whose key, and which resources."""

    digest: str
    resources: tuple[tuple[str, str], ...]


type Wish = ClaimWish | EndWish | LeaseWish
# What one waiter at a time is sent for: a ready task, or a free resource by organization, type and id.
type Prize = UUID | tuple[UUID, str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """What one look saw: ready tasks by wish, approvals and questions that are over, and the wishes for
    leases whose resources are all free, with their organization."""

    ready: dict[ClaimWish, list[UUID]] = field(default_factory=dict)
    ended: frozenset[UUID] = frozenset()
    free: dict[LeaseWish, UUID] = field(default_factory=dict)

    def prizes(self) -> dict[Wish, list[tuple[Prize, ...]]]:
        """What may be won for each wish: one of its tasks, or all its resources."""
        found: dict[Wish, list[tuple[Prize, ...]]] = {
            wish: [(task,) for task in tasks] for wish, tasks in self.ready.items()
        }
        for wish, organization in self.free.items():
            found[wish] = [tuple((organization, *name) for name in wish.resources)]
        return found


@dataclass(frozen=True, slots=True)
class Looking:
    """What to look for: each claim's wish with how many tasks to name, ids to look up, wishes for leases."""

    claims: dict[ClaimWish, int]
    ends: list[UUID]
    leases: list[LeaseWish]


@dataclass(slots=True, eq=False)
class Waiter:
    """One waiting request. `repeats` is the key's digest and the `Idempotency-Key`, if it has one."""

    wish: Wish
    repeats: tuple[str, str] | None = None
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    # Its last answer said nothing about its wish (the database was away): ask again at once.
    unsettled: bool = False
    attempting: bool = False
    offers: tuple[Prize, ...] = ()
    failures: int = 0
    rests_until: float = 0.0

    def is_idle(self, now: float) -> bool:
        """True when it may be woken."""
        return not self.attempting and self.rests_until <= now


@dataclass(slots=True)
class Offer:
    """A ready task or a free resource for which somebody was woken."""

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
        self._offers: dict[Prize, Offer] = {}

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
            self._end_offers(waiter, served=True)
            if not self._waiters:
                self.somebody.clear()

    def settle(self, waiter: Waiter, *, served: bool, unsettled: bool = False) -> None:
        """An attempt of `waiter` is over. Not served: it rests for a moment, and so does what woke it."""
        waiter.attempting = False
        waiter.unsettled = unsettled
        self._end_offers(waiter, served=served)
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

    def _end_offers(self, waiter: Waiter, *, served: bool) -> None:
        offers = [self._offers[prize] for prize in waiter.offers if prize in self._offers]
        waiter.offers = ()
        for offer in offers:
            if served:
                offer.settled = True
            else:
                offer.failures += 1
                offer.until = time.monotonic() + rest(offer.failures)

    def begin_look(self) -> Looking:
        """What the idle waiters wish for.

        Offers that were settled before the look are forgotten: it sees what became of them.
        """
        self._offers = {prize: offer for prize, offer in self._offers.items() if not offer.settled}
        now = time.monotonic()
        idle = [waiter.wish for waiter in self._waiters if waiter.is_idle(now)]
        claims = [wish for wish in idle if isinstance(wish, ClaimWish)]
        limit = min(len(claims) + len(self._offers), LOOK_LIMIT)
        ends = {wish.subject_id for wish in idle if isinstance(wish, EndWish)}
        leases = dict.fromkeys(wish for wish in idle if isinstance(wish, LeaseWish))
        return Looking(dict.fromkeys(claims, limit), list(ends), list(leases))

    def wake(self, found: Found) -> int:
        """Wake as many as there is something for; how many were woken.

        First come first served, but who has tried in vain stands behind who has not.
        """
        now = time.monotonic()
        offered = found.prizes()
        seen = {prize for sets in offered.values() for prizes in sets for prize in prizes}
        lines = {wish: iter(sets) for wish, sets in offered.items()}
        # A rest is over once somebody else took the task or the resource.
        self._offers = {
            prize: offer for prize, offer in self._offers.items() if offer.until == inf or prize in seen
        }
        count = 0
        for waiter in sorted(self._waiters, key=lambda waiter: waiter.failures):
            if not waiter.is_idle(now):
                continue
            prizes: tuple[Prize, ...] = ()
            if not waiter.unsettled:
                if isinstance(waiter.wish, EndWish):
                    if waiter.wish.subject_id not in found.ended:
                        continue
                elif not (prizes := self._next_offers(lines.get(waiter.wish), now)):
                    continue
            waiter.offers, waiter.attempting = prizes, True
            waiter.woken.set()
            count += 1
        return count

    def _next_offers(self, line: Iterator[tuple[Prize, ...]] | None, now: float) -> tuple[Prize, ...]:
        """The next that can be offered whole: one task, or all the resources of a wish; empty for none."""
        for prizes in line or ():
            offers = [self._offers.setdefault(prize, Offer(until=now)) for prize in prizes]
            if all(offer.until <= now and not offer.settled for offer in offers):
                for offer in offers:
                    offer.until = inf
                return prizes
        return ()

    def release(self) -> None:
        """Wake everybody: the hub stops."""
        for waiter in self._waiters:
            waiter.woken.set()
