"""Effects under contention: one use of a grant, and never after the moment that ends the right to it."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from . import acting
from .cases.tools import at_once
from .clockwork import rows_of, sql, uuid_of
from .effecting import age, counters, list_tools, refusals, refused
from .locking import LOCK_LEASE, Work, second_connection, until, wait_until_blocked
from .scenes import Scene, Stage, make_scene, set_stage
from .servers import Server

pytestmark = pytest.mark.alone

LOCK_APPROVAL = "SELECT id FROM approvals_approval WHERE id = %s FOR NO KEY UPDATE"


@pytest.fixture(scope="module")
def stage(web: Server) -> Iterator[Stage]:
    stage = set_stage(web.url)
    list_tools(stage.company)
    yield stage
    for agent in stage.company.agents:
        agent.close()


# One grant


@pytest.mark.parametrize("keys", ["one key", "many keys"])
@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_of_20_consumers_of_one_approval_one_is_authorized(stage: Stage, keys: str, named: bool) -> None:
    scene = make_scene(stage, "approved")
    bodies = [
        acting.effect(scene.claim, scene.action, effect_key="one" if keys == "one key" else f"key-{number}")
        for number in range(20)
    ]
    if named:
        bodies = [{**body, "approval_id": scene.approval["id"]} for body in bodies]
    stage.holder.client.get("/v1/principal")
    answers = at_once(bodies, lambda body: stage.holder.client.post("/v1/effects", json=body))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 19}
    codes = Counter(answer.json()["error"]["code"] for answer in answers if answer.status_code == 409)
    assert codes == {"CONFLICT" if keys == "one key" else "ALREADY_CONSUMED": 19}
    assert len(acting.effects_of(stage.holder, task=scene.task_id, status="authorized")) == 1
    # The same refusal of the same attempt is one; each attempt with a key of its own is kept.
    assert len(refusals(scene.claim)) == (1 if keys == "one key" else 19)
    assert counters(scene.claim) == (1, 1)


def test_of_20_consumers_on_two_tasks_each_task_has_its_own(stage: Stage) -> None:
    """The same action, granted on two tasks: two uses, never three."""
    action = acting.deploy()
    scenes = [Scene(stage).create().hold().ask_for(action) for _ in range(2)]
    for scene in scenes:
        scene.decide("approve")
    bodies = [acting.effect(scene.claim, action) for scene, _ in itertools.product(scenes, range(10))]
    answers = at_once(bodies, lambda body: stage.holder.client.post("/v1/effects", json=body))
    assert Counter(answer.status_code for answer in answers) == {201: 2, 409: 18}
    assert [counters(scene.claim) for scene in scenes] == [(1, 1), (1, 1)]


# At the edge: it was in time when it came, and waits past the moment


def _end_of_lease(scene: Scene) -> tuple[str, Any]:
    lease = uuid_of(scene.claim["lease"]["lease_id"])
    sql(
        "UPDATE coordination_lease SET expires_at = clock_timestamp() + interval '0.6 s' WHERE id = %s", lease
    )
    return "SELECT expires_at <= clock_timestamp() FROM coordination_lease WHERE id = %s", lease


def _silence(scene: Scene) -> tuple[str, Any]:
    lease = uuid_of(scene.claim["lease"]["lease_id"])
    sql(
        "UPDATE coordination_lease SET renewed_at = clock_timestamp() + interval '0.6 s'"
        " - ttl_seconds * interval '1 s' * 2 / 3 WHERE id = %s",
        lease,
    )
    return (
        "SELECT renewed_at + ttl_seconds * interval '1 s' * 2 / 3 <= clock_timestamp()"
        " FROM coordination_lease WHERE id = %s",
        lease,
    )


def _end_of_grant(scene: Scene) -> tuple[str, Any]:
    approval = uuid_of(scene.approval["id"])
    age(scene.approval, 3599.4)
    return (
        "SELECT ended_at + valid_for_seconds * interval '1 s' <= clock_timestamp()"
        " FROM approvals_approval WHERE id = %s",
        approval,
    )


EDGES: dict[str, tuple[Callable[[Scene], tuple[str, Any]], str]] = {
    "the lease's end": (_end_of_lease, "LEASE_EXPIRED"),
    "jeopardy": (_silence, "LEASE_IN_JEOPARDY"),
    "the grant's end": (_end_of_grant, "APPROVAL_EXPIRED"),
}


@pytest.mark.parametrize("locked", ["task", "lease", "approval"])
@pytest.mark.parametrize("edge", EDGES)
def test_who_waits_past_the_edge_consumes_nothing(stage: Stage, edge: str, locked: str) -> None:
    begin, code = EDGES[edge]
    scene = make_scene(stage, "approved")
    with second_connection() as other:
        overdue, subject = begin(scene)
        if locked == "task":
            other.lock_task(scene.task)
        elif locked == "lease":
            other.run(LOCK_LEASE, uuid_of(scene.claim["lease"]["lease_id"]))
        else:
            other.run(LOCK_APPROVAL, uuid_of(scene.approval["id"]))
        before = rows_of(scene.task_id)
        late = Work(lambda: refused(stage.holder, code, scene.claim, scene.action))
        wait_until_blocked(other)
        assert not sql(overdue, subject)[0][0], "the machine was too slow for this test"
        until(lambda: sql(overdue, subject)[0][0], edge)
        other.commit()
        late.outcome()
    assert rows_of(scene.task_id) == before
    assert refusals(scene.claim) == [code]
