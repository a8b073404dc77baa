"""Waiting for work, for a busy resource, and for humans: longer than a request and a lease if need be."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from .effect_shapes import Approval, Decision
from .errors import LeaseExpired, LeaseLost, NotClaimable, TitenError
from .hold import Hold
from .lease_clock import LeaseState, now
from .shapes import Answer, Claim
from .transport import LONGEST_PAUSE, Transport, new_key

LONGEST_WAIT = 25
"""Seconds the server holds one request."""

PAUSE = 0.5
"""Least seconds between two looks."""


def rounds(transport: Transport, wait: int) -> Iterator[tuple[float, int]]:
    """The requests of one wait of `wait` seconds: a moment before each, and the seconds it asks the server for."""
    until = now() + wait
    while True:
        sent_at = now()
        yield sent_at, min(LONGEST_WAIT, max(0, round(until - sent_at)))
        if round(until - now()) < 1:
            return
        # A front end may not pass the wait on: then this is a poll.
        transport.closed.wait(max(0.0, PAUSE - (now() - sent_at)))


class Asking:
    """One question of a run that waits: the heartbeats go on beside it, and may fail to."""

    def __init__(
        self,
        transport: Transport,
        task_id: str,
        hold: Callable[[], Hold],
        resume: Callable[[Claim, float], None],
    ) -> None:
        self._transport = transport
        self._task_id = task_id
        self._hold = hold
        self._resume = resume

    def decision(self, approval: dict[str, Any]) -> Decision:
        """Wait until the approval is no longer pending."""
        approval = self._until(
            approval, f"/v1/approvals/{approval['id']}", lambda answer: answer["status"] != "pending"
        )
        self._rejoin()
        return Decision.of(cast(Approval, approval))

    def answer(self, comment: dict[str, Any]) -> Answer:
        """Wait until the blocking comment is answered."""
        comment = self._until(
            comment,
            f"/v1/tasks/{self._task_id}/comments/{comment['id']}",
            lambda state: state["answer"] is not None or state.get("withdrawn") is True,
        )
        answer = comment["answer"]
        if answer is None:
            raise LeaseLost("The question was withdrawn: the task was taken over or cancelled.")
        self._rejoin()
        return Answer(comment["id"], answer["body"], answer["answered_by"])

    def _until(
        self, state: dict[str, Any], path: str, done: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        while not done(state):
            wait, began = self._patience(), now()
            state = self._read(path, wait=wait)
            if done(state):
                break
            if not wait:
                raise self._loss()
            # A front end may not pass the wait on: then this is a poll.
            self._transport.closed.wait(max(0.0, PAUSE - (now() - began)))
        return state

    def _rejoin(self) -> None:
        """Learn at once how the run stands after a long wait, and claim its task again if it was parked."""
        with contextlib.suppress(TitenError):
            self._hold().beat()
        if self._hold().clock.state is LeaseState.LOST:
            self._claim_again()

    def _patience(self) -> int:
        """Seconds until it is worth looking again how the run stands; 0 when no answer can reach it."""
        clock = self._hold().clock
        if clock.state is not LeaseState.LOST:
            return max(1, min(LONGEST_WAIT, int(clock.remaining_seconds)))
        if clock.refusal is not None and not isinstance(clock.refusal, LeaseExpired):
            return 0
        return LONGEST_WAIT if self._read(f"/v1/tasks/{self._task_id}")["status"] == "blocked" else 0

    def _loss(self) -> LeaseLost:
        return self._hold().clock.loss()

    def _read(self, path: str, wait: int = 0) -> dict[str, Any]:
        """Read through any outage: humans take longer than restarts."""
        while True:
            try:
                answer: dict[str, Any] = self._transport.call("GET", path, wait=wait)
            except TitenError as error:
                if not error.retryable:
                    raise
                if self._transport.closed.wait(min(error.retry_after or 1.0, LONGEST_PAUSE)):
                    raise
            else:
                return answer

    def _claim_again(self) -> None:
        """Claim the task by its id: it is reserved for its last principal for a while.

        The local clock is ahead of the server's: there the old lease may still live, by a heartbeat
        whose answer was lost for as long as a ttl, and the task can't be claimed until it has ended.
        """
        hold = self._hold()
        if hold.clock.refusal is not None and not isinstance(hold.clock.refusal, LeaseExpired):
            raise self._loss()
        until = now() + hold.clock.ttl_seconds + self._transport.retry_for
        body = {"task_id": self._task_id, "ttl_seconds": int(hold.clock.ttl_seconds)}
        key, sent_at = new_key(), now()
        while True:
            try:
                claim: Claim | None = self._transport.call("POST", "/v1/tasks/claim", body, key=key)
            except TitenError as error:
                again = error.retryable or (isinstance(error, NotClaimable) and now() < until)
                if not again or self._transport.closed.wait(PAUSE):
                    raise self._loss() from error
                if not error.retryable:
                    sent_at = now()  # it was answered: nothing was granted until here
                continue
            if claim is not None:
                self._resume(claim, sent_at)
                return
            sent_at = now()
            if self._transport.closed.wait(PAUSE):
                raise self._loss()
