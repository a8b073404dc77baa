"""A lease kept alive: its clock, and renewals from a thread of its own."""

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Iterator

from .errors import (
    Conflict,
    Forbidden,
    LeaseInJeopardy,
    LeaseLost,
    NotFound,
    TitenError,
    Unauthenticated,
    Unreachable,
)
from .lease_clock import LeaseClock, LeaseState, now
from .transport import FIRST_PAUSE, LONGEST_PAUSE, Pauses, Transport

log = logging.getLogger("titen")

REFUSALS = (LeaseLost, Conflict, NotFound, Unauthenticated, Forbidden)
"""What ends a lease as the answer to a renewal: the server says that it will not be renewed by this key."""


class Keeping:
    """Renews one lease at a third of its time. Subclasses say how. Safe for threads.

    what: its name in logs. sent_at: a moment (of `now()`) before the request that was granted.
    """

    def __init__(self, transport: Transport, what: str, ttl_seconds: float, sent_at: float) -> None:
        self.clock = LeaseClock(ttl_seconds, sent_at)
        self._transport = transport
        self._what = what
        self._one_renewal = threading.Lock()
        self._changed = threading.Condition()
        self._stopped = False
        self._ending = False
        self._under_way = False
        self._thread: threading.Thread | None = None
        self._sent_at = sent_at
        self._due_at = sent_at + self.clock.ttl_seconds / 3
        self._failures = 0

    def renew(self) -> object:
        """One renewal now, one attempt. Raises `LeaseLost` when lost, else what went wrong."""
        raise NotImplementedError

    def start(self) -> None:
        """Renew from a thread until `stop`, a refusal, or the end of the lease."""
        thread = threading.Thread(target=self._renewals, name=f"titen {self._what}", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """No renewal is begun any more; one that is under way no longer matters."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self, timeout: float) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def require(self, *, certain: bool) -> None:
        """Raise `LeaseLost`, or with `certain` also `LeaseInJeopardy`, unless there is standing now."""
        state = self.clock.state
        if state is LeaseState.LOST:
            raise self.clock.loss()
        if certain and state is LeaseState.JEOPARDY:
            raise LeaseInJeopardy(
                f"No renewal was acknowledged for {self.clock.age_seconds:.1f} s of a lease of "
                f"{self.clock.ttl_seconds:g} s. Nothing was sent. Wait until one is accepted."
            )

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """A refused write says as much about the lease as a refused renewal."""
        try:
            yield
        except LeaseLost as error:
            self.clock.refused(error)
            raise

    @contextlib.contextmanager
    def settling(self) -> Iterator[None]:
        """While the lease is being ended by its holder, the answer to that decides how it stands.

        A renewal beside it may be refused because the lease has just been ended; taken at its word it
        would turn a success whose answer was lost into a lost lease. So one that is under way is given
        a second.
        """
        self._after_what_is_under_way()
        with self._changed:
            self._ending = True
        try:
            yield
        finally:
            with self._changed:
                self._ending = False
                self._changed.notify_all()

    def _after_what_is_under_way(self, within: float = 1.0) -> None:
        """Return when no renewal of the thread is under way, or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout=within)

    def _attempt[T](self, send: Callable[[float], tuple[T, float]], *, within: float | None = None) -> T:
        """`send` one renewal, given the seconds to wait for an answer; it returns that and the ttl.

        within: seconds that all of it may take, if they are fewer than usual.
        """
        until = None if within is None else now() + within
        with self._one_at_a_time(within):
            self.require(certain=False)
            with self._changed:
                sent_at = self._sent_at = now()
            patience = self._patience()
            try:
                answer, ttl_seconds = send(
                    patience if until is None else min(patience, max(0.1, until - sent_at))
                )
            except TitenError as error:
                self._failed(error)
                raise
            with self._changed:
                self.clock.acknowledged(sent_at, ttl_seconds)
                self._failures = 0
                self._due_at = sent_at + self.clock.ttl_seconds / 3
                self._changed.notify_all()
            return answer

    @contextlib.contextmanager
    def _one_at_a_time(self, within: float | None) -> Iterator[None]:
        if not self._one_renewal.acquire(timeout=-1 if within is None else within):
            raise Unreachable(f"A renewal of {self._what} is not answered yet.")
        try:
            yield
        finally:
            self._one_renewal.release()

    def _patience(self) -> float:
        """Seconds to wait for a renewal's answer, so that two more can be tried inside the lease."""
        return min(self._transport.timeout, max(0.5, self.clock.ttl_seconds / 3))

    def _failed(self, error: TitenError) -> None:
        if isinstance(error, REFUSALS) and not error.retryable:
            with self._changed:
                self._changed.wait_for(lambda: not self._ending)
                if not self._stopped:
                    self.clock.refused(error)
                    self._changed.notify_all()
            return
        with self._changed:
            ttl = self.clock.ttl_seconds
            pause = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE, ttl / 12) * random.uniform(0.5, 1.0)  # noqa: S311
            # The server's wish is honoured as far as the lease allows.
            self._due_at = now() + max(pause, min(error.retry_after or 0.0, ttl / 6))
            self._failures = min(self._failures + 1, 10)

    def _renewals(self) -> None:
        while self._wait_until_due():
            try:
                self.renew()
            except TitenError as error:
                log.debug("a renewal of %s failed: %s", self._what, error)
            except Exception:
                # Whatever it is, the clock tells the holder; an exception that left this thread would
                # be printed into the agent's output, and nothing would renew the lease any more.
                if self._transport.closed.is_set():
                    return
                log.debug("a renewal of %s could not be sent", self._what, exc_info=True)
                with self._changed:
                    self._due_at = now() + self.clock.ttl_seconds / 12
            finally:
                with self._changed:
                    self._under_way = False
                    self._changed.notify_all()

    def _wait_until_due(self) -> bool:
        """Sleep until a renewal is due; False when there is to be none any more."""
        with self._changed:
            while not self._stopped and self.clock.state is not LeaseState.LOST:
                pause = self._next_due() - now()
                if pause <= 0:
                    self._under_way = True
                    return True
                self._changed.wait(pause)
        return False

    def _next_due(self) -> float:
        """When the next renewal is due. The condition is held."""
        return self._due_at


def confirmed[K: Keeping](
    keep: Callable[[float], K], transport: Transport, ttl_seconds: float, sent_at: float
) -> K:
    """`keep(moment)` for a grant that was answered just now and first asked for at `sent_at`.

    One that waited, or was repeated after a lost answer, was granted at an unknown moment since then.
    When that may have used up the time until the first renewal, the lease is confirmed by one: what
    counts is a moment before a request that is known to have come after the grant.
    Raises what the confirmation answers, `Unreachable` after a ttl without an answer.
    """
    if now() - sent_at < ttl_seconds / 3:
        return keep(sent_at)
    pauses = Pauses(ttl_seconds, transport.closed, longest=ttl_seconds / 12)
    while True:
        kept = keep(now())
        try:
            kept.renew()
        except TitenError as error:
            if not error.retryable or not pauses.wait(error):
                raise
        else:
            return kept
