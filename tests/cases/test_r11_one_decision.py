"""R11: however many click at the same moment, an approval gets one decision, for ever."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from approvals.models import PolicyRule
from coordination.models import User
from tests.acting import ABOUT, effect
from tests.cast import Agent, Company
from tests.clockwork import uuid_of
from tests.servers import Server
from tests.sessions import Session

from .tools import at_once, events_of


@pytest.fixture
def two_people(company: Company, web: Server) -> Iterator[list[Session]]:
    """Two approvers, each logged in."""
    sessions = [Session(company.human("approver"), web.url) for _ in range(2)]
    yield sessions
    for session in sessions:
        session.client.close()


@pytest.fixture(params=ABOUT)
def asked(request: Any, claimed: Any, ask: Callable[..., Any]) -> Any:
    """A pending approval of `claimed`, about an action or not."""
    return ask(claimed, **ABOUT[request.param])


def test_of_20_decisions_by_two_people_at_two_doors_one_counts(
    agent: Agent, claimed: Any, asked: Any, two_people: list[Session]
) -> None:
    doors = [Session.decide, Session.click]
    clicks = list(
        itertools.islice(itertools.cycle(itertools.product(two_people, doors, ["Approve", "Deny"])), 20)
    )
    answers = at_once(clicks, lambda click: click[1](click[0], asked, click[2]))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 19}
    won = agent.get(f"/approvals/{asked['id']}")
    session, _, option = clicks[[answer.status_code for answer in answers].index(200)]
    assert won["decision"] == option
    assert won["decided_by_user_id"] == f"user_{User.objects.get(email=session.email).pk.hex}"
    for (_, door, _), answer in zip(clicks, answers, strict=True):
        if answer.status_code == 409:
            # The loser learns who decided what.
            assert f"{session.email} decided “{option}”" in answer.text
            if door is Session.decide:
                error = answer.json()["error"]
                assert error["code"] == "CONFLICT"
                assert error["details"]["decision"] == option
                assert error["details"]["decided_by"] == session.email

    # Later clicks change nothing either, not even with the same option.
    for session, option in itertools.product(two_people, ["Approve", "Deny"]):
        assert session.decide(asked, option).status_code == 409
        assert session.click(asked, option).status_code == 409
    assert agent.get(f"/approvals/{asked['id']}") == won
    (event,) = events_of(agent, kind="approval.decided")
    assert event["data"]["option"] == ["Approve", "Deny"].index(won["decision"])
    assert event["actor_id"] != agent.get("/principal")["principal_id"]
    assert agent.get(f"/tasks/{asked['task_id']}")["status"] == "in_progress"
    # An action may be done if, and only if, that one decision said so.
    if asked["action"]:
        answer = agent.send("POST", "/effects", effect(claimed, asked["action"]))
        assert answer.status_code == (201 if won["granted"] else 409), answer.text
        assert won["granted"] == (won["decision"] == "Approve")


def test_of_20_clicks_of_which_some_would_allow_it_always_one_counts(
    agent: Agent, company: Company, claimed: Any, ask: Callable[..., Any], web: Server
) -> None:
    asked = ask(claimed, **ABOUT["an action"])
    people = [Session(company.human("admin"), web.url) for _ in range(2)]
    doors: list[Callable[[Session], Any]] = [
        lambda one: one.always_allow(asked),
        lambda one: one.decide(asked, "Deny"),
        lambda one: one.click(asked, "Deny"),
    ]
    clicks = list(itertools.islice(itertools.cycle(itertools.product(people, doors)), 20))
    answers = at_once(clicks, lambda click: click[1](click[0]))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 19}
    won = agent.get(f"/approvals/{asked['id']}")
    first = clicks[[answer.status_code for answer in answers].index(200)]
    assert won["granted"] == (first[1] is doors[0])
    assert all(first[0].email in answer.text for answer in answers if answer.status_code == 409)
    # A losing click made no rule either.
    rules = PolicyRule.objects.filter(organization=company.organization)
    assert [rule.made_from_id for rule in rules] == [uuid_of(won["id"])] * won["granted"]
    assert len(events_of(agent, kind="approval.decided")) == 1
    for one in people:
        assert one.always_allow(asked).status_code == 409
        one.client.close()
    assert rules.count() == won["granted"]


def test_the_agent_hears_one_answer(
    agent: Agent, claimed: Any, asked: Any, two_people: list[Session]
) -> None:
    beat = f"/runs/{claimed['run']['id']}/heartbeat", {"epoch": claimed["lease"]["epoch"]}
    assert agent.post(*beat)["resolved_approvals"] == []
    at_once(two_people, lambda one: one.decide(asked, "Deny"))
    told = [agent.post(*beat)["resolved_approvals"] for _ in range(3)]
    assert told[1:] == [[], []]
    assert [(one["id"], one["decision"]) for one in told[0]] == [(asked["id"], "Deny")]


def test_no_key_decides(agent: Agent, asked: Any) -> None:
    body = {"option": "Approve", "shown_digest": asked["digest"]}
    agent.refused("FORBIDDEN", f"/approvals/{asked['id']}/decide", body)
    assert agent.get(f"/approvals/{asked['id']}")["status"] == "pending"


def test_who_may_not_decide_and_who_saw_something_else_does_not(
    company: Company, web: Server, agent: Agent, asked: Any
) -> None:
    viewer, operator, approver = (
        Session(company.human(role), web.url) for role in ("viewer", "operator", "approver")
    )
    for lesser in (viewer, operator):
        refused = lesser.decide(asked, "Approve")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
        assert lesser.click(asked, "Approve").status_code == 403
    refused = approver.decide({**asked, "digest": "0" * 64}, "Approve")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "DIGEST_MISMATCH")
    assert approver.click({**asked, "digest": "0" * 64}, "Approve").status_code == 409
    assert agent.get(f"/approvals/{asked['id']}") == asked
    for session in (viewer, operator, approver):
        session.client.close()
