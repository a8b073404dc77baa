"""Handing over against every other move on the task: the second is judged by what the first left, and one holds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from coordination import accepting, claims, handoffs, identity, offering, takeovers
from coordination.callers import by_key
from coordination.models import Handoff, Membership, Principal
from titen.api.doors import transact
from titen.errors import Refused

from .clockwork import let_lease_run_out, uuid_of
from .locking import Work, second_connection, wait_until_blocked
from .passing import let_offer_run_out
from .scenes import Scene, Stage, make_scene, set_stage
from .servers import Server
from .test_lock_pairs import MOVES as OTHER_MOVES


@pytest.fixture(scope="module")
def stage(web: Server) -> Iterator[Stage]:
    stage = set_stage(web.url)
    stage.company.agent("third")
    yield stage
    for agent in stage.company.agents:
        agent.close()


def _handoff(scene: Scene) -> Any:
    return uuid_of(scene.handoff["handoff_id"])


def _claim_by_third(scene: Scene) -> Any:
    credential = by_key(identity.digest_of(scene.stage.company.agents[2].secret), "tasks:claim")
    return claims.claim(credential, task_id=scene.task)


def _offer_again(scene: Scene) -> Any:
    run, epoch = uuid_of(scene.claim["run"]["id"]), scene.claim["lease"]["epoch"]
    return offering.offer(scene.stage.holder.caller, to_principal="third", run_id=run, epoch=epoch)


MOVES: dict[str, Callable[[Scene], Any]] = {
    **OTHER_MOVES,
    "accept": lambda scene: accepting.accept(scene.stage.other.caller, _handoff(scene)),
    "reject": lambda scene: handoffs.reject(scene.stage.other.caller, _handoff(scene)),
    "withdraw": lambda scene: handoffs.withdraw(scene.stage.holder.caller, _handoff(scene)),
    "expire": lambda scene: handoffs.expire_due(),
    "sweep": lambda scene: scene.sweep(),
    "claim by a third": _claim_by_third,
    "offer again": _offer_again,
}

# (state, first, second) -> how the second ends: a code, or None when it may follow; who holds at last, and
# how the offer ended.
PAIRS: dict[tuple[str, str, str], tuple[str | None, str | None, str]] = {
    ("held", "accept", "heartbeat"): ("LEASE_SUPERSEDED", "other", "accepted"),
    ("held", "heartbeat", "accept"): (None, "other", "accepted"),
    ("held", "accept", "complete"): ("LEASE_SUPERSEDED", "other", "accepted"),
    ("held", "complete", "accept"): ("CONFLICT", None, "expired"),
    ("held", "accept", "fail"): ("LEASE_SUPERSEDED", "other", "accepted"),
    ("held", "fail", "accept"): (None, "other", "accepted"),
    ("held", "accept", "release"): ("LEASE_SUPERSEDED", "other", "accepted"),
    ("held", "release", "accept"): (None, "other", "accepted"),
    ("held", "accept", "take over"): ("CONFLICT", "other", "accepted"),
    ("held", "take over", "accept"): ("NOT_FOUND", None, "withdrawn"),
    ("held", "accept", "cancel"): (None, None, "accepted"),
    ("held", "cancel", "accept"): ("NOT_FOUND", None, "withdrawn"),
    ("held", "accept", "block"): (None, "other", "accepted"),
    ("held", "block", "accept"): (None, "other", "accepted"),
    ("held", "accept", "accept"): ("NOT_FOUND", "other", "accepted"),
    ("held", "accept", "reject"): ("NOT_FOUND", "other", "accepted"),
    ("held", "reject", "accept"): ("NOT_FOUND", "holder", "rejected"),
    ("held", "accept", "withdraw"): ("NOT_FOUND", "other", "accepted"),
    ("held", "withdraw", "accept"): ("NOT_FOUND", "holder", "withdrawn"),
    ("held", "reject", "withdraw"): ("NOT_FOUND", "holder", "rejected"),
    ("held", "accept", "offer again"): ("LEASE_SUPERSEDED", "other", "accepted"),
    ("held", "withdraw", "offer again"): (None, "holder", "withdrawn"),
    ("offered too long", "expire", "accept"): ("NOT_FOUND", "holder", "expired"),
    ("offered too long", "expire", "offer again"): (None, "holder", "expired"),
    ("held_but_run_out", "sweep", "accept"): (None, "other", "accepted"),
    ("held_but_run_out", "claim by a third", "accept"): ("CONFLICT", "third", "expired"),
    ("held_but_run_out", "accept", "claim by a third"): ("NOT_CLAIMABLE", "other", "accepted"),
    ("todo_released", "claim by a third", "accept"): ("CONFLICT", "third", "expired"),
    ("todo_released", "accept", "claim by a third"): ("NOT_CLAIMABLE", "other", "accepted"),
    ("awaiting_approval", "decide", "accept"): (None, "other", "accepted"),
    ("awaiting_approval", "accept", "decide"): (None, "other", "accepted"),
    ("parked", "decide", "accept"): (None, "other", "accepted"),
    ("parked", "accept", "decide"): (None, "other", "accepted"),
}


@pytest.mark.parametrize(
    ("state", "first", "second"),
    PAIRS,
    ids=[f"{state}: {first}, then {second}" for state, first, second in PAIRS],
)
def test_the_second_is_judged_by_what_the_first_left(
    stage: Stage, state: str, first: str, second: str
) -> None:
    code, holder, end = PAIRS[state, first, second]
    scene = make_scene(stage, "held" if state == "offered too long" else state, offers=True)
    if state == "offered too long":
        let_offer_run_out(scene.handoff)
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
    standing = scene.shown["standing"]
    assert (standing["holder"] if standing else None) == holder
    assert Handoff.objects.get(pk=_handoff(scene)).status == end


def test_the_lease_runs_out_while_the_acceptance_waits(stage: Stage) -> None:
    """It counts as an attempt of the sender's, and the receiver takes what came back."""
    scene = make_scene(stage, "held", offers=True)
    with second_connection() as busy:
        busy.lock_task(scene.task)
        late = Work(lambda: transact(lambda: MOVES["accept"](scene)))
        wait_until_blocked(busy)
        let_lease_run_out(scene.claim)
        busy.commit()
        late.outcome()
    shown = scene.shown
    assert (shown["standing"]["holder"], shown["attempt_count"]) == ("other", 1)
    assert stage.holder.get(f"/runs/{scene.claim['run']['id']}")["status"] == "abandoned"


