"""Acting on the world: what to do when somebody says no, and when nobody knows what came of it."""

import time
from collections.abc import Callable

from titen.client import ApprovalDenied, DoneAlready, EffectRecord, PolicyDenied, Run, Titen
from titen.demo.work import Outcome

PATIENCE_SECONDS = 90.0
"""How long a human has to reconcile what is unknown before the agent looks for itself."""
LOOK_SECONDS = 2.0

type Happened = Callable[[EffectRecord], bool]


def settle(titen: Titen, run: Run, happened: Happened) -> None:
    """Look into what an earlier attempt left unknown, and say what came of it: completion waits for that."""
    for effect in run.context.get("effects", []):
        if effect["status"] == "unknown":
            _tell(titen, effect, happened)


def find_out(titen: Titen, run: Run, effect_id: str, happened: Happened) -> EffectRecord:
    """Wait for a human who reconciles an unknown effect; when nobody comes, look, and say what was found."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (effect := titen.read_effect(effect_id))["status"] == "unknown":
        if time.monotonic() >= until:
            return _tell(titen, effect, happened)
        run.progress(status=f"nobody knows yet what came of “{effect['action']['tool']}”")
        time.sleep(LOOK_SECONDS)
        run.wait_while_paused()
    return effect


def _tell(titen: Titen, effect: EffectRecord, happened: Happened) -> EffectRecord:
    if happened(effect):
        return titen.report_effect(effect, "succeeded", note="I looked again: it has happened.")
    return titen.report_effect(effect, "failed", note="I looked again: nothing has happened.")


def outcome_of(acted: Outcome | DoneAlready) -> Outcome:
    """What an act came to; an earlier attempt may have done it."""
    if isinstance(acted, DoneAlready):
        tool = acted.record["action"]["tool"]
        return Outcome(f"An earlier attempt did this already ({tool}).", {"effect": acted.id})
    return acted


def no_of(refused: ApprovalDenied | PolicyDenied) -> str:
    """A no in half a sentence: `a human decided “deny” (Not on a Friday.)`."""
    if isinstance(refused, PolicyDenied):
        return "policy denies it"
    reason = refused.details.get("reason")
    return f"a human decided “{refused.details['decision']}”" + (f" ({reason})" if reason else "")
