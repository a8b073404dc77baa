"""What comes of effects: told by who made them, found out by a human; and the lifting of a denial."""

from collections.abc import Callable
from typing import Any

import pytest

from approvals.models import EffectStatus
from approvals.transitions import EFFECT
from coordination.callers import SCOPES
from coordination.models import Task

from .acting import DEPLOY, PUBLISH, deploy, effect, effects_of, request, rule
from .cases.tools import events_of
from .cast import Agent, Company
from .clockwork import uuid_of
from .sessions import People

OUTCOMES = ["succeeded", "failed", "unknown", "compensated"]


@pytest.fixture(autouse=True)
def policy(company: Company) -> None:
    """Publishing is allowed; about deployments a human is asked."""
    rule(company, "allow", PUBLISH["tool"])


@pytest.fixture
def authorized(agent: Agent, claimed: Any) -> Any:
    """An effect of `claimed` whose outcome is not known yet."""
    return agent.post("/effects", effect(claimed, PUBLISH))


def outcome(effect: Any) -> str:
    """Where its maker reports."""
    return f"/effects/{effect['id']}/outcome"


@pytest.mark.parametrize("was", EffectStatus.values)
@pytest.mark.parametrize("told", OUTCOMES)
def test_every_outcome_from_every_state(was: str, told: str, agent: Agent, claimed: Any) -> None:
    if was == "refused":
        agent.refused("APPROVAL_REQUIRED", "/effects", effect(claimed, DEPLOY))
        (made,) = effects_of(agent)
    else:
        made = agent.post("/effects", effect(claimed, PUBLISH))
        if was != "authorized":
            agent.post(outcome(made), {"outcome": was})
    before = agent.get(f"/effects/{made['id']}")
    if EFFECT[told].allows(was):
        after = agent.post(outcome(made), {"outcome": told, "note": "As the provider says."})
        assert (after["status"], after["note"], after["late"]) == (told, "As the provider says.", False)
        assert after["outcome_at"] >= after["created_at"]
        assert [each["data"]["was"] for each in events_of(agent, kind=f"effect.{told}")][-1:] == [was]
    else:
        details = agent.refused("CONFLICT", outcome(made), {"outcome": told})["details"]
        assert details == {"state": was, "allowed": EFFECT.allowed_in(was)}
        after = agent.get(f"/effects/{made['id']}")
        assert after == before
    open_now = after["status"] in ("authorized", "unknown")
    assert Task.objects.get(pk=uuid_of(claimed["task"]["id"])).open_effects == open_now


@pytest.mark.parametrize("told", ["authorized", "refused", "done", "", None, 1, ["failed"]])
def test_no_other_word_is_an_outcome(told: Any, agent: Agent, authorized: Any) -> None:
    error = agent.refused("VALIDATION_ERROR", outcome(authorized), {"outcome": told})
    assert list(error["details"]["fields"]) == ["outcome"]


def test_only_its_maker_reports(agent: Agent, other: Agent, authorized: Any) -> None:
    other.refused("FORBIDDEN", outcome(authorized), {"outcome": "succeeded"})
    assert agent.get(f"/effects/{authorized['id']}") == authorized


def test_who_lost_the_lease_may_still_say_what_came_of_it(
    agent: Agent, claimed: Any, authorized: Any
) -> None:
    """Evidence, marked late: it moves the effect and nothing else."""
    agent.post(f"/runs/{claimed['run']['id']}/release", {"epoch": 1})
    assert agent.get(f"/effects/{authorized['id']}")["status"] == "unknown"
    task = agent.get(f"/tasks/{claimed['task']['id']}")
    told = agent.post(outcome(authorized), {"outcome": "succeeded"})
    assert (told["status"], told["late"]) == ("succeeded", True)
    assert agent.get(f"/tasks/{claimed['task']['id']}") == task
    again = agent.claim(task_id=task["id"])
    assert [effect["status"] for effect in again["context"]["effects"]] == ["succeeded"]
    assert agent.post(f"/runs/{again['run']['id']}/complete", {"epoch": 2})["task"]["status"] == "done"