def test_the_offer_runs_out_while_the_acceptance_waits(stage: Stage) -> None:
    scene = make_scene(stage, "held", offers=True)
    with second_connection() as busy:
        busy.lock_task(scene.task)
        late = Work(lambda: transact(lambda: MOVES["accept"](scene)))
        wait_until_blocked(busy)
        let_offer_run_out(scene.handoff)
        busy.commit()
        with pytest.raises(Refused) as refused:
            late.outcome()
    assert (refused.value.code, refused.value.details) == ("NOT_FOUND", {"state": "expired"})
    assert scene.shown["standing"]["holder"] == "holder"


@pytest.mark.parametrize("first", ["accept", "disable"])
def test_nobody_is_handed_a_task_while_being_disabled(stage: Stage, first: str) -> None:
    scene = Scene(stage).create().hold()
    target = stage.company.agent()
    run = {"run_id": scene.claim["run"]["id"], "epoch": scene.claim["lease"]["epoch"]}
    made = stage.holder.post("/handoffs", {"to_principal": target.principal.name, **run})
    caller = target.caller

    def accept() -> Any:
        return accepting.accept(caller, uuid_of(made["handoff_id"]))

    def disable() -> Any:
        return identity.disable_principal(target.principal)

    with transaction.atomic():
        (accept if first == "accept" else disable)()
        late = Work(lambda: transact(disable if first == "accept" else accept))
        wait_until_blocked()
    if first == "accept":
        late.outcome()
        assert (scene.shown["status"], scene.shown["standing"]) == ("todo", None)
    else:
        with pytest.raises(Refused, match="UNAUTHENTICATED"):
            late.outcome()
        assert scene.shown["standing"]["holder"] == "holder"
        assert Handoff.objects.get(pk=uuid_of(made["handoff_id"])).status == "expired"


@pytest.mark.parametrize("way", ["accept", "take over"])
@pytest.mark.parametrize("first", ["takes", "leaves"])
def test_nobody_takes_a_task_while_losing_their_membership(stage: Stage, first: str, way: str) -> None:
    scene = Scene(stage).create().hold()
    human = stage.company.human("operator")
    caller = human.caller
    run = {"run_id": scene.claim["run"]["id"], "epoch": scene.claim["lease"]["epoch"]}
    made = stage.holder.post("/handoffs", {"to_principal": human.user.email, **run})

    def takes() -> Any:
        if way == "accept":
            return accepting.accept(caller, uuid_of(made["handoff_id"]))
        me = Principal.objects.get(pk=caller.principal_id)
        return takeovers.take_over(caller, scene.task, to=me, reason="Mine.", epoch=run["epoch"])

    def leaves() -> Any:
        membership = Membership.objects.get(user=human.user, organization=human.organization)
        return identity.end_membership(membership)

    with transaction.atomic():
        (takes if first == "takes" else leaves)()
        late = Work(lambda: transact(leaves if first == "takes" else takes))
        wait_until_blocked()
    if first == "takes":
        late.outcome()
        assert (scene.shown["status"], scene.shown["standing"]) == ("todo", None)
    else:
        with pytest.raises(Refused, match="NOT_FOUND"):
            late.outcome()
        assert scene.shown["standing"]["holder"] == "holder"
