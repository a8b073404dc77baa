"""What the holder of a run does to the world: with standing, and with a human's word where policy wants it."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .effect_errors import (
    AlreadyConsumed,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ApprovalRequired,
    ApprovalVoid,
)
from .effect_shapes import Decision, Kind, Option, Risk
from .effects import Authorizer, DoneAlready, Effect, as_action
from .errors import Conflict, TitenError
from .speaking import Speaking

PAUSED_LOOK = 2.0
"""Seconds between two looks whether a paused task goes on."""


class Acting(Speaking):
    """The part of a `Run` that acts."""

    _authorizer: Authorizer

    @property
    def paused(self) -> bool:
        """A human blocked the task: stop working, stay in the block; it turns False when they are done."""
        return self._hold.paused

    def wait_while_paused(self) -> None:
        """Return when the task is not paused (any more); heartbeats meanwhile. Raises `LeaseLost`."""
        self._require(certain=False)
        while self.paused:
            self._transport.closed.wait(PAUSED_LOOK)
            with contextlib.suppress(TitenError):
                self._hold.beat()
            self._require(certain=False)

    def authorize(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        effect_key: str,
        server: str | None = None,
        kind: Kind | None = None,
        approval: Decision | str | None = None,
    ) -> Effect:
        """Have one act authorized, right before it happens: `with run.authorize(…): deploy()`.

        tool, server: what acts, and where it comes from. arguments: JSON, exactly what it will be given.
        effect_key: names this act on this task, at most 200 characters; it can be used once, so that no
        two attempts do the same thing. A refusal leaves it free. When an earlier attempt has used it for
        exactly this action and that succeeded, the answer is a `DoneAlready`: do not act again.
        kind: only ever makes policy's word stricter.
        approval: the grant to use up; any that fits, if not given.

        Raises `LeaseInJeopardy` or `LeaseLost` before anything is sent, or when the answer came too late
        to act on; `ApprovalRequired`, `ApprovalPending`, `ApprovalExpired`, `ApprovalVoid`,
        `AlreadyConsumed`, `DigestMismatch` for want of a grant; `ApprovalDenied` and `PolicyDenied`, which
        are final; `Conflict` while the task is blocked, and for a used `effect_key`, with `effect_id` and
        `state` of the effect that used it. A lost answer is repeated, and gives the same effect.
        """
        hold = self._hold
        with hold.refusing():
            return self._authorizer.authorize(
                {"run_id": hold.run_id, "epoch": hold.epoch},
                as_action(tool, arguments, server, kind),
                effect_key=effect_key,
                approval_id=approval.approval_id if isinstance(approval, Decision) else approval,
            )

    def act[T](
        self,
        tool: str,
        arguments: Mapping[str, Any] | None,
        do: Callable[[Effect], T],
        *,
        effect_key: str,
        question: str,
        server: str | None = None,
        kind: Kind | None = None,
        options: Sequence[str | Option] | None = None,
        context: str | None = None,
        risk: Risk | None = None,
        on_expiry: str | None = None,
        valid_for_seconds: int | None = None,
        expires_in_seconds: int | None = None,
    ) -> T | DoneAlready:
        """Do something to the world as policy wants it, and return what `do(effect)` returns.

        It is authorized; where a human must approve it first `question` is asked, as `ask` does, and then
        it is authorized. `do` runs in the effect's block (see `Effect`). A paused task is waited for.
        Returns a `DoneAlready`, without a question and without calling `do`, when an earlier attempt has
        done exactly this under the same `effect_key`.

        Raises what `authorize` does; `ApprovalDenied`, final, with the human's `reason` in its `details`;
        `ApprovalExpired` with the `fallback` when nobody decided in time; `ApprovalVoid` when the question
        was taken back.
        """
        action = as_action(tool, arguments, server, kind)

        def authorized(approval: Decision | None = None) -> Effect:
            return self._when_it_goes_on(
                lambda: self.authorize(
                    tool, arguments, effect_key=effect_key, server=server, kind=kind, approval=approval
                )
            )

        try:
            effect = authorized()
        except (ApprovalRequired, ApprovalPending, ApprovalExpired, ApprovalVoid, AlreadyConsumed):
            decision = self.ask(
                question,
                options,
                action=action,
                context=context,
                risk=risk,
                on_expiry=on_expiry,
                valid_for_seconds=valid_for_seconds,
                expires_in_seconds=expires_in_seconds,
                anew=True,
            )
            _refuse_unless_granted(decision)
            effect = authorized(decision)
        if isinstance(effect, DoneAlready):
            return effect
        with effect:
            return do(effect)

    def _when_it_goes_on(self, attempt: Callable[[], Effect]) -> Effect:
        """Attempt it while the task is not paused."""
        while True:
            self.wait_while_paused()
            try:
                return attempt()
            except Conflict:
                # Maybe a human has paused it, and no heartbeat has told yet.
                with contextlib.suppress(TitenError):
                    self._hold.beat()
                if not self.paused:
                    raise


def _refuse_unless_granted(decision: Decision) -> None:
    if decision.granted:
        return
    about = {"approval_id": decision.approval_id, "status": decision.status}
    if decision.granted is False:
        said = f": {decision.reason}" if decision.reason else ""
        raise ApprovalDenied(
            f"A human decided “{decision.decision}”{said}. It is final; do not ask again.",
            details={**about, "decision": decision.decision, "reason": decision.reason or "", "final": True},
        )
    if decision.status == "expired":
        instead = f" Fall back to “{decision.fallback}”." if decision.fallback else ""
        raise ApprovalExpired(
            f"Nobody decided in time, which is no denial.{instead}",
            details={**about, "fallback": decision.fallback},
        )
    raise ApprovalVoid("The question was taken back before anybody decided.", details=about)
