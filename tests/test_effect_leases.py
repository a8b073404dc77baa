"""Effects under a lease on anything but a task: policy alone decides."""

from typing import Any

import pytest

from coordination.models import User

from . import acting
from .cast import Agent, Company
from .clockwork import bring_into_jeopardy, let_lease_run_out
from .effecting import (
    READ,
    WIPE,
    World,
    make_world,
    new_person,
    refusals,
    report,
)
from .leasing import acquire


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def world(company: Company, agent: Agent, other: Agent, claimed: Any, person: User) -> World:
    return make_world(company, agent, other, claimed, person)


def _under(lease: Any, action: Any, **more: Any) -> dict[str, Any]:
    body = {"lease_id": lease["lease_id"], "epoch": lease["epoch"], "action": action, "effect_key": "one"}
    return {**body, **more}


def test_under_a_lease_on_a_resource_policy_alone_decides(world: World) -> None:
    lease = acquire(world.agent)
    effect = world.agent.post("/effects", _under(lease, READ))
    assert (effect["task_id"], effect["run_id"], effect["lease_id"]) == (None, None, lease["lease_id"])
    world.agent.refused("APPROVAL_REQUIRED", "/effects", _under(lease, WIPE, effect_key="two"))
    world.agent.refused("CONFLICT", "/effects", _under(lease, READ))
    world.other.refused("NOT_HOLDER", "/effects", _under(lease, READ, effect_key="two"))
    world.agent.refused("STALE_EPOCH", "/effects", _under(lease, READ, effect_key="two", epoch=9))
    assert report(world.agent, effect)["late"] is False


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("silent", "LEASE_IN_JEOPARDY"),
        ("declared", "LEASE_IN_JEOPARDY"),
        ("run out", "LEASE_EXPIRED"),
        ("released", "CONFLICT"),
    ],
)
def test_a_lease_on_a_resource_must_be_live_and_certain(world: World, state: str, code: str) -> None:
    lease = acquire(world.agent)
    earlier = world.agent.post("/effects", _under(lease, READ, effect_key="earlier"))
    if state == "silent":
        bring_into_jeopardy({"lease": lease})
    elif state == "declared":
        world.agent.post(f"/leases/{lease['lease_id']}/jeopardy")
    elif state == "run out":
        let_lease_run_out({"lease": lease})
    else:
        assert world.agent.send("DELETE", f"/leases/{lease['lease_id']}").status_code == 200
    world.agent.refused(code, "/effects", _under(lease, READ))
    assert refusals({"lease": lease}) == [code]
    assert report(world.agent, earlier)["late"] is (state in ("run out", "released"))


def test_run_or_lease_is_named_and_known_here(world: World, elsewhere: Company) -> None:
    body = acting.effect(world.claim, READ)
    both = {**body, "lease_id": world.claim["lease"]["lease_id"]}
    neither = {name: value for name, value in body.items() if name != "run_id"}
    for wrong in (both, neither):
        error = world.agent.refused("VALIDATION_ERROR", "/effects", wrong)
        assert list(error["details"]["fields"]) == ["run_id"]
    stranger = elsewhere.agent()
    for mine in (body, {**neither, "lease_id": world.claim["lease"]["lease_id"]}):
        assert stranger.refused("NOT_FOUND", "/effects", mine) == stranger.refused(
            "NOT_FOUND",
            "/effects",
            {
                **mine,
                **{
                    name: f"{mine[name].split('_')[0]}_{'0' * 32}"
                    for name in ("run_id", "lease_id")
                    if name in mine
                },
            },
        )
    assert refusals(world.claim) == []
