"""When a grant is used, the whole of today's policy is judged for who uses it: role, self-approval, deny."""

from typing import Any

import pytest

from coordination import identity
from coordination.models import Membership, Role, User
from titen.api.doors import transact

from . import acting
from .cast import Agent, Company, Human
from .effecting import ask, authorize, decide, flag, grant, new_person, refused, seat
from .passing import accept, hand_task


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture(scope="module")
def another_person(database: None) -> User:
    return new_person()


@pytest.fixture
def approver(company: Company, person: User) -> Human:
    return seat(company, person)


@pytest.fixture
def chief(company: Company, another_person: User) -> Human:
    """An admin."""
    return seat(company, another_person, Role.ADMIN)


def _objection(error: Any) -> tuple[Any, Any]:
    assert "Request a new" in error["message"]
    return error["details"]["reason"], error["details"]["approval_id"]


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_a_grant_that_came_with_the_task_must_fit_the_rule_for_who_uses_it(
    company: Company, agent: Agent, other: Agent, approver: Human, chief: Human, claimed: Any, named: bool
) -> None:
    acting.rule(company, "ask", agent=other.principal, required_role=Role.ADMIN)
    granted = grant(agent, approver, claimed)
    claim = accept(other, hand_task(claimed, agent, other))["claim"]
    use = {"approval_id": granted["id"]} if named else {}
    error = refused(other, "APPROVAL_REQUIRED", claim, **use)
    assert _objection(error) == ("role", granted["id"])
    assert error["details"]["required_role"] == "admin"
    # What the refusal advises is possible, and leads on.
    mine = ask(other, claim)
    decide(chief, mine)
    assert authorize(other, claim)["approval_id"] == mine["id"]


def test_a_grant_by_who_has_the_role_passes_with_the_task(
    company: Company, agent: Agent, other: Agent, chief: Human, claimed: Any
) -> None:
    acting.rule(company, "ask", agent=other.principal, required_role=Role.ADMIN)
    granted = grant(agent, chief, claimed)
    claim = accept(other, hand_task(claimed, agent, other))["claim"]
    assert authorize(other, claim)["approval_id"] == granted["id"]


def test_a_rule_that_was_tightened_after_the_grant_holds_for_its_use(
    company: Company, agent: Agent, approver: Human, chief: Human, claimed: Any
) -> None:
    granted = grant(agent, approver, claimed)
    acting.rule(company, "ask", required_role=Role.ADMIN)
    assert _objection(refused(agent, "APPROVAL_REQUIRED", claimed)) == ("role", granted["id"])


def test_a_rule_that_denies_since_the_grant_denies(
    company: Company, agent: Agent, approver: Human, claimed: Any
) -> None:
    grant(agent, approver, claimed)
    acting.rule(company, "deny")
    refused(agent, "POLICY_DENIED", claimed)


@pytest.mark.parametrize("since", ["left", "was demoted"])
def test_who_granted_must_have_the_role_today(
    company: Company, agent: Agent, approver: Human, claimed: Any, since: str
) -> None:
    granted = grant(agent, approver, claimed)
    membership = Membership.objects.get(user=approver.user, organization=company.organization)
    if since == "left":
        transact(lambda: identity.end_membership(membership))
    else:
        identity.add_member(company.organization, approver.user, Role.OPERATOR)
    assert _objection(refused(agent, "APPROVAL_REQUIRED", claimed)) == ("role", granted["id"])


@pytest.mark.parametrize("forbidden", [True, False])
def test_an_owners_grant_to_another_agent_does_not_serve_the_own_one(
    company: Company, agent: Agent, approver: Human, chief: Human, claimed: Any, forbidden: bool
) -> None:
    flag(company, forbid_self_approval=forbidden)
    owned = company.agent("ours", owner=approver.user)
    granted = grant(agent, approver, claimed)
    claim = accept(owned, hand_task(claimed, agent, owned))["claim"]
    if not forbidden:
        assert authorize(owned, claim)["approval_id"] == granted["id"]
        return
    assert _objection(refused(owned, "APPROVAL_REQUIRED", claim)) == ("self_approval", granted["id"])
    mine = ask(owned, claim)
    decide(chief, mine)
    assert authorize(owned, claim)["approval_id"] == mine["id"]


def test_what_policy_allows_today_needs_no_grant(
    company: Company, agent: Agent, approver: Human, claimed: Any
) -> None:
    grant(agent, approver, claimed)
    acting.rule(company, "allow")
    assert authorize(agent, claimed)["approval_id"] is None
