"""An effect happens only under a live, certain lease, and where policy or a human's recorded decision says so."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from approvals import decisions
from coordination import sweeping
from coordination.models import User

from . import acting
from .cast import Agent, Company, founded
from .clockwork import (
    bring_into_jeopardy,
    let_approval_run_out,
    let_lease_run_out,
    pass_time,
    rows_of,
    sql,
    uuid_of,
)
from .effecting import (
    READ,
    WIPE,
    World,
    age,
    ask,
    authorize,
    counters,
    deny,
    effect_events,
    grant,
    make_world,
    new_person,
    refusals,
    refused,
    report,
)


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def world(company: Company, agent: Agent, other: Agent, claimed: Any, person: User) -> World:
    return make_world(company, agent, other, claimed, person)


def _used(w: World) -> Any:
    approval = grant(w.agent, w.human, w.claim)
    authorize(w.agent, w.claim, effect_key="earlier")
    return approval


def _void(w: World) -> Any:
    approval = grant(w.agent, w.human, w.claim)
    w.take_over(w.agent.principal)
    w.claim = w.agent.claim()
    return approval


def _granted_too_long_ago(w: World) -> Any:
    approval = grant(w.agent, w.human, w.claim)
    age(approval, 3600)
    return approval


def _ran_out(w: World) -> Any:
    approval = ask(w.agent, w.claim)
    let_approval_run_out(approval["id"])
    w.agent.get(f"/approvals/{approval['id']}")
    expire(approval)
    return approval


def expire(approval: Any) -> None:
    organization = sql(
        "SELECT organization_id FROM approvals_approval WHERE id = %s", uuid_of(approval["id"])
    )
    assert decisions.expire(uuid_of(approval["id"]), organization[0][0])


def _taken_back(w: World) -> Any:
    approval = ask(w.agent, w.claim)
    w.agent.post(f"/approvals/{approval['id']}/cancel")
    return approval


def _denied_long_ago(w: World) -> Any:
    approval = deny(w.agent, w.human, w.claim)
    age(approval, 86_400)
    return approval


def _of_another_task(w: World) -> Any:
    w.agent.create("Another task")
    return grant(w.agent, w.human, w.agent.claim())


def _of_another_organization(w: World) -> Any:
    with founded(w.agent.url) as elsewhere:
        stranger = elsewhere.agent()
        stranger.create("Elsewhere")
        return grant(stranger, elsewhere.human("approver"), stranger.claim())


# The approval that there is, and what it is refused with: by its name, and where none is named.
APPROVALS: dict[str, tuple[Callable[[World], Any], str, str]] = {
    "none": (lambda w: {"id": f"appr_{secrets.token_hex(16)}"}, "NOT_FOUND", "APPROVAL_REQUIRED"),
    "used": (_used, "ALREADY_CONSUMED", "ALREADY_CONSUMED"),
    "void since a takeover": (_void, "APPROVAL_VOID", "APPROVAL_VOID"),
    "granted too long ago": (_granted_too_long_ago, "APPROVAL_EXPIRED", "APPROVAL_EXPIRED"),
    "never decided": (_ran_out, "APPROVAL_EXPIRED", "APPROVAL_EXPIRED"),
    "taken back": (_taken_back, "APPROVAL_VOID", "APPROVAL_REQUIRED"),
    "denied": (lambda w: deny(w.agent, w.human, w.claim), "APPROVAL_DENIED", "APPROVAL_DENIED"),
    "denied long ago": (_denied_long_ago, "APPROVAL_REQUIRED", "APPROVAL_REQUIRED"),
    "for other arguments": (
        lambda w: grant(w.agent, w.human, w.claim, {**acting.DEPLOY, "arguments": {"build": 42}}),
        "DIGEST_MISMATCH",
        "APPROVAL_REQUIRED",
    ),
    "of another task": (_of_another_task, "NOT_FOUND", "APPROVAL_REQUIRED"),
    "of another organization": (_of_another_organization, "NOT_FOUND", "APPROVAL_REQUIRED"),
}


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
@pytest.mark.parametrize("approval", APPROVALS)
def test_without_a_grant_that_can_be_used_the_refusal_says_why(
    world: World, approval: str, named: bool
) -> None:
    make, by_name, by_itself = APPROVALS[approval]
    found = make(world)
    code = by_name if named else by_itself
    more = {"approval_id": found["id"]} if named else {}
    before, count = rows_of(world.claim["task"]["id"]), counters(world.claim)
    error = refused(world.agent, code, world.claim, effect_key="wanted", **more)
    assert rows_of(world.claim["task"]["id"]) == before
    assert counters(world.claim) == count
    assert refusals(world.claim) == [code]
    assert effect_events(world.claim)[-1] == "effect.refused"
    if code.startswith("APPROVAL_EXP"):
        assert error["details"]["approval_id"] == found["id"]
    # The refusal leaves the key free.
    authorize(world.agent, world.claim, READ, effect_key="wanted")


def _other_run(w: World) -> tuple[Agent, dict[str, Any]]:
    return w.other, acting.effect(w.claim, READ)


def _as_it_is(w: World) -> tuple[Agent, dict[str, Any]]:
    return w.agent, acting.effect(w.claim, READ)


def _after(prepare: Callable[[World], Any]) -> Callable[[World], tuple[Agent, dict[str, Any]]]:
    def make(w: World) -> tuple[Agent, dict[str, Any]]:
        body = acting.effect(w.claim, READ)
        prepare(w)
        return w.agent, body

    return make


def _claimed_by_another(w: World) -> None:
    let_lease_run_out(w.claim)
    assert w.other.claim(task_id=w.claim["task"]["id"])


# Even what policy allows needs standing.
STANDINGS: dict[str, tuple[str, Callable[[World], tuple[Agent, dict[str, Any]]]]] = {
    "another's run": ("NOT_HOLDER", _other_run),
    "an older epoch": (
        "STALE_EPOCH",
        lambda w: (w.agent, {**acting.effect(w.claim, READ), "epoch": w.claim["lease"]["epoch"] + 1}),
    ),
    "run out": ("LEASE_EXPIRED", _after(lambda w: let_lease_run_out(w.claim))),
    "run out and claimed by another": ("LEASE_EXPIRED", _after(_claimed_by_another)),
    "released": ("CONFLICT", _after(lambda w: w.run("release"))),
    "failed": ("CONFLICT", _after(lambda w: w.run("fail", error="no network"))),
    "completed": ("ALREADY_COMPLETED", _after(lambda w: w.run("complete"))),
    "taken over": ("LEASE_SUPERSEDED", _after(lambda w: w.take_over())),
    "cancelled": ("TASK_CANCELLED", _after(lambda w: w.agent.post(f"/tasks/{w.claim['task']['id']}/cancel"))),
    "silent for too long": ("LEASE_IN_JEOPARDY", _after(lambda w: bring_into_jeopardy(w.claim))),
    "in declared jeopardy": ("LEASE_IN_JEOPARDY", _after(lambda w: w.run("jeopardy"))),
    "waiting for an answer": ("CONFLICT", _after(lambda w: ask(w.agent, w.claim, WIPE))),
}


@pytest.mark.parametrize("by", ["run", "lease"])
@pytest.mark.parametrize("standing", STANDINGS)
def test_without_standing_nothing_is_authorized(world: World, standing: str, by: str) -> None:
    code, make = STANDINGS[standing]
    agent, body = make(world)
    if by == "lease":
        body["lease_id"] = world.claim["lease"]["lease_id"]
        del body["run_id"]
    before = rows_of(world.claim["task"]["id"])
    agent.refused(code, "/effects", body)
    assert rows_of(world.claim["task"]["id"]) == before
    assert refusals(world.claim) == [code]
    assert effect_events(world.claim)[-1] == "effect.refused"
    (kept,) = acting.effects_of(world.agent, status="refused")
    assert (kept["code"], kept["effect_key"]) == (code, body["effect_key"])
    assert kept["principal_id"] == agent.get("/principal")["principal_id"]


def test_what_a_policy_rule_denies_is_refused_with_the_rule(world: World) -> None:
    rule = acting.rule(world.company, "deny", WIPE["tool"])
    approved = grant(world.agent, world.human, world.claim)
    error = refused(world.agent, "POLICY_DENIED", world.claim, WIPE, approval_id=approved["id"])
    assert error["details"]["rule"]["id"] == f"rule_{rule.pk.hex}"
    assert error["details"]["final"] is True
    (kept,) = acting.effects_of(world.agent, status="refused")
    assert kept["verdict"]["rule"]["id"] == f"rule_{rule.pk.hex}"


def test_a_rule_that_came_after_the_grant_still_denies(world: World) -> None:
    approval = grant(world.agent, world.human, world.claim)
    acting.rule(world.company, "deny", acting.DEPLOY["tool"])
    refused(world.agent, "POLICY_DENIED", world.claim)
    assert world.agent.get(f"/approvals/{approval['id']}")["status"] == "decided"


def test_what_policy_allows_leaves_its_rule_and_uses_no_approval(world: World) -> None:
    approval = grant(world.agent, world.human, world.claim)
    rule = acting.rule(world.company, "allow", acting.DEPLOY["tool"])
    effect = authorize(world.agent, world.claim, approval_id=approval["id"])
    assert (effect["approval_id"], effect["verdict"]["rule"]["id"]) == (None, f"rule_{rule.pk.hex}")
    assert world.agent.get(f"/approvals/{approval['id']}")["status"] == "decided"
    assert effect_events(world.claim) == ["effect.authorized"]


def test_without_a_rule_the_flags_of_the_organization_decide(world: World) -> None:
    effect = authorize(world.agent, world.claim, READ)
    assert (effect["kind"], effect["verdict"]["rule"], effect["verdict"]["decision"]) == (
        "other",
        None,
        "allow",
    )
    assert counters(world.claim) == (0, 1)


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_a_grant_is_used_once(world: World, named: bool) -> None:
    approval = grant(world.agent, world.human, world.claim)
    more = {"approval_id": approval["id"]} if named else {}
    effect = authorize(world.agent, world.claim, **more)
    assert effect["approval_id"] == approval["id"]
    assert effect["epoch"] == world.claim["lease"]["epoch"]
    used = world.agent.get(f"/approvals/{approval['id']}")
    assert (used["status"], used["decision"], used["closed_at"]) == (
        "consumed",
        "approve",
        effect["created_at"],
    )
    assert effect_events(world.claim) == ["approval.consumed", "effect.authorized"]
    assert counters(world.claim) == (1, 1)
    refused(world.agent, "ALREADY_CONSUMED", world.claim, **more)
    # Another use needs another decision.
    report(world.agent, effect)
    again = grant(world.agent, world.human, world.claim)
    assert authorize(world.agent, world.claim)["approval_id"] == again["id"]


@pytest.mark.parametrize(("age_of_it", "good"), [(58, True), (60, False)])
def test_a_grant_is_good_for_as_long_as_was_asked(world: World, age_of_it: int, good: bool) -> None:
    approval = grant(world.agent, world.human, world.claim, valid_for_seconds=60)
    age(approval, age_of_it)
    if good:
        authorize(world.agent, world.claim)
        return
    error = refused(world.agent, "APPROVAL_EXPIRED", world.claim)
    assert "was good until" in error["message"]
    # That grant is over, so a new one can be asked for.
    ask(world.agent, world.claim)


def _release(w: World) -> Agent:
    w.run("release")
    return w.other


def _abandon(w: World) -> Agent:
    let_lease_run_out(w.claim)
    sweeping.sweep_batch(task_id=uuid_of(w.claim["task"]["id"]))
    return w.other


def _park(w: World) -> Agent:
    second = ask(w.agent, w.claim, WIPE)
    let_lease_run_out(w.claim)
    sweeping.sweep_batch(task_id=uuid_of(w.claim["task"]["id"]))
    w.agent.post(f"/approvals/{second['id']}/cancel")
    return w.agent


def _fail(w: World) -> Agent:
    w.run("fail", error="no network")
    pass_time(w.claim["task"]["id"], "backoff_until")
    return w.other


@pytest.mark.parametrize("end", [_release, _abandon, _park, _fail], ids=lambda end: end.__name__[1:])
def test_a_grant_outlives_the_run_that_asked(world: World, end: Callable[[World], Agent]) -> None:
    approval = grant(world.agent, world.human, world.claim)
    heir = end(world)
    claim = heir.claim(task_id=world.claim["task"]["id"])
    assert claim["lease"]["epoch"] > world.claim["lease"]["epoch"]
    # Nobody who lost the task can use it.
    assert world.agent.send("POST", "/effects", acting.effect(world.claim)).status_code == 409
    effect = authorize(heir, claim)
    assert (effect["approval_id"], effect["epoch"]) == (approval["id"], claim["lease"]["epoch"])


def test_a_grant_goes_over_with_a_handoff(world: World) -> None:
    approval = grant(world.agent, world.human, world.claim)
    offer = {**acting.under(world.claim), "to_principal": "bert", "message": "Yours."}
    handoff = world.agent.post("/handoffs", offer)
    claim = world.other.post(f"/handoffs/{handoff['handoff_id']}/resolve", {"status": "accepted"})["claim"]
    refused(world.agent, "LEASE_SUPERSEDED", world.claim)
    assert authorize(world.other, claim)["approval_id"] == approval["id"]


@pytest.mark.parametrize("to", ["queue", "agent"])
def test_a_takeover_voids_the_grants(world: World, to: str) -> None:
    approval = grant(world.agent, world.human, world.claim)
    world.take_over(None if to == "queue" else world.other.principal)
    claim = world.other.claim(task_id=world.claim["task"]["id"])
    refused(world.other, "APPROVAL_VOID", claim, approval_id=approval["id"])
    assert effect_events(world.claim) == ["approval.voided", "effect.refused"]
