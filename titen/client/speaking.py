"""What the holder of a run says in its name: comments, questions, checkpoints, an offer to somebody else."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

from .checkpoints import KIND
from .effect_errors import ApprovalPending
from .effect_shapes import Action, Decision, Option, Risk
from .errors import TitenError
from .hold import Hold
from .lease_clock import now
from .shapes import Answer, Checkpoint, Claim, Comment, Handoff, Task
from .transport import Transport, given
from .waiting import PAUSE, Asking

NOTHING: Any = object()
"""Where None is a state like any other."""


class Speaking:
    """The part of a `Run` that writes under its epoch and does not end it."""

    task: Task
    context: dict[str, Any]
    """What earlier attempts, comments and decisions left, as claimed. A text that did not fit is null and named in
    its item's `truncated`; `Titen.get(item["href"])` reads it."""
    _heard: set[str]
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
        JSON; the subject is the task unless another is named. See `Titen.checkpoint`.

        The versions of all holders of the task are one line: `expected_version` of the first write is the
        `version` in this run's context, whoever wrote that."""
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
        self._hold.tell(within=self._budget() / 2)  # whoever accepts it ends this run
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
        options: Sequence[str | Option] | None = None,
        *,
        action: Action | None = None,
        risk: Risk | None = None,
        on_expiry: str | None = None,
        valid_for_seconds: int | None = None,
        expires_in_seconds: int | None = None,
        expires_at: datetime | None = None,
        context: str | None = None,
        anew: bool = False,
    ) -> Decision:
        """Ask humans for a decision and wait for it, heartbeating, through restarts of the server.
        `context` is text beside the question.

        action: ask for exactly this; `authorize` uses what is granted, once, within `valid_for_seconds`.
        Its options are approve and deny unless others are given. `risk` can only raise what policy says.
        on_expiry: the option, one that grants nothing, to fall back to when nobody decides in time.
        anew: ask although an earlier attempt has asked the same (question, options and context, or the
        action) and a human has decided since; without it that decision is the answer, at once, the first
        time that this run asks. What was decided before the task was reopened is never the answer.

        If the lease ran out meanwhile (the run is `parked`), the task is claimed again by its id and
        this object goes on under a new `id` and `epoch`. Look at `.status` first: `expired` is not a
        denial. Raises `LeaseLost` when the task went to somebody else or was cancelled; for an action
        also `PolicyDenied`, `ApprovalDenied` while an earlier denial holds, and `Conflict` when it is
        granted already.
        """
        if expires_at is not None and expires_at.utcoffset() is None:
            raise ValueError("expires_at needs a time zone")
        self._require(certain=False)
        asking = self._asking()
        body = given(
            question=question,
            options=None if options is None else list(options),
            action=action,
            risk=risk,
            on_expiry=on_expiry,
            valid_for_seconds=valid_for_seconds,
            expires_in_seconds=expires_in_seconds,
            expires_at=expires_at.isoformat() if expires_at else None,
            context=context,
        )
        decision = None if anew else self._decided_before(body)
        if decision is None:
            decision = asking.decision(self._request(body))
        self._heard.add(decision.approval_id)
        return decision

    def ask_question(self, text: str, *, anew: bool = False) -> Answer:
        """Ask a question that blocks the task, and wait for its answer as `ask` does. What an earlier attempt
        asked in the same words and somebody has answered is answered at once, unless it is asked `anew`."""
        self._require(certain=False)
        asking = self._asking()
        answer = None if anew else self._answered_before(text)
        if answer is None:
            body = {"body": text, "blocking": True}
            answer = asking.answer(self._write(f"/v1/tasks/{self.task['id']}/comments", body))
        self._heard.add(answer.comment_id)
        return answer

    def _decided_before(self, asked: Mapping[str, Any]) -> Decision | None:
        """What a human decided on the same for an earlier attempt, the newest, unless this run has it."""
        for approval in reversed(self.context.get("approvals", [])):
            fresh = approval["status"] == "decided" and approval["id"] not in self._heard
            if fresh and self._counts(approval) and _may_be_same(approval, asked):
                whole = self._whole(approval)
                if _same(whole, asked):
                    return Decision.of(whole)
        return None

    def _answered_before(self, text: str) -> Answer | None:
        for comment in self.context.get("comments", []):
            answered = comment["blocking"] and comment["answered_by"] is not None
            if not answered or comment["id"] in self._heard or not self._counts(comment):
                continue
            body, answer = comment["body"], comment["answer"]
            if body in (None, text) and "truncated" in comment:
                whole = self._whole(comment)
                body, answer = whole["body"], whole["answer"]["body"]
            if body == text:
                return Answer(comment["id"], answer, comment["answered_by"])
        return None

    def _whole(self, item: dict[str, Any]) -> Any:
        """An item of the context; where long texts were left out of it, as it is read at its link."""
        return self._transport.call("GET", item["href"]) if "truncated" in item else item

    def _counts(self, said: Mapping[str, Any]) -> bool:
        """What was decided or answered before the task was reopened no longer counts."""
        return bool(said.get("round") == self.context.get("round"))

    def _request(self, body: Mapping[str, Any]) -> Any:
        try:
            return self._write("/v1/approvals", body)
        except ApprovalPending as pending:
            # Another thread of this run asks the same: wait for that.
            return self._transport.call("GET", f"/v1/approvals/{pending.details['approval_id']}")

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
            return self._transport.call(
                "POST", path, body, before=before, budget=self._budget(), outlast=True
            )

    def _budget(self) -> float:
        return min(self._transport.retry_for, self._hold.clock.ttl_seconds)

    def _asking(self) -> Asking:
        if not self._entered:
            raise RuntimeError("Enter the run before asking: only its block heartbeats while it waits.")
        return Asking(self._transport, self.task["id"], lambda: self._hold, self._resume)


def _may_be_same(approval: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """False where it is about something else, whatever was left out of it for want of room."""
    action = approval.get("action")
    if "action" not in asked or action is None:
        return "action" not in asked and action is None
    return bool(action["tool"] == asked["action"]["tool"])


def _same(approval: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    if "action" in asked:
        return _content(approval.get("action")) == _content(asked["action"])
    words = ("question", "options", "context")
    return approval.get("action") is None and [approval[name] for name in words] == [
        asked.get(name, "") for name in words
    ]


def _content(action: Mapping[str, Any] | None) -> str:
    """What the digest is of, as text: for Python 1, 1.0 and True are the same."""
    if action is None:
        return ""
    content = [action["tool"], action.get("server"), action.get("arguments") or {}]
    return json.dumps(content, sort_keys=True)
