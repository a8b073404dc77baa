"""Effects: acts on the world, authorized right before they happen and reported right after."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Literal, Protocol, Self, cast

from .connection import Connection, id_of
from .effect_shapes import Action, EffectRecord, Kind, Outcome
from .errors import Conflict, TitenError
from .processes import Handle
from .text import error_text, storable
from .transport import INTERRUPTED_BUDGET, Transport, given, new_key


class Effect(Handle):
    """One effect that the server has authorized: act now, once, then say what came of it.

    As a `with` block it reports by itself: `succeeded` at its end, `unknown` when an exception leaves it,
    since nobody knows how far it came; the exception goes on. In the block `failed` says that it came to
    nothing. A report is accepted after the lease was lost, too; it is then marked `late`.
    """

    def __init__(self, transport: Transport, record: EffectRecord) -> None:
        super().__init__()
        self.record = record
        self._transport = transport

    def __repr__(self) -> str:
        return f"<Effect {self.id} {self.record['action']['tool']} {self.record['status']}>"

    @property
    def id(self) -> str:
        return self.record["id"]

    @property
    def kind(self) -> Kind:
        """What policy says that it is: completion waits for the outcome of `destructive` and `outward` ones."""
        return self.record["kind"]

    @property
    def outcome(self) -> str | None:
        """What was reported; None until then."""
        return None if self.record["status"] == "authorized" else self.record["status"]

    def report(self, outcome: Outcome, *, note: str = "") -> EffectRecord:
        """Say what came of it, with a note of up to 4,000 characters. Repeated until it is answered.

        What is `unknown` can still be told, and what `succeeded` can be `compensated`; anything else
        raises `Conflict`, whose `details["state"]` is what it is.
        """
        return self._report(outcome, note)

    def succeeded(self, note: str = "") -> EffectRecord:
        """It happened."""
        return self.report("succeeded", note=note)

    def failed(self, note: str) -> EffectRecord:
        """It did not happen, and this is why."""
        return self.report("failed", note=note)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.inherited or self.outcome is not None:
            return
        if error is None:
            self.report("succeeded")
            return
        budget = None if isinstance(error, Exception) else INTERRUPTED_BUDGET
        try:
            self._report("unknown", error_text(error), budget)
        except (TitenError, RuntimeError) as failure:
            error.add_note(f"titen: the server may not know what came of {self.id} ({failure})")

    def _report(self, outcome: Outcome, note: str, budget: float | None = None) -> EffectRecord:
        self._refuse_inherited()
        self.record = report(self._transport, self.id, outcome, note, budget)
        return self.record


class DoneAlready(Effect):
    """An effect that an earlier call with the same `effect_key` and action has made: it succeeded. Do not act again.

    It used no grant. As a `with` block it raises `Conflict` before the block begins. `report("compensated")`
    still says that it was undone.
    """

    def __enter__(self) -> Self:
        raise Conflict(
            f"{self.id} succeeded already for exactly this action, so the block did not run. Check"
            " isinstance(effect, DoneAlready) first, and skip the act.",
            details={"effect_id": self.id, "state": self.record["status"]},
        )


def as_action(
    tool: str, arguments: Mapping[str, Any] | None, server: str | None, kind: Kind | None
) -> Action:
    """The action as it is sent: for `ask` as for `authorize`, so that both are about the same."""
    return {"tool": tool, "arguments": dict(arguments or {}), **given(server=server, kind=kind)}  # type: ignore[typeddict-item]


class Standing(Protocol):
    """What a run or a lease lets happen: raises what stands against it, by the local clock alone."""

    def __call__(self, *, certain: bool) -> None: ...


class Authorizer:
    """Has effects authorized under one lease. Safe for threads."""

    def __init__(self, transport: Transport, standing: Standing, budget: Callable[[], float]) -> None:
        self._transport = transport
        self._standing = standing
        self._budget = budget
        self._unanswered: dict[str, str] = {}

    def authorize(
        self, holder: Mapping[str, Any], action: Action, *, effect_key: str, approval_id: str | None = None
    ) -> Effect:
        """`holder` names the run or the lease, and its epoch. See `Run.authorize`."""
        body = {**holder, "action": action, "effect_key": effect_key, **given(approval_id=approval_id)}
        # The same call after one that got no answer is the same request: it may have been authorized then.
        call = json.dumps(body, sort_keys=True)
        key = self._unanswered.pop(call, None) or new_key()
        attempts = count()
        try:
            record = self._transport.call(
                "POST",
                "/v1/effects",
                body,
                key=key,
                budget=self._budget(),
                outlast=True,
                # Jeopardy does not stop a repetition: the first attempt may have been authorized.
                before=lambda: self._standing(certain=next(attempts) == 0),
            )
        except TitenError as error:
            if error.retryable:
                self._unanswered[call] = key
            raise
        if record["status"] == "succeeded":
            return DoneAlready(self._transport, cast(EffectRecord, record))
        effect = Effect(self._transport, cast(EffectRecord, record))
        self._refuse_late(effect)
        return effect

    def _refuse_late(self, effect: Effect) -> None:
        """An answer that came when the lease was no longer certain lets nothing happen."""
        try:
            self._standing(certain=True)
        except TitenError:
            with contextlib.suppress(TitenError):
                effect.failed("Nothing was done: when this was answered the lease was no longer certain.")
            raise


class EffectCalls(Connection):
    """What an agent asks of a server about effects. Under a lease they are made by `Run.authorize`."""

    def effects(
        self, *, status: str | None = None, task: str | None = None, run: str | None = None
    ) -> Iterator[EffectRecord]:
        """What was attempted in the organization, refused ones too; the newest first. Arguments are shown
        where this agent may read the task."""
        return self._each("/v1/effects", "effects", status=status, task=task, run=run)

    def read_effect(self, effect: EffectRecord | str) -> EffectRecord:
        """One as it stands now."""
        return cast(EffectRecord, self.get(f"/v1/effects/{id_of(effect, 'id')}"))

    def report_effect(
        self,
        effect: EffectRecord | str,
        outcome: Literal["succeeded", "failed", "compensated"],
        *,
        note: str = "",
    ) -> EffectRecord:
        """Tell the outcome of one's own effect when its run is long over: what the next attempt finds with the
        status `unknown` in `run.context["effects"]` and has looked into. See `Effect.report`."""
        return report(self._transport, id_of(effect, "id"), outcome, note)


def report(
    transport: Transport, effect_id: str, outcome: Outcome, note: str, budget: float | None = None
) -> EffectRecord:
    """Report an outcome; what is known already is no error."""
    path = f"/v1/effects/{effect_id}"
    body = {"outcome": outcome, "note": storable(note)}
    try:
        return cast(EffectRecord, transport.call("POST", f"{path}/outcome", body, budget=budget))
    except Conflict as error:
        if error.details.get("state") != outcome:
            raise
        return cast(EffectRecord, transport.call("GET", path, budget=budget))
