"""Every move of coordination/transitions.py, made through the door where its people make it."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from coordination import takeovers, tasks
from titen.errors import Refused

from .acting import PUBLISH, effect
from .cast import Agent
from .scenes import Scene, offer, question, to_self


@dataclass
class Outcome:
    """What came of a move: the code of its refusal, or None."""

    code: str | None = None


def _over_http(scene: Scene, path: str, body: dict[str, Any], *, by: Agent | None = None) -> Outcome:
    answer = (by or scene.stage.holder).send("POST", path, body)
    assert answer.status_code < 500, answer.text
    return Outcome(answer.json()["error"]["code"] if answer.status_code >= 400 else None)


def _by_rule(work: Callable[[], Any]) -> Outcome:
    try:
        work()
    except Refused as refused:
        return Outcome(refused.code)
    return Outcome()


def _run_and_epoch(scene: Scene) -> tuple[str, int]:
    """The holder's run; a made-up one where it never had any."""
    if scene.claim is None:
        return f"run_{secrets.token_hex(16)}", 1
    return scene.claim["run"]["id"], scene.claim["lease"]["epoch"]


def _holder(verb: str, **body: Any) -> Callable[[Scene], Outcome]:
    def move(scene: Scene) -> Outcome:
        run, epoch = _run_and_epoch(scene)
        return _over_http(scene, f"/runs/{run}/{verb}", {"epoch": epoch, **body})

    return move


def _claim(scene: Scene) -> Outcome:
    return _over_http(scene, "/tasks/claim", {"task_id": scene.task_id})


def _ask_approval(scene: Scene) -> Outcome:
    run, epoch = _run_and_epoch(scene)
    return _over_http(scene, "/approvals", question({"run": {"id": run}, "lease": {"epoch": epoch}}))


def _ask_question(scene: Scene) -> Outcome:
    run, epoch = _run_and_epoch(scene)
    body = {"body": "Which branch?", "blocking": True, "run_id": run, "epoch": epoch}
    return _over_http(scene, f"/tasks/{scene.task_id}/comments", body)


def _authorize(scene: Scene) -> Outcome:
    """What its approval was for; without one something that policy allows."""
    run, epoch = _run_and_epoch(scene)
    claim = {"run": {"id": run}, "lease": {"epoch": epoch}}
    return _over_http(scene, "/effects", effect(claim, scene.action or PUBLISH))


def _cancel(scene: Scene) -> Outcome:
    return _over_http(scene, f"/tasks/{scene.task_id}/cancel", {})


def _offer(scene: Scene) -> Outcome:
    run, epoch = _run_and_epoch(scene)
    body = offer(scene.stage.other, {"run": {"id": run}, "lease": {"epoch": epoch}})
    return _over_http(scene, "/handoffs", body)


def _hand_off(scene: Scene) -> Outcome:
    """The other agent accepts what the holder offered; without an offer the holder tries to make one."""
    if scene.handoff is None:
        return _offer(scene)
    path = f"/handoffs/{scene.handoff['handoff_id']}/resolve"
    return _over_http(scene, path, {"status": "accepted"}, by=scene.stage.other)


def _sweep(scene: Scene) -> Outcome:
    scene.sweep()
    return Outcome()


def _human(rule: Callable[..., Any], **more: Any) -> Callable[[Scene], Outcome]:
    return lambda scene: _by_rule(lambda: scene.by_human(rule, **more))


def _to_self(scene: Scene) -> Outcome:
    return _by_rule(lambda: scene.by_human(takeovers.take_over, **to_self(scene)))


def _to_agent(scene: Scene) -> Outcome:
    return _take_over(scene, scene.stage.other.principal)


def _take_over(scene: Scene, to: Any = None) -> Outcome:
    epoch = scene.shown["epoch"]
    return _by_rule(lambda: scene.by_human(takeovers.take_over, to=to, reason="It is stuck.", epoch=epoch))


def _resume(scene: Scene) -> Outcome:
    """End whatever blocks the task, by the rule for it."""
    kinds = {wait["kind"] for wait in scene.shown["waits_for"]} if scene.shown["open_blockers"] else set()
    if "approval" in kinds:
        return _by_rule(scene.decide)
    if "attempts" in kinds:
        return _by_rule(lambda: scene.by_human(tasks.reopen))
    return _by_rule(lambda: scene.by_human(tasks.unblock))


# `move` or `move:variant` -> how it is made.
MOVES: dict[str, Callable[[Scene], Outcome]] = {
    "claim": _claim,
    "heartbeat": _holder("heartbeat", progress=40),
    "complete": _holder("complete", summary="Done."),
    "fail": _holder("fail", error="no network"),
    "release": _holder("release", reason="Not mine."),
    "abandon": _sweep,
    "park": _sweep,
    "ask": _ask_approval,
    "ask:question": _ask_question,
    "resume": _resume,
    "block": _human(tasks.block, sentence="Stop, please."),
    "unblock": _human(tasks.unblock),
    "take_over": _take_over,
    "take_over:agent": _to_agent,
    "take_over:me": _to_self,
    "hand_off": _hand_off,
    "hand_off:offer": _offer,
    "cancel": _cancel,
    "reopen": _human(tasks.reopen),
    "set_priority": _human(tasks.set_priority, priority=7),
    "authorize": _authorize,
}


def make(move: str, scene: Scene) -> Outcome:
    """Make a move of the table; one without a way to make it fails the test."""
    if move not in MOVES:
        pytest.fail(f"the move {move} is in the table, but tests/moves.py does not know how it is made")
    return MOVES[move](scene)
