"""Two moves at once: the first has done its work and not committed, the second waits and is then judged."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from approvals import decisions
from approvals.models import ApprovalStatus
from approvals.requests import end_without_decision, hold_approval, refuse_ended
from coordination import claims, comments, identity, runs, takeovers, tasks
from coordination.callers import by_key, by_principal
from titen.api.doors import transact
from titen.errors import Refused

from .clockwork import uuid_of
from .locking import Work, wait_until_blocked
from .scenes import Scene, Stage, make_scene, set_stage, to_self
from .servers import Server


@pytest.fixture(scope="module")
def stage(web: Server) -> Iterator[Stage]:
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


def _holder(rule: Callable[..., Any], **more: Any) -> Callable[[Scene], Any]:
    def move(scene: Scene) -> Any:
        claim = scene.claim
        credential = by_principal(scene.stage.holder.principal.pk)
        return rule(credential, uuid_of(claim["run"]["id"]), epoch=claim["lease"]["epoch"], **more)

    return move


def _take_over(scene: Scene) -> Any:
    # What the page showed before any of the two moved.
    epoch = scene.claim["lease"]["epoch"] if scene.claim else 0
    return takeovers.take_over(
        scene.stage.human.caller, scene.task, to=None, reason="It is stuck.", epoch=epoch
    )


def _decide(scene: Scene, option: str = "Approve") -> Any:
    digest = scene.approval["digest"]
    return decisions.decide(
        scene.stage.human.caller, uuid_of(scene.approval["id"]), option=option, shown_digest=digest
    )


def _expire(scene: Scene) -> Any:
    """What the job does with an approval that is due, saying so when it is not any more."""
    organization = scene.stage.company.organization.pk
    approval, held = hold_approval(organization, uuid_of(scene.approval["id"]))
    refuse_ended(approval)
    return end_without_decision(approval, held, ApprovalStatus.EXPIRED, at=held.at, actor_id=None)


def _answer(scene: Scene) -> Any:
    question = uuid_of(scene.approval["id"])
    return comments.answer(scene.stage.other.caller, scene.task, question, body="main")


def _claim_it(scene: Scene) -> Any:
    digest = identity.digest_of(scene.stage.other.secret)
    return claims.claim(by_key(digest, "tasks:claim"), task_id=scene.task)


def _make_asked(scene: Scene) -> None:
    """A held task with a blocking question; `approval` stands for the comment."""
    body = {"body": "Which branch?", "blocking": True, "run_id": scene.claim["run"]["id"]}
    scene.approval = scene.stage.holder.post(
        f"/tasks/{scene.task_id}/comments", {**body, "epoch": scene.claim["lease"]["epoch"]}
    )


MOVES: dict[str, Callable[[Scene], Any]] = {
    "complete": _holder(runs.complete),
    "fail": _holder(runs.fail, error="no network"),
    "release": _holder(runs.release),
    "heartbeat": _holder(runs.heartbeat),
    "cancel": lambda scene: tasks.cancel(scene.stage.other.caller, scene.task),
    "take over": _take_over,
    "block": lambda scene: tasks.block(scene.stage.human.caller, scene.task, sentence="Stop."),
    "reopen": lambda scene: tasks.reopen(scene.stage.human.caller, scene.task),
    "decide": _decide,
    "decide otherwise": lambda scene: _decide(scene, "Deny"),
    "expire": _expire,
    "answer": _answer,
    "claim": _claim_it,
}

# (state, first, second) -> how the second ends: a code, or None when it may follow; and the task at last.
PAIRS: dict[tuple[str, str, str], tuple[str | None, str]] = {
    ("held", "cancel", "complete"): ("TASK_CANCELLED", "cancelled"),
    ("held", "complete", "cancel"): ("CONFLICT", "done"),
    ("held", "take over", "complete"): ("LEASE_SUPERSEDED", "todo"),
    ("held", "complete", "take over"): ("CONFLICT", "done"),
    ("held", "take over", "heartbeat"): ("LEASE_SUPERSEDED", "todo"),
    ("held", "heartbeat", "take over"): (None, "todo"),
    ("held", "take over", "take over"): (None, "todo"),
    ("held", "fail", "complete"): ("CONFLICT", "todo"),
    ("held", "complete", "fail"): ("ALREADY_COMPLETED", "done"),
    ("held", "complete", "complete"): ("ALREADY_COMPLETED", "done"),
    ("held", "block", "complete"): ("CONFLICT", "blocked"),
    ("held", "complete", "block"): ("CONFLICT", "done"),
    ("held", "block", "block"): ("CONFLICT", "blocked"),
    ("held", "release", "cancel"): (None, "cancelled"),
    ("held", "fail", "claim"): ("NOT_CLAIMABLE", "todo"),
    ("held", "take over", "claim"): (None, "in_progress"),
    ("todo", "claim", "claim"): ("NOT_CLAIMABLE", "in_progress"),
    ("todo", "claim", "cancel"): (None, "cancelled"),
    ("todo", "cancel", "claim"): ("NOT_CLAIMABLE", "cancelled"),
    ("todo", "block", "claim"): ("NOT_CLAIMABLE", "blocked"),
    ("todo", "claim", "take over"): ("CONFLICT", "in_progress"),
    ("done", "reopen", "reopen"): ("CONFLICT", "todo"),
    ("done", "reopen", "claim"): (None, "in_progress"),
    ("awaiting_approval", "decide", "expire"): ("CONFLICT", "in_progress"),
    ("awaiting_approval", "expire", "decide"): ("APPROVAL_EXPIRED", "in_progress"),
    ("awaiting_approval", "decide", "decide otherwise"): ("CONFLICT", "in_progress"),
    ("awaiting_approval", "take over", "decide"): ("CONFLICT", "todo"),
    ("awaiting_approval", "decide", "take over"): (None, "todo"),
    ("awaiting_approval", "decide", "complete"): (None, "done"),
    ("awaiting_approval", "fail", "decide"): (None, "todo"),
    ("awaiting_approval", "cancel", "decide"): ("CONFLICT", "cancelled"),
    ("asked", "take over", "answer"): ("CONFLICT", "todo"),
    ("asked", "answer", "take over"): (None, "todo"),
    ("asked", "answer", "answer"): ("CONFLICT", "in_progress"),
}


@pytest.mark.parametrize(
    ("state", "first", "second"),
    PAIRS,
    ids=[f"{state}: {first}, then {second}" for state, first, second in PAIRS],
)
def test_the_second_is_judged_by_what_the_first_left(
    stage: Stage, state: str, first: str, second: str
) -> None:
    code, status = PAIRS[state, first, second]
    scene = make_scene(stage, "held" if state == "asked" else state)
    if state == "asked":
        _make_asked(scene)
    with transaction.atomic():
        MOVES[first](scene)
        late = Work(lambda: transact(lambda: MOVES[second](scene)))
        wait_until_blocked()
    if code is None:
        late.outcome()
    else:
        with pytest.raises(Refused) as refused:
            late.outcome()
        assert refused.value.code == code
    assert scene.shown["status"] == status


def test_the_loser_of_two_decisions_is_told_who_decided_what(stage: Stage) -> None:
    scene = make_scene(stage, "awaiting_approval")
    with transaction.atomic():
        _decide(scene)
        late = Work(lambda: transact(lambda: _decide(scene, "Deny")))
        wait_until_blocked()
    with pytest.raises(Refused) as refused:
        late.outcome()
    assert refused.value.details["decision"] == "Approve"
    assert refused.value.details["decided_by"] == stage.human.user.email
    shown = stage.holder.get(f"/approvals/{scene.approval['id']}")
    assert (shown["status"], shown["decision"]) == ("decided", "Approve")


@pytest.mark.parametrize("first", ["claim", "disable"])
def test_no_claim_slips_past_the_disabling_of_its_principal(stage: Stage, first: str) -> None:
    """A lease granted while its principal is disabled is revoked, or never granted."""
    agent = stage.company.agent()
    scene = Scene(stage).create()
    credential = by_key(identity.digest_of(agent.secret), "tasks:claim")

    def claim() -> Any:
        return claims.claim(credential, task_id=scene.task)

    def disable() -> Any:
        return identity.disable_principal(agent.principal)

    with transaction.atomic():
        (claim if first == "claim" else disable)()
        late = Work(lambda: transact(disable if first == "claim" else claim))
        wait_until_blocked()
    if first == "claim":
        late.outcome()
    else:
        with pytest.raises(LookupError):
            late.outcome()
    assert (scene.shown["status"], scene.shown["standing"]) == ("todo", None)


def test_a_human_takes_over_while_the_holder_beats(stage: Stage) -> None:
    """The heartbeat holds only lease and run; the takeover waits for it and then ends that run."""
    scene = make_scene(stage, "held")
    shown = to_self(scene)
    with transaction.atomic():
        MOVES["heartbeat"](scene)
        late = Work(lambda: scene.by_human(takeovers.take_over, **shown))
        wait_until_blocked()
    late.outcome()
    assert scene.shown["standing"]["because"] == "takeover"
