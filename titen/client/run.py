"""A run: one attempt at a task, as a context manager."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from .effects import Authorizer
from .ending import Ending
from .errors import RunEnded, TitenError
from .hold import Hold, take
from .keeping import log
from .lease_clock import LeaseState
from .processes import Handle
from .shapes import Claim, Heartbeat, Lease
from .text import error_text, storable
from .transport import Transport


class Run(Ending, Handle):
    """A claimed task. Enter it: it heartbeats from its own thread at a third of its lease.

    Nothing completes by itself: call `complete`. Leaving the block without it releases the task; an
    exception fails the run with its text. KeyboardInterrupt and SystemExit release it, and so does what is
    no failure of the work: a Titen that cannot be reached or is not ready, a rate limit, jeopardy. Once the
    lease is lost nothing is sent, and leaving the block raises `LeaseLost`. A task that was handed off
    is a good end: calls raise `HandedOff`, leaving the block raises nothing.

    What is allowed: while held, everything; in jeopardy `heartbeat`, `progress`, `comment`, `ask`,
    `ask_question`, `checkpoint`, `fail`, `release`, and `complete` once a heartbeat has ended it, but neither
    `hand_off`, `authorize` nor what `guard` protects; when lost, nothing but the report of an effect's
    outcome. The rest raises `LeaseInJeopardy` or `LeaseLost` before anything is sent.

    A run belongs to the process that claimed it. In a child of a fork calls raise `WrongProcess`, and
    leaving the block ends nothing.
    """

    next_run: "Run | None"
    """The run that came with the answer to the end of this one, if `claim_next` found work."""

    def __init__(
        self, transport: Transport, claim: Claim, hold: Hold, *, opened: Callable[["Run"], None]
    ) -> None:
        Handle.__init__(self)
        self.task = claim["task"]
        self.context = claim.get("context") or {}
        self.next_run = None
        self.claim_with_end = lambda: None
        self._transport = transport
        self._hold = hold
        self._opened = opened
        self._entered = False
        self._heard = set()
        self._authorizer = Authorizer(transport, self._require, self._budget)
        self._outcome = None
        self._one_end = threading.Lock()
        self._unanswered = None

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.task['id']}, epoch {self.epoch}, {self.state}>"

    @property
    def id(self) -> str:
        """Changes when `ask` claims a parked task again, as `epoch` and `lease` do."""
        return self._hold.run_id

    @property
    def epoch(self) -> int:
        return self._hold.epoch

    @property
    def outcome(self) -> str | None:
        """`completed`, `failed` or `released` by this object, or `handed_off`; None until then."""
        return self._outcome or ("handed_off" if not self.inherited and self._hold.handed_off else None)

    @property
    def lease(self) -> Lease:
        """As the server last told it."""
        return self._hold.lease

    @property
    def state(self) -> LeaseState:
        """held, jeopardy or lost by the local clock; ended once there is an outcome."""
        if self.inherited:
            return LeaseState.LOST
        return LeaseState.ENDED if self.outcome else self._hold.clock.state

    @property
    def remaining_seconds(self) -> float:
        """Seconds until it is lost if no heartbeat is acknowledged any more."""
        return 0.0 if self.inherited else self._hold.clock.remaining_seconds

    def guard(self) -> None:
        """Call right before each act on the world. Raises `LeaseInJeopardy`, `LeaseLost` or `RunEnded`."""
        self._require(certain=True)

    def heartbeat(self, *, ttl_seconds: int | None = None) -> Heartbeat:
        """Renew now, one attempt. Needed only outside of the block, or to change the ttl.

        The answer holds what was decided and answered since the last call of this, the heartbeats of the block
        included.
        """
        self._require(certain=False)
        return self._hold.told(self._hold.beat(ttl_seconds))

    def sequencer(self) -> str:
        """A signed statement of this lease, to send along with effects (`titen.client.fencing`). It is good
        until the lease that one heartbeat, made now, renews runs out."""
        self._require(certain=False)
        return self._hold.beat(signed=True)["lease"]["sequencer"]

    def progress(self, percent: int | None = None, status: str | None = None) -> None:
        """Report how far it is: 0..100 and one line (cut at 200 characters). Never waits for the server.

        Sent with a heartbeat at once, or a second after the last one. Raises `LeaseLost` when there
        is nobody to work for any more.
        """
        self._require(certain=False)
        self._hold.note(percent, status)

    def complete(
        self,
        summary: str | None = None,
        *,
        result: Any = None,
        evidence: list[Any] | None = None,
        claim_next: bool | None = None,
    ) -> "Run | None":
        """The task is done. Returns the next run if `claim_next` found one.

        `result` and `evidence` are JSON. In jeopardy a heartbeat confirms the lease first; when none is
        answered it raises `LeaseInJeopardy`. Repeated inside the lease until it is answered; calling it
        again with the same arguments after `Unreachable` repeats the same request.
        """
        body = {"summary": summary, "result": result, "evidence": evidence}
        self._end("complete", body, claim_next, certain=True)
        return self.next_run

    def fail(
        self, error: str | BaseException, *, retryable: bool = True, claim_next: bool | None = None
    ) -> "Run | None":
        """This attempt failed. `retryable` False blocks the task until a human has looked at it."""
        text = storable(error) if isinstance(error, str) else error_text(error)
        self._end("fail", {"error": text, "retryable": retryable}, claim_next)
        return self.next_run

    def release(
        self, reason: str | None = None, *, checkpoint: Any = None, claim_next: bool | None = None
    ) -> "Run | None":
        """Give the task back. `checkpoint` is JSON for the next attempt."""
        self._end("release", {"reason": reason, "checkpoint": checkpoint}, claim_next)
        return self.next_run

    def __enter__(self) -> Self:
        self._refuse_inherited()
        if self._entered or self.outcome:
            raise RuntimeError("A run is entered once.")
        self._entered = True
        try:
            self._opened(self)
            self._hold.start()
        except BaseException as error:
            self._without_work(error, "The agent could not begin")
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.inherited:
            return  # the run is the parent's
        try:
            if self.outcome is None:
                self._leave(error)
        finally:
            self._hold.stop()
            self._hold.join(1.0)

    def stop(self) -> None:
        """Stop heartbeating and wait for the thread. Ends nothing on the server: the lease runs out."""
        self._refuse_inherited()
        self._hold.stop()
        self._hold.join(self._transport.timeout)

    def _require(self, *, certain: bool) -> None:
        self._refuse_inherited()
        if self._outcome:
            raise RunEnded(f"This run was {self._outcome} already. Nothing more is sent.")
        self._hold.require(certain=certain)

    def _resume(self, claim: Claim, sent_at: float) -> None:
        """Go on under a new claim of the same task."""
        hold = take(self._transport, claim, sent_at)
        self.task = claim["task"]
        self.context = claim.get("context") or {}
        self._hold = hold
        hold.start()

    def _go_on(self, answer: Mapping[str, Any], sent_at: float) -> None:
        claim: Claim | None = answer.get("next")
        if claim is None:
            return
        try:
            hold = take(self._transport, claim, sent_at)
        except TitenError as error:
            # This run has ended well; a next one that is lost already is the next claim's matter.
            log.debug("the run claimed with the end of %s was lost: %s", self.id, error)
            return
        self.next_run = Run(self._transport, claim, hold, opened=self._opened)