def test_a_human_finds_out_what_came_of_it(
    agent: Agent, claimed: Any, authorized: Any, people: People
) -> None:
    path, body = f"/v1/effects/{authorized['id']}/reconcile", {"outcome": "succeeded", "note": "It is up."}
    viewer = people["viewer"].post(path, body)
    assert (viewer.status_code, viewer.json()["error"]["code"]) == (403, "FORBIDDEN")
    for bad in ({"outcome": "succeeded"}, {**body, "note": ""}, {**body, "outcome": "refused"}):
        assert people["operator"].post(path, bad).status_code == 400, bad
    assert agent.get(f"/effects/{authorized['id']}") == authorized
    found = people["operator"].post(path, body).json()["data"]
    assert (found["status"], found["note"], found["late"]) == ("succeeded", "It is up.", False)
    assert found["reconciled_by_user_id"] is not None
    assert agent.get(f"/effects/{authorized['id']}") == found
    (event,) = events_of(agent, kind="effect.succeeded")
    assert event["actor_id"] not in (None, authorized["principal_id"])
    assert agent.post(f"/runs/{claimed['run']['id']}/complete", {"epoch": 1})["task"]["status"] == "done"
    twice = people["operator"].post(path, {**body, "outcome": "failed"})
    assert (twice.status_code, twice.json()["error"]["details"]["state"]) == (409, "succeeded")


def test_no_key_reconciles_or_lifts(
    company: Company, agent: Agent, claimed: Any, authorized: Any, decide: Callable[..., Any]
) -> None:
    denied = decide(claimed, deploy(), "deny")
    for scopes in ("*", " ".join(SCOPES), "tasks:read"):
        key = company.agent(scopes=scopes)
        reconciled = {"outcome": "succeeded", "note": "It is up."}
        key.refused("FORBIDDEN", f"/effects/{authorized['id']}/reconcile", reconciled)
        key.refused("FORBIDDEN", f"/approvals/{denied['id']}/lift")
    assert agent.get(f"/effects/{authorized['id']}") == authorized
    agent.refused("APPROVAL_DENIED", "/effects", effect(claimed, denied["action"]))


def test_a_denial_is_lifted_by_whoever_could_decide_and_grants_nothing(
    agent: Agent, claimed: Any, decide: Callable[..., Any], people: People
) -> None:
    denied = decide(claimed, DEPLOY, "deny")
    path = f"/v1/approvals/{denied['id']}/lift"
    for role in ("viewer", "operator"):
        assert people[role].post(path).status_code == 403
    assert people["approver"].post(path, {"option": "approve"}).status_code == 400
    agent.refused("APPROVAL_DENIED", "/effects", effect(claimed, DEPLOY))
    lifted = people["approver"].post(path).json()["data"]
    assert (lifted["status"], lifted["granted"], lifted["final"]) == ("decided", False, False)
    assert people["admin"].post(path).status_code == 409
    (event,) = events_of(agent, kind="approval.denial_lifted")
    assert event["subject_id"] == denied["id"]
    agent.refused("APPROVAL_REQUIRED", "/effects", effect(claimed, DEPLOY))
    decide(claimed, DEPLOY)
    assert agent.post("/effects", effect(claimed, DEPLOY))["status"] == "authorized"


def test_only_a_denial_is_lifted(
    agent: Agent, claimed: Any, ask: Callable[..., Any], decide: Callable[..., Any], people: People
) -> None:
    about_nothing, pending = ask(claimed), agent.post("/approvals", request(claimed, deploy()))
    people["approver"].decide(about_nothing, "Deny")
    for approval in (about_nothing, pending):
        answer = people["admin"].post(f"/v1/approvals/{approval['id']}/lift")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONFLICT")
    people["approver"].decide(pending, "approve")
    assert people["admin"].post(f"/v1/approvals/{pending['id']}/lift").status_code == 409
