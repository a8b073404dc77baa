"""A human's no: final for who asked in the whole organization, and for the task; until a day has passed or it is lifted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from approvals import decisions
from coordination import takeovers
from coordination.models import Role, User
from titen.api.doors import transact
from titen.errors import Refused

from . import acting
from .cast import Agent, Company, Human
from .clockwork import kinds_since, last_seq, let_approval_run_out, pass_time, sql, uuid_of
from .effecting import age, ask, authorize, decide, deny, grant, lift, new_person, refused, seat
from .hub import run_hub
from .locking import Work
from .passing import accept, beat, end, hand_task
from .sessions import Session


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def approver(company: Company, person: User) -> Human:
    return seat(company, person)


@pytest.fixture
def approval(agent: Agent, approver: Human, claimed: Any) -> Any:
    """What `agent` asked for under `claimed` and was denied."""
    return deny(agent, approver, claimed, reason="The freeze lasts until Monday.")


def _says(found: Any) -> tuple[Any, ...]:
    return found["status"], found["decision"], found["granted"], found["final"], found["reason"]


DENIED = ("decided", "deny", False, True, "The freeze lasts until Monday.")


def test_the_agent_reads_the_reason_wherever_it_looks(
    agent: Agent, other: Agent, claimed: Any, approval: Any
) -> None:
    path = f"/approvals/{approval['id']}"
    assert _says(agent.get(path)) == DENIED
    assert _says(agent.get(path, params={"wait": 5})) == DENIED
    assert [_says(each) for each in agent.get("/approvals")["approvals"]] == [DENIED]
    assert [_says(each) for each in beat(agent, claimed)["resolved_approvals"]] == [DENIED]
    end(agent, claimed, "release")
    context = other.claim()["context"]
    assert [_says(each) for each in context["approvals"]] == [DENIED]


def test_who_waits_is_told(agent: Agent, approver: Human, claimed: Any) -> None:
    pending = ask(agent, claimed)
    with run_hub() as hub:
        waiter = Agent(agent.principal, agent.secret, hub.url)
        waits = Work(lambda: waiter.get(f"/approvals/{pending['id']}", params={"wait": 20}))
        decide(approver, pending, "deny", DENIED[-1])
        assert _says(waits.outcome()) == DENIED
        waiter.close()


def test_the_refusals_say_it_too(agent: Agent, claimed: Any, approval: Any) -> None:
    for error in (
        agent.refused("APPROVAL_DENIED", "/approvals", acting.request(claimed)),
        refused(agent, "APPROVAL_DENIED", claimed),
        refused(agent, "APPROVAL_DENIED", claimed, approval_id=approval["id"]),
    ):
        details = error["details"]
        assert (details["approval_id"], details["decision"]) == (approval["id"], "deny")
        assert (details["reason"], details["final"]) == (DENIED[-1], True)
        assert details["until"][:10] > agent.get(f"/approvals/{approval['id']}")["ended_at"][:10]
        assert "final" in error["message"]


def test_a_no_to_a_question_about_no_action_is_only_an_answer(
    agent: Agent, approver: Human, claimed: Any, ask: Callable[..., Any]
) -> None:
    asked = ask(claimed)
    decide(approver, asked, "Deny", "Not now.")
    shown = agent.get(f"/approvals/{asked['id']}")
    assert (shown["decision"], shown["granted"], shown["final"]) == ("Deny", None, False)
    assert ask(claimed)["status"] == "pending"


def test_whatever_does_not_grant_denies(agent: Agent, approver: Human, claimed: Any) -> None:
    options = ["approve", {"value": "after lunch", "label": "Later", "grants": False}, "deny"]
    pending = ask(agent, claimed, options=options)
    decide(approver, pending, "after lunch")
    assert agent.get(f"/approvals/{pending['id']}")["final"] is True
    refused(agent, "APPROVAL_DENIED", claimed)


# Whom it holds for


@dataclass
class Again:
    """Who tries again, under which claim."""

    agent: Agent
    claim: Any


def _itself(agent: Agent, other: Agent, claimed: Any) -> Again:
    return Again(agent, claimed)


def _on_another_task(agent: Agent, other: Agent, claimed: Any) -> Again:
    agent.create("Another task")
    return Again(agent, agent.claim())


def _with_another_key(agent: Agent, other: Agent, claimed: Any) -> Again:
    made = agent.post("/keys", {"scopes": ["*"], "label": "another"})
    agent.close()
    agent.secret = made["api_key"]
    return _on_another_task(agent, other, claimed)


def _a_colleague_after_a_release(agent: Agent, other: Agent, claimed: Any) -> Again:
    end(agent, claimed, "release")
    return Again(other, other.claim())


def _a_colleague_after_a_handoff(agent: Agent, other: Agent, claimed: Any) -> Again:
    return Again(other, accept(other, hand_task(claimed, agent, other))["claim"])


def _a_colleague_on_another_task(agent: Agent, other: Agent, claimed: Any) -> Again:
    other.create("Another task")
    return Again(other, other.claim())


HELD: dict[str, Callable[[Agent, Agent, Any], Again]] = {
    "itself": _itself,
    "itself on another task": _on_another_task,
    "itself with another key": _with_another_key,
    "a colleague after a release": _a_colleague_after_a_release,
    "a colleague after a handoff": _a_colleague_after_a_handoff,
}


@pytest.mark.parametrize("who", HELD)
def test_it_holds_for_who_asked_everywhere_and_on_the_task_for_everybody(
    agent: Agent, other: Agent, claimed: Any, approval: Any, who: str
) -> None:
    again = HELD[who](agent, other, claimed)
    error = again.agent.refused("APPROVAL_DENIED", "/approvals", acting.request(again.claim))
    assert error["details"]["approval_id"] == approval["id"]
    refused(again.agent, "APPROVAL_DENIED", again.claim)


def test_a_colleague_may_ask_for_the_same_on_a_task_of_its_own(
    agent: Agent, other: Agent, approver: Human, claimed: Any, approval: Any
) -> None:
    again = _a_colleague_on_another_task(agent, other, claimed)
    assert refused(other, "APPROVAL_REQUIRED", again.claim)
    mine = grant(other, approver, again.claim)
    assert authorize(other, again.claim)["approval_id"] == mine["id"]


def test_it_holds_against_a_rule_that_allows(
    company: Company, agent: Agent, claimed: Any, approval: Any
) -> None:
    acting.rule(company, "allow")
    refused(agent, "APPROVAL_DENIED", claimed)
    lease = agent.post("/leases", {"resource_type": "deploy", "resource_id": "checkout"})
    body = {**acting.effect(claimed), "lease_id": lease["lease_id"], "epoch": lease["epoch"]}
    del body["run_id"]
    agent.refused("APPROVAL_DENIED", "/effects", body)


def test_a_grant_on_another_task_does_not_help(agent: Agent, approver: Human, claimed: Any) -> None:
    agent.create("Another task")
    second = agent.claim()
    granted, asked = grant(agent, approver, second), ask(agent, claimed)
    decide(approver, asked, "deny", "No.")
    refused(agent, "APPROVAL_DENIED", second, approval_id=granted["id"])


def test_it_outlives_a_takeover_and_the_task(
    agent: Agent, approver: Human, claimed: Any, approval: Any
) -> None:
    task = uuid_of(claimed["task"]["id"])
    transact(
        lambda: takeovers.take_over(
            approver.caller, task, to=None, reason="Stuck.", epoch=claimed["lease"]["epoch"]
        )
    )
    pass_time(claimed["task"]["id"], "avoided_until")
    claim = agent.claim()
    refused(agent, "APPROVAL_DENIED", claim)
    agent.post(f"/tasks/{claimed['task']['id']}/cancel")
    again = _on_another_task(agent, agent, claimed)
    refused(agent, "APPROVAL_DENIED", again.claim)


# How long, and until whose word


@pytest.mark.parametrize(("seconds", "holds"), [(86_390, True), (86_400, False)])
def test_it_holds_for_a_day(agent: Agent, claimed: Any, approval: Any, seconds: int, holds: bool) -> None:
    age(approval, seconds)
    if holds:
        agent.refused("APPROVAL_DENIED", "/approvals", acting.request(claimed))
        refused(agent, "APPROVAL_DENIED", claimed)
    else:
        refused(agent, "APPROVAL_REQUIRED", claimed)
        assert ask(agent, claimed)["status"] == "pending"


def test_a_lifted_denial_lets_it_be_asked_again_and_grants_nothing(
    agent: Agent, approver: Human, claimed: Any, approval: Any
) -> None:
    seq = last_seq()
    lift(approver, approval)
    assert kinds_since(claimed["task"]["id"], seq) == ["approval.denial_lifted"]
    shown = agent.get(f"/approvals/{approval['id']}")
    assert (shown["decision"], shown["granted"], shown["final"]) == ("deny", False, False)
    refused(agent, "APPROVAL_REQUIRED", claimed)
    refused(agent, "APPROVAL_REQUIRED", claimed, approval_id=approval["id"])
    second = ask(agent, claimed)
    decide(approver, second)
    assert authorize(agent, claimed)["approval_id"] == second["id"]


def test_of_two_denials_each_is_lifted_by_itself(agent: Agent, approver: Human, claimed: Any) -> None:
    first = ask(agent, claimed)
    agent.create("Another task")
    elsewhere = agent.claim()
    second = ask(agent, elsewhere)
    for asked in (first, second):
        decide(approver, asked, "deny", "No.")
    lift(approver, second)
    error = refused(agent, "APPROVAL_DENIED", elsewhere)
    assert error["details"]["approval_id"] == first["id"]
    lift(approver, first)
    refused(agent, "APPROVAL_REQUIRED", elsewhere)


def test_a_denial_is_lifted_once_and_a_grant_never(
    agent: Agent, approver: Human, claimed: Any, approval: Any
) -> None:
    lift(approver, approval)
    granted = grant(agent, approver, claimed, acting.PUBLISH)
    pending = ask(agent, claimed, acting.deploy())
    for each in (approval, granted, pending):
        with pytest.raises(Refused) as no:
            lift(approver, each)
        assert no.value.code == "CONFLICT"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_only_who_could_decide_lifts(company: Company, approval: Any, role: Role) -> None:
    with pytest.raises(Refused) as no:
        lift(company.human(role), approval)
    assert no.value.code == "FORBIDDEN"


def test_a_denial_is_lifted_over_http_by_a_person_and_by_no_key(
    agent: Agent, approver: Human, claimed: Any, approval: Any, web: Any
) -> None:
    path = f"/approvals/{approval['id']}/lift"
    agent.refused("FORBIDDEN", path)
    refused(agent, "APPROVAL_DENIED", claimed)
    with Session(approver, web.url) as session:
        answer = session.post(f"/v1{path}")
        assert (answer.status_code, answer.json()["data"]["final"]) == (200, False)
    refused(agent, "APPROVAL_REQUIRED", claimed)


# What is no denial


def _expire(agent: Agent, pending: Any) -> None:
    let_approval_run_out(pending["id"])
    assert decisions.expire(uuid_of(pending["id"]), agent.principal.organization_id)


def test_what_nobody_decided_is_not_denied(agent: Agent, claimed: Any) -> None:
    pending = ask(agent, claimed)
    _expire(agent, pending)
    shown = agent.get(f"/approvals/{pending['id']}")
    assert _says(shown) == ("expired", None, None, False, "")
    refused(agent, "APPROVAL_EXPIRED", claimed)
    assert ask(agent, claimed)["status"] == "pending"


def test_a_fallback_is_recorded_and_is_no_decision(agent: Agent, claimed: Any) -> None:
    options = ["approve", "deny", {"value": "skip it", "grants": False}]
    pending = ask(agent, claimed, options=options, on_expiry="skip it")
    assert (pending["on_expiry"], pending["fallback"]) == ("skip it", None)
    seq = last_seq()
    # As soon as its time is over, whether or not that is written down.
    let_approval_run_out(pending["id"])
    assert agent.get(f"/approvals/{pending['id']}")["fallback"] == "skip it"
    _expire(agent, pending)
    shown = agent.get(f"/approvals/{pending['id']}")
    assert _says(shown) == ("expired", None, None, False, "")
    assert (shown["fallback"], shown["decided_by_user_id"]) == ("skip it", None)
    assert kinds_since(claimed["task"]["id"], seq) == ["approval.expired"]
    told = beat(agent, claimed)["resolved_approvals"]
    assert [(each["status"], each["fallback"]) for each in told] == [("expired", "skip it")]
    # It is no denial either: the agent may ask again.
    assert ask(agent, claimed, options=options)["status"] == "pending"


def test_a_fallback_of_what_was_decided_never_comes_up(agent: Agent, approver: Human, claimed: Any) -> None:
    pending = ask(agent, claimed, on_expiry="deny")
    decide(approver, pending)
    shown = agent.get(f"/approvals/{pending['id']}")
    assert (shown["decision"], shown["granted"], shown["fallback"]) == ("approve", True, None)


@pytest.mark.parametrize("on_expiry", ["approve", "Approve", "maybe", "", " deny"])
def test_a_fallback_names_an_option_that_does_not_grant(agent: Agent, claimed: Any, on_expiry: str) -> None:
    error = agent.refused("VALIDATION_ERROR", "/approvals", acting.request(claimed, on_expiry=on_expiry))
    assert list(error["details"]["fields"]) == ["on_expiry"]
    assert sql(
        "SELECT count(*) FROM approvals_approval WHERE task_id = %s", uuid_of(claimed["task"]["id"])
    ) == [(0,)]


def test_what_was_taken_back_is_not_denied(agent: Agent, claimed: Any) -> None:
    agent.post(f"/approvals/{ask(agent, claimed)['id']}/cancel")
    assert ask(agent, claimed)["status"] == "pending"
