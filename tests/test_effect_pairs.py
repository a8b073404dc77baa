"""Effects against each other move that takes the same locks: the second is judged by what the first left."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from approvals import decisions, effects, outcomes, requests
from approvals.actions import Action
from approvals.models import Approval, ApprovalStatus, EffectStatus
from coordination import identity, leasing, runs, sweeping, takeovers, tasks
from coordination.callers import by_principal
from titen.api.doors import transact
from titen.errors import Refused

from . import acting
from .acting import PUBLISH
from .cases.tools import at_once
from .clockwork import sql, uuid_of
from .effecting import (
    READ,
    counters,
    list_tools,
    refused,
)
from .locking import Work, second_connection, until, wait_until_blocked
from .scenes import Scene, Stage, make_scene, set_stage
from .servers import Server
from .test_deadlocks import deadlocks


@pytest.fixture(scope="module")
def stage(web: Server) -> Iterator[Stage]:
    stage = set_stage(web.url)
    list_tools(stage.company)
    yield stage
    for agent in stage.company.agents:
        agent.close()


def _action(body: dict[str, Any]) -> Action:
    return Action(body["tool"], body["server"], body["arguments"])


def rule_of(scene: Scene, action: Any = None, **more: Any) -> Any:
    """The rule that authorizes (what was asked for, if not said otherwise), in the transaction of the test."""
    key = acting.effect(scene.claim)["effect_key"]
    return effects.authorize(
        scene.stage.holder.caller,
        **{
            "run_id": uuid_of(scene.claim["run"]["id"]),
            "epoch": scene.claim["lease"]["epoch"],
            "action": _action(action or scene.action),
            "effect_key": key,
            **more,
        },
    )


def _code_of(work: Callable[[], Any]) -> str | None:
    """The code of its refusal, or None."""
    try:
        work()
    except Refused as no:
        return no.code
    return None


def _holder(rule: Callable[..., Any], **more: Any) -> Callable[[Scene], Any]:
    def move(scene: Scene) -> Any:
        run, epoch = uuid_of(scene.claim["run"]["id"]), scene.claim["lease"]["epoch"]
        return rule(by_principal(scene.stage.holder.principal.pk), run, epoch=epoch, **more)

    return move


def _take_over(scene: Scene) -> Any:
    epoch = scene.claim["lease"]["epoch"]
    return takeovers.take_over(
        scene.stage.human.caller, scene.task, to=None, reason="It is stuck.", epoch=epoch
    )


def _sweep(scene: Scene) -> Any:
    return sweeping.sweep_batch(task_id=scene.task)


def _declare(scene: Scene) -> Any:
    run, epoch = uuid_of(scene.claim["run"]["id"]), scene.claim["lease"]["epoch"]
    return leasing.declare_jeopardy_of_run(scene.stage.holder.caller, run, epoch=epoch)


def _report(outcome: str) -> Callable[[Scene], Any]:
    def move(scene: Scene) -> Any:
        return outcomes.report(
            scene.stage.holder.caller, uuid_of(scene.effect["id"]), outcome=EffectStatus(outcome)
        )

    return move


def _reconcile(scene: Scene) -> Any:
    return outcomes.reconcile(
        scene.stage.human.caller, uuid_of(scene.effect["id"]), outcome=EffectStatus.FAILED, note="I looked."
    )


def _ask(scene: Scene) -> Any:
    return requests.request(
        scene.stage.holder.caller,
        run_id=uuid_of(scene.claim["run"]["id"]),
        epoch=scene.claim["lease"]["epoch"],
        question="May I?",
        action=_action(scene.action or acting.deploy()),
    )


def _decide(option: str) -> Callable[[Scene], Any]:
    def move(scene: Scene) -> Any:
        return decisions.decide(
            scene.stage.human.caller,
            uuid_of(scene.approval["id"]),
            option=option,
            shown_digest=scene.approval["digest"],
            reason=f"I {option}.",
        )

    return move


def _lift(scene: Scene) -> Any:
    return decisions.lift_denial(scene.stage.human.caller, uuid_of(scene.approval["id"]))


def _take_back(scene: Scene) -> Any:
    asked = Approval.objects.get(task_id=scene.task, status=ApprovalStatus.PENDING)
    return requests.cancel(scene.stage.holder.caller, asked.pk)


MOVES: dict[str, Callable[[Scene], Any]] = {
    "authorize": lambda scene: rule_of(scene),
    "publish": lambda scene: rule_of(scene, PUBLISH),
    "read": lambda scene: rule_of(scene, READ),
    "publish under one key": lambda scene: rule_of(scene, PUBLISH, effect_key="one"),
    "complete": _holder(runs.complete),
    "fail": _holder(runs.fail, error="no network"),
    "release": _holder(runs.release),
    "heartbeat": _holder(runs.heartbeat),
    "cancel": lambda scene: tasks.cancel(scene.stage.other.caller, scene.task),
    "take over": _take_over,
    "sweep": _sweep,
    "declare jeopardy": _declare,
    "block": lambda scene: tasks.block(scene.stage.human.caller, scene.task, sentence="Stop."),
    "report": _report("succeeded"),
    "report otherwise": _report("failed"),
    "reconcile": _reconcile,
    "ask": _ask,
    "approve": _decide("approve"),
    "deny": _decide("deny"),
    "lift": _lift,
    "take back": _take_back,
}

# (state, first, second) -> how the second ends: a code, or None when it may follow; and the counters at last.
PAIRS: dict[tuple[str, str, str], tuple[str | None, tuple[int, int]]] = {
    # Never done with an open effect.
    ("held", "publish", "complete"): ("EFFECTS_UNRECONCILED", (1, 1)),
    ("held", "complete", "publish"): ("ALREADY_COMPLETED", (0, 0)),
    ("held", "read", "complete"): (None, (0, 0)),
    ("approved", "complete", "authorize"): ("ALREADY_COMPLETED", (0, 0)),
    ("approved", "authorize", "complete"): ("EFFECTS_UNRECONCILED", (1, 1)),
    ("authorized", "report", "complete"): (None, (0, 0)),
    ("authorized", "complete", "report"): (None, (0, 0)),
    # What ends a run sees what was authorized while it waited, and nothing is authorized after it.
    ("held", "publish", "fail"): (None, (1, 0)),
    ("held", "fail", "publish"): ("CONFLICT", (0, 0)),
    ("held", "publish", "release"): (None, (1, 0)),
    ("held", "release", "publish"): ("CONFLICT", (0, 0)),
    ("held", "publish", "cancel"): (None, (1, 0)),
    ("held", "cancel", "publish"): ("TASK_CANCELLED", (0, 0)),
    ("held", "publish", "take over"): (None, (1, 0)),
    ("held", "take over", "publish"): ("LEASE_SUPERSEDED", (0, 0)),
    ("held_but_run_out", "sweep", "publish"): ("LEASE_EXPIRED", (0, 0)),
    ("held", "publish", "publish"): (None, (2, 2)),
    ("held", "publish under one key", "publish under one key"): ("CONFLICT", (1, 1)),
    ("held", "heartbeat", "publish"): (None, (1, 1)),
    ("held", "publish", "heartbeat"): (None, (1, 1)),
    # Nothing in jeopardy, nothing while the run waits.
    ("held", "declare jeopardy", "publish"): ("LEASE_IN_JEOPARDY", (0, 0)),
    ("held", "publish", "declare jeopardy"): (None, (1, 1)),
    ("held", "block", "publish"): ("CONFLICT", (0, 0)),
    ("held", "ask", "publish"): ("CONFLICT", (0, 0)),
    ("held", "publish", "ask"): (None, (1, 1)),
    # A grant: used once, and not after what voids it.
    ("approved", "authorize", "authorize"): ("ALREADY_CONSUMED", (1, 1)),
    ("approved", "take over", "authorize"): ("LEASE_SUPERSEDED", (0, 0)),
    ("approved", "authorize", "take over"): (None, (1, 0)),
    ("approved", "cancel", "authorize"): ("TASK_CANCELLED", (0, 0)),
    ("approved", "declare jeopardy", "authorize"): ("LEASE_IN_JEOPARDY", (0, 0)),
    ("approved", "authorize", "ask"): (None, (1, 1)),
    ("approved", "ask", "authorize"): (None, (1, 1)),
    ("approved", "release", "authorize"): ("CONFLICT", (0, 0)),
    ("asked for", "approve", "authorize"): (None, (1, 1)),
    ("asked for", "deny", "authorize"): ("APPROVAL_DENIED", (0, 0)),
    ("asked for", "approve", "deny"): ("CONFLICT", (0, 0)),
    ("asked for", "deny", "deny"): ("CONFLICT", (0, 0)),
    # A denial: it holds until it is lifted, and is lifted once.
    ("denied", "lift", "ask"): (None, (0, 0)),
    ("denied", "ask", "lift"): (None, (0, 0)),
    ("denied", "lift", "lift"): ("CONFLICT", (0, 0)),
    # A run that waits uses nothing, nor does one that was parked meanwhile.
    ("approved, asking", "take back", "authorize"): (None, (1, 1)),
    ("approved, asking", "authorize", "take back"): (None, (0, 0)),
    ("approved, asking, run out", "sweep", "authorize"): ("LEASE_EXPIRED", (0, 0)),
    ("authorized, asking, run out", "sweep", "report"): (None, (0, 0)),
    # An outcome and the end of the run.
    ("authorized", "fail", "report"): (None, (0, 0)),
    ("authorized", "report", "fail"): (None, (0, 0)),
    ("authorized", "take over", "report"): (None, (0, 0)),
    ("authorized", "report", "take over"): (None, (0, 0)),
    ("authorized", "cancel", "report"): (None, (0, 0)),
    ("authorized", "report", "report otherwise"): ("CONFLICT", (0, 0)),
    ("authorized", "report", "reconcile"): ("CONFLICT", (0, 0)),
    ("authorized", "reconcile", "report"): ("CONFLICT", (0, 0)),
    ("authorized", "reconcile", "complete"): (None, (0, 0)),
}
# What the first of a pair does when it is refused itself.
FIRST_REFUSED = {
    ("approved", "ask"): "CONFLICT",
    ("denied", "ask"): "APPROVAL_DENIED",
    ("approved, asking", "authorize"): "CONFLICT",
    ("authorized", "complete"): "EFFECTS_UNRECONCILED",
}


def set_scene(stage: Stage, state: str) -> Scene:
    """One of STATES, maybe with a question, maybe with a lease that has run out."""
    if state == "asked for":
        return Scene(stage).create().hold().ask_for(acting.deploy())
    name, *more = state.split(", ")
    scene = make_scene(stage, name)
    if "asking" in more:
        stage.holder.post("/approvals", acting.request(scene.claim, acting.deploy()))
    return scene.let_run_out() if "run out" in more else scene


@pytest.mark.parametrize(
    ("state", "first", "second"),
    PAIRS,
    ids=[f"{state}: {first}, then {second}" for state, first, second in PAIRS],
)
def test_the_second_is_judged_by_what_the_first_left(
    stage: Stage, state: str, first: str, second: str
) -> None:
    code, after = PAIRS[state, first, second]
    scene, before = set_scene(stage, state), deadlocks()
    with transaction.atomic():
        assert _code_of(lambda: MOVES[first](scene)) == FIRST_REFUSED.get((state, first))
        late = Work(lambda: transact(lambda: MOVES[second](scene)))
        wait_until_blocked()
    if code is None:
        late.outcome()
    else:
        with pytest.raises(Refused) as no:
            late.outcome()
        assert no.value.code == code
    assert counters(scene.claim) == after
    assert deadlocks() == before


def test_the_reason_of_the_first_denial_stays(stage: Stage) -> None:
    scene = set_scene(stage, "asked for")
    with transaction.atomic():
        MOVES["deny"](scene)
        late = Work(lambda: transact(lambda: MOVES["approve"](scene)))
        wait_until_blocked()
    with pytest.raises(Refused) as no:
        late.outcome()
    assert no.value.details["decision"] == "deny"
    shown = stage.holder.get(f"/approvals/{scene.approval['id']}")
    assert (shown["decision"], shown["reason"], shown["granted"]) == ("deny", "I deny.", False)


def test_a_decision_that_waits_past_the_deadline_is_refused(stage: Stage) -> None:
    scene = set_scene(stage, "asked for")
    approval = uuid_of(scene.approval["id"])
    overdue = "SELECT expires_at <= clock_timestamp() FROM approvals_approval WHERE id = %s"
    with second_connection() as other:
        sql(
            "UPDATE approvals_approval SET expires_at = clock_timestamp() + interval '0.6 s' WHERE id = %s",
            approval,
        )
        other.lock_task(scene.task)
        late = Work(lambda: transact(lambda: MOVES["approve"](scene)))
        wait_until_blocked(other)
        assert not sql(overdue, approval)[0][0], "the machine was too slow for this test"
        until(lambda: sql(overdue, approval)[0][0], "the deadline")
        other.commit()
        with pytest.raises(Refused) as no:
            late.outcome()
    assert no.value.code == "APPROVAL_EXPIRED"
    assert decisions.expire(approval, stage.company.organization.pk)
    refused(stage.holder, "APPROVAL_EXPIRED", scene.claim, scene.action)


@pytest.mark.parametrize("first", ["publish", "disable"])
def test_no_effect_slips_past_the_disabling_of_its_principal(stage: Stage, first: str) -> None:
    """The principal is locked before the task: the other way round the two would wait for each other."""
    agent = stage.company.agent()
    mine = Stage(stage.company, agent, stage.other, stage.human)
    scene, before = make_scene(mine, "held"), deadlocks()
    moves: dict[str, Callable[[], Any]] = {
        "publish": lambda: rule_of(scene, PUBLISH),
        "disable": lambda: identity.disable_principal(agent.principal),
    }
    caller = agent.caller
    (second,) = set(moves) - {first}
    if second == "publish":
        body = acting.effect(scene.claim, PUBLISH)
        moves["publish"] = lambda: effects.authorize(
            caller,
            run_id=uuid_of(body["run_id"]),
            epoch=body["epoch"],
            action=_action(PUBLISH),
            effect_key=body["effect_key"],
        )
    with transaction.atomic():
        moves[first]()
        late = Work(lambda: transact(moves[second]))
        wait_until_blocked()
    if first == "publish":
        late.outcome()
    else:
        with pytest.raises(Refused) as no:
            late.outcome()
        assert no.value.code == "UNAUTHENTICATED"
    assert counters(scene.claim) == (int(first == "publish"), 0)
    assert deadlocks() == before


# Everything at once


def test_anything_at_once_around_one_grant_never_deadlocks(stage: Stage) -> None:
    """Authorizing beside each other move, from the same moment on: each is answered, and the counters are true."""
    before = deadlocks()
    others = ["heartbeat", "complete", "fail", "take over", "cancel", "sweep", "report", "reconcile", "ask"]
    for other in others:
        scene = make_scene(stage, "authorized")
        scene.approval = None
        works = ["publish", other, "publish", "read", other]
        found = at_once(works, lambda name, scene=scene: _outcome(scene, name))  # type: ignore[misc]
        assert not [each for each in found if not isinstance(each, str | None)], found
    for option in ("approve", "deny"):
        scene = set_scene(stage, "asked for")
        at_once(
            ["authorize", option, "authorize", "heartbeat", "authorize"],
            lambda name, scene=scene: _outcome(scene, name),  # type: ignore[misc]
        )
        assert len(acting.effects_of(stage.holder, task=scene.task_id, status="authorized")) <= (
            option == "approve"
        )
    assert deadlocks() == before


def _outcome(scene: Scene, name: str) -> str | None:
    try:
        return _code_of(lambda: transact(lambda: MOVES[name](scene)))
    finally:
        connection.close()
