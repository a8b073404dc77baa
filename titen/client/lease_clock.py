"""What a holder may believe about its lease, judged without asking anybody."""

import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum

from .errors import LeaseLost, TitenError


def now() -> float:
    """Seconds on a clock that never goes back and goes on while the machine is suspended.

    `time.monotonic()` stands still during suspend on Linux and macOS: a laptop that slept for an
    hour would believe for another hour in a lease that somebody else holds.
    """
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic()


class LeaseState(StrEnum):
    """held: act. jeopardy: finish nothing, cause no effect. lost: stop. ended: by this run itself."""

    HELD = "held"
    JEOPARDY = "jeopardy"
    LOST = "lost"
    ENDED = "ended"


class LeaseClock:
    """held, jeopardy or lost, from the moment before the last acknowledged renewal was sent.

    The server counts from when it received that renewal, so this clock is always the earlier one.
    Lost is final: an answer that arrives afterwards changes nothing. Safe for threads.
    """

    def __init__(self, ttl_seconds: float, sent_at: float, *, clock: Callable[[], float] = now) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._ttl = float(ttl_seconds)
        self._sent_at = sent_at
        self._lost = False
        self._refusal: TitenError | None = None

    @property
    def ttl_seconds(self) -> float:
        with self._lock:
            return self._ttl

    @property
    def age_seconds(self) -> float:
        """Seconds since the last acknowledged renewal was sent."""
        with self._lock:
            return self._clock() - self._sent_at

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the lease is lost if nothing is acknowledged any more; 0 when it is lost."""
        with self._lock:
            if self._judge() is LeaseState.LOST:
                return 0.0
            return max(0.0, self._sent_at + self._ttl - self._clock())

    @property
    def state(self) -> LeaseState:
        with self._lock:
            return self._judge()

    @property
    def refusal(self) -> TitenError | None:
        """The server's answer that ended it; None when the clock did, or while it lives."""
        with self._lock:
            return self._refusal

    def acknowledged(self, sent_at: float, ttl_seconds: float) -> None:
        """The server accepted a renewal that was sent at `sent_at` (a value of `now()`)."""
        with self._lock:
            if self._judge() is not LeaseState.LOST and sent_at > self._sent_at:
                self._sent_at = sent_at
                self._ttl = float(ttl_seconds)

    def refused(self, error: TitenError) -> None:
        """The server said that the lease is gone: lost at once."""
        with self._lock:
            if self._judge() is not LeaseState.LOST:
                self._lost = True
                self._refusal = error

    def loss(self) -> LeaseLost:
        """The error to raise once it is lost: a `LeaseLost` of the class that the server answered."""
        refusal = self.refusal
        if refusal is None:
            return LeaseLost(
                f"No renewal was acknowledged for {self.age_seconds:.1f} s of a lease of {self.ttl_seconds:g} s. "
                "Nothing more is sent. Stop the work and begin anew.",
            )
        kind = type(refusal) if isinstance(refusal, LeaseLost) else LeaseLost
        error = kind(
            refusal.message,
            code=refusal.code,
            details=refusal.details,
            status=refusal.status,
            request_id=refusal.request_id,
        )
        error.__cause__ = refusal
        return error

    def _judge(self) -> LeaseState:
        age = self._clock() - self._sent_at
        if self._lost or age >= self._ttl:
            self._lost = True
            return LeaseState.LOST
        return LeaseState.JEOPARDY if age * 3 >= self._ttl * 2 else LeaseState.HELD
