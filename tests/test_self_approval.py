"""Where an organization forbids it, the owner of an agent does not decide what the agent asks."""

from typing import Any

import pytest

from coordination.models import Role, User
from titen.errors import Refused

from . import acting
from .acting import DEPLOY
from .cast import Agent, Company, Human
from .clockwork import sql, uuid_of
from .effecting import (
    ask,
    decide,
    flag,
    hold,
    new_person,
    seat,
)
from .sessions import Session


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
def owned(company: Company, approver: Human) -> Agent:
    """An agent of the approver's own."""
    return company.agent("ours", owner=approver.user)


def _decides(human: Human, approval: Any) -> str | None:
    try:
        decide(human, approval)
    except Refused as no:
        return no.code
    return None


@pytest.mark.parametrize("action", [DEPLOY, None], ids=["an action", "a question"])
def test_an_owner_does_not_decide_for_the_own_agent_where_that_is_forbidden(
    company: Company, owned: Agent, approver: Human, another_person: User, action: Any
) -> None:
    flag(company, forbid_self_approval=True)
    second = seat(company, another_person)
    body = acting.request(hold(owned), action or DEPLOY, options=["approve", "deny"])
    if action is None:
        del body["action"]
    asked = owned.post("/approvals", body)
    assert _decides(approver, asked) == "FORBIDDEN"
    assert owned.get(f"/approvals/{asked['id']}")["status"] == "pending"
    assert _decides(second, asked) is None


@pytest.mark.parametrize(
    ("forbidden", "others"),
    [(False, ["approver"]), (True, []), (True, ["operator"]), (True, ["viewer"])],
    ids=["not forbidden", "nobody else", "an operator beside", "a viewer beside"],
)
def test_an_owner_decides_where_it_is_not_forbidden_or_nobody_else_could(
    company: Company, owned: Agent, approver: Human, another_person: User, forbidden: bool, others: list[str]
) -> None:
    flag(company, forbid_self_approval=forbidden)
    for role in others:
        seat(company, another_person, role)
    assert _decides(approver, ask(owned, hold(owned))) is None


def test_who_could_decide_is_counted_for_the_role_that_is_needed(
    company: Company, person: User, another_person: User
) -> None:
    """One admin and one approver: of what an admin must decide, the admin is the only one who could."""
    flag(company, forbid_self_approval=True)
    admin = seat(company, person, "admin")
    approver = seat(company, another_person)
    acting.rule(company, "ask", required_role=Role.ADMIN)
    owned = company.agent("ours", owner=admin.user)
    asked = ask(owned, hold(owned))
    assert _decides(approver, asked) == "FORBIDDEN"
    assert _decides(admin, asked) is None


def test_a_colleague_who_left_is_counted_no_more(
    company: Company, owned: Agent, approver: Human, another_person: User
) -> None:
    flag(company, forbid_self_approval=True)
    seat(company, another_person)
    asked = ask(owned, hold(owned))
    assert _decides(approver, asked) == "FORBIDDEN"
    sql(
        "UPDATE coordination_membership SET ended_at = clock_timestamp() WHERE user_id = %s AND organization_id = %s",
        another_person.pk,
        company.organization.pk,
    )
    assert _decides(approver, asked) is None


def test_an_agent_of_somebody_else_is_decided_by_anybody(
    company: Company, approver: Human, another_person: User
) -> None:
    flag(company, forbid_self_approval=True)
    second = seat(company, another_person)
    agent = company.agent("theirs", owner=second.user)
    assert _decides(approver, ask(agent, hold(agent))) is None


def test_the_door_says_it_too(
    company: Company, owned: Agent, approver: Human, another_person: User, web: Any
) -> None:
    flag(company, forbid_self_approval=True)
    seat(company, another_person)
    asked = ask(owned, hold(owned))
    with Session(approver, web.url) as session:
        answer = session.decide(asked, "approve")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert "own ours" in answer.json()["error"]["message"]
    assert uuid_of(asked["id"])
