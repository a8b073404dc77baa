"""One lease, held: its renewals from a thread of its own, and what may be done under it."""

import contextlib
import logging
import random
import threading
from collections.abc import Iterator
from typing import Any, cast

from .errors import (
    Conflict,
    Forbidden,
    LeaseInJeopardy,
    LeaseLost,
    NotFound,
    TitenError,
    Unauthenticated,
    ValidationError,
)
from .lease_clock import LeaseClock, LeaseState, now
from .shapes import Claim, Heartbeat
from .text import one_line
from .transport import FIRST_PAUSE, LONGEST_PAUSE, Pauses, Transport

log = logging.getLogger("titen")

STATUS_LIMIT = 200
PROGRESS_INTERVAL = 1.0
"""Seconds between two heartbeats that only report progress."""

REFUSALS = (LeaseLost, Conflict, NotFound, Unauthenticated, Forbidden)
"""What ends a lease as the answer to a heartbeat: the server says that it will not be renewed by this key."""


class Hold:
    """Standing under one claim: run, epoch, clock and heartbeats. Safe for threads."""

    def __init__(self, transport: Transport, claim: Claim, sent_at: float) -> None:
        self.run_id = claim["run"]["id"]
        self.epoch = claim["lease"]["epoch"]
        self.lease = claim["lease"]
        self.paused = False
        self.clock = LeaseClock(claim["lease"]["ttl_seconds"], sent_at)
        self._transport = transport
        self._one_beat = threading.Lock()
        self._changed = threading.Condition()
        self._stopped = False
        self._ending = False
        self._under_way = False
        self._thread: threading.Thread | None = None
        self._sent_at = sent_at
        self._due_at = sent_at + self.clock.ttl_seconds / 3
        self._failures = 0
        self._notes: dict[str, Any] = {}
        self._notes_version = 0
        self._notes_accepted = 0

    @property
    def _noted(self) -> bool:
        return self._notes_version != self._notes_accepted

    @property
    def path(self) -> str:
        return f"/v1/runs/{self.run_id}"

    def start(self) -> None:
        """Heartbeat from a thread until `stop`, a refusal, or the end of the lease."""
        self._thread = threading.Thread(target=self._beats, name=f"titen {self.run_id}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No heartbeat is begun any more; one that is under way no longer matters."""
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
                f"No heartbeat was acknowledged for {self.clock.age_seconds:.1f} s of a lease of "
                f"{self.clock.ttl_seconds:g} s. Nothing was sent. Wait until a heartbeat is accepted."
            )

    def note(self, percent: int | None, status: str | None) -> None:
        """Report with the next heartbeat, which is brought forward."""
        notes: dict[str, Any] = {}
        if percent is not None:
            if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= 100:
                raise ValueError(f"percent is a whole number from 0 to 100, not {percent!r}")
            notes["progress"] = percent
        if status is not None:
            notes["status"] = one_line(status, STATUS_LIMIT)
        with self._changed:
            self._notes |= notes
            self._notes_version += 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def ending(self, *, report: bool) -> Iterator[None]:
        """While complete, fail or release is under way, its own answer decides how the run stands.

        A heartbeat beside it may be refused because the run has just been completed; taken at its
        word it would turn a success whose answer was lost into a lost lease. So one that is under
        way is given a second, and with `report` what was noted last is sent before.
        """
        if report and self._noted and not self._failures:
            with contextlib.suppress(TitenError):
                self.beat()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout=1.0)
            self._ending = True
        try:
            yield
        finally:
            with self._changed:
                self._ending = False
                self._changed.notify_all()

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """A refused write says as much about the lease as a refused heartbeat."""
        try:
            yield
        except LeaseLost as error:
            self.clock.refused(error)
            raise

    def beat(self, ttl_seconds: int | None = None) -> Heartbeat:
        """One heartbeat now, one attempt. Raises `LeaseLost` when lost, else what went wrong."""
        with self._one_beat:
            self.require(certain=False)
            with self._changed:
                version = self._notes_version
                notes = dict(self._notes) if self._noted else {}
                sent_at = self._sent_at = now()
            body = {"epoch": self.epoch, **notes}
            if ttl_seconds is not None:
                body["ttl_seconds"] = ttl_seconds
            try:
                answer = cast(
                    Heartbeat,
                    self._transport.once("POST", f"{self.path}/heartbeat", body, timeout=self._patience()),
                )
            except TitenError as error:
                self._failed(error, version)
                raise
            with self._changed:
                self.lease = answer["lease"]
                self.paused = "pause" in answer.get("directives", ())
                self.clock.acknowledged(sent_at, self.lease["ttl_seconds"])
                self._notes_accepted = max(self._notes_accepted, version)
                self._failures = 0
                self._due_at = sent_at + self.clock.ttl_seconds / 3
                self._changed.notify_all()
            return answer

    def _patience(self) -> float:
        """Seconds to wait for a heartbeat's answer, so that two more can be tried inside the lease."""
        return min(self._transport.timeout, max(0.5, self.clock.ttl_seconds / 3))

    def _failed(self, error: TitenError, version: int) -> None:
        if isinstance(error, REFUSALS) and not error.retryable:
            with self._changed:
                self._changed.wait_for(lambda: not self._ending)
                if not self._stopped:
                    self.clock.refused(error)
                    self._changed.notify_all()
            return
        with self._changed:
            if isinstance(error, ValidationError):
                # A status line that the server does not like must not cost the lease.
                self._notes_accepted = max(self._notes_accepted, version)
            ttl = self.clock.ttl_seconds
            pause = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE, ttl / 12) * random.uniform(0.5, 1.0)  # noqa: S311
            # The server's wish is honoured as far as the lease allows.
            self._due_at = now() + max(pause, min(error.retry_after or 0.0, ttl / 6))
            self._failures = min(self._failures + 1, 10)

    def _beats(self) -> None:
        while self._wait_until_due():
            try:
                self.beat()
            except TitenError as error:
                log.debug("heartbeat of %s failed: %s", self.run_id, error)
            except Exception:
                # Whatever it is, the clock tells the run; an exception that left this thread would
                # be printed into the agent's output, and nothing would renew the lease any more.
                if self._transport.closed.is_set():
                    return
                log.debug("heartbeat of %s could not be sent", self.run_id, exc_info=True)
                with self._changed:
                    self._due_at = now() + self.clock.ttl_seconds / 12
            finally:
                with self._changed:
                    self._under_way = False
                    self._changed.notify_all()

    def _wait_until_due(self) -> bool:
        """Sleep until a heartbeat is due; False when there is to be none any more."""
        with self._changed:
            while not self._stopped and self.clock.state is not LeaseState.LOST:
                due_at = self._due_at
                if self._noted and not self._failures and not self._ending:
                    due_at = min(due_at, self._sent_at + PROGRESS_INTERVAL)
                pause = due_at - now()
                if pause <= 0:
                    self._under_way = True
                    return True
                self._changed.wait(pause)
        return False


def take(transport: Transport, claim: Claim, sent_at: float) -> Hold:
    """The hold on a claim that was answered just now and first asked for at `sent_at`.

    A claim that waited, or was repeated after a lost answer, was granted at an unknown moment since
    then. When that may have used up the time until the first heartbeat, the lease is confirmed by
    one: what counts is a moment before a request that is known to have come after the grant.
    Raises what the confirmation answers, `Unreachable` after a ttl without an answer.
    """
    ttl = claim["lease"]["ttl_seconds"]
    if now() - sent_at < ttl / 3:
        return Hold(transport, claim, sent_at)
    pauses = Pauses(ttl, transport.closed, longest=ttl / 12)
    while True:
        hold = Hold(transport, claim, now())
        try:
            hold.beat()
        except TitenError as error:
            if not error.retryable or not pauses.wait(error):
                raise
        else:
            return hold
