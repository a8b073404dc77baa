"""What the holder of a run says in its name: comments, questions, checkpoints, an offer to somebody else."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

from .checkpoints import KIND
from .errors import TitenError
from .hold import Hold
from .lease_clock import now
from .shapes import Answer, Checkpoint, Claim, Comment, Decision, Handoff, Task
from .transport import Transport, given
from .waiting import PAUSE, Asking

NOTHING: Any = object()
"""Where None is a state like any other."""


class Speaking:
    """The part of a `Run` that writes under its epoch and does not end it."""

    task: Task
    _transport: Transport
    _hold: Hold
    _entered: bool

    def comment(self, body: str) -> Comment:
        """Say something on the task's page. Blocks nothing."""
        return cast(Comment, self._write(f"/v1/tasks/{self.task['id']}/comments", {"body": body}))

    def checkpoint(
        self,
        state: Any,
        *,
        kind: str = KIND,
        subject_id: str | None = None,
        expected_version: int | None = None,
    ) -> Checkpoint:
        """Keep state for whoever goes on with this task: `context["checkpoint"]` of the next run. `state` is
        JSON; the subject is the task unless another is named. See `Titen.checkpoint`."""
        wish = given(subject_id=subject_id, expected_version=expected_version)
        return cast(Checkpoint, self._write("/v1/checkpoints", {"state": state, "kind": kind, **wish}))

    def hand_off(
        self,
        to: str,
        *,
        message: str = "",
        checkpoint: Any = NOTHING,
        checkpoint_id: str | None = None,
        context_id: str | None = None,
        expires_in_seconds: int | None = None,
        wait: int = 0,
    ) -> Handoff:
        """Offer the task to a principal, by name or id, and go on until it is accepted; one offer at a time.

        checkpoint: JSON that is written as this run's checkpoint first, and pinned in the offer.
        checkpoint_id: pin this one instead. wait: seconds to wait for an answer, any number.

        Returns the handoff as it then stands; look at its `status`. Once it is accepted `outcome` is
        `handed_off`, leaving the block says nothing, and everything else raises `HandedOff`.
        """
        self._require(certain=True)
        if checkpoint is not NOTHING:
            checkpoint_id = self.checkpoint(checkpoint)["checkpoint_id"]
        body = given(
            to_principal=to,
            message=message,
            checkpoint_id=checkpoint_id,
            context_id=context_id,
            expires_in_seconds=expires_in_seconds,
        )
        handoff = cast(Handoff, self._write("/v1/handoffs", body))
        until = now() + wait
        while handoff["status"] == "pending" and now() < until and not self._transport.closed.wait(PAUSE):
            handoff = self._transport.call("GET", f"/v1/handoffs/{handoff['handoff_id']}")
        if handoff["status"] == "accepted":
            with contextlib.suppress(TitenError):
                self._hold.beat()  # so that this run knows it too
        return handoff

    def ask(
        self,
        question: str,
        options: Sequence[str],
        *,
        expires_in_seconds: int | None = None,
        expires_at: datetime | None = None,
        context: str | None = None,
    ) -> Decision:
        """Ask humans for a decision and wait for it, heartbeating, through restarts of the server.
        `context` is text beside the question.

        If the lease ran out meanwhile (the run is `parked`), the task is claimed again by its id and
        this object goes on under a new `id` and `epoch`. Look at `.status` first: `expired` is not a
        denial. Raises `LeaseLost` when the task went to somebody else or was cancelled.
        """
        if expires_at is not None and expires_at.utcoffset() is None:
            raise ValueError("expires_at needs a time zone")
        asking = self._asking()
        body = given(
            question=question,
            options=list(options),
            expires_in_seconds=expires_in_seconds,
            expires_at=expires_at.isoformat() if expires_at else None,
            context=context,
        )
        return asking.decision(self._write("/v1/approvals", body))

    def ask_question(self, text: str) -> Answer:
        """Ask a question that blocks the task, and wait for its answer as `ask` does."""
        asking = self._asking()
        body = {"body": text, "blocking": True}
        return asking.answer(self._write(f"/v1/tasks/{self.task['id']}/comments", body))

    def _require(self, *, certain: bool) -> None:
        raise NotImplementedError

    def _resume(self, claim: Claim, sent_at: float) -> None:
        raise NotImplementedError

    def _write(self, path: str, body: Mapping[str, Any]) -> Any:
        """A write in the name of this run that jeopardy allows."""
        hold = self._hold
        body = {"run_id": hold.run_id, "epoch": hold.epoch, **body}
        with hold.refusing():
            before = partial(self._require, certain=False)
            return self._transport.call("POST", path, body, before=before, budget=self._budget())

    def _budget(self) -> float:
        return min(self._transport.retry_for, self._hold.clock.ttl_seconds)

    def _asking(self) -> Asking:
        if not self._entered:
            raise RuntimeError("Enter the run before asking: only its block heartbeats while it waits.")
        return Asking(self._transport, self.task["id"], lambda: self._hold, self._resume)
