"""R11: however many click at the same moment, an approval gets one decision, for ever."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from coordination.models import User
from tests.cast import Agent, Company
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


def test_of_20_decisions_by_two_people_at_two_doors_one_counts(
    agent: Agent, awaiting_approval: Any, two_people: list[Session]
) -> None:
    doors = [Session.decide, Session.click]
    clicks = list(
        itertools.islice(itertools.cycle(itertools.product(two_people, doors, ["Approve", "Deny"])), 20)
    )
    answers = at_once(clicks, lambda click: click[1](click[0], awaiting_approval, click[2]))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 19}
    won = agent.get(f"/approvals/{awaiting_approval['id']}")
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
        assert session.decide(awaiting_approval, option).status_code == 409
        assert session.click(awaiting_approval, option).status_code == 409
    assert agent.get(f"/approvals/{awaiting_approval['id']}") == won
    (event,) = events_of(agent, kind="approval.decided")
    assert event["data"]["option"] == awaiting_approval["options"].index(won["decision"])
    assert event["actor_id"] != agent.get("/principal")["principal_id"]
    assert agent.get(f"/tasks/{awaiting_approval['task_id']}")["status"] == "in_progress"


def test_the_agent_hears_one_answer(
    agent: Agent, claimed: Any, awaiting_approval: Any, two_people: list[Session]
) -> None:
    beat = f"/runs/{claimed['run']['id']}/heartbeat", {"epoch": claimed["lease"]["epoch"]}
    assert agent.post(*beat)["resolved_approvals"] == []
    at_once(two_people, lambda one: one.decide(awaiting_approval, "Deny"))
    told = [agent.post(*beat)["resolved_approvals"] for _ in range(3)]
    assert told[0] == told[1] == told[2]
    assert [(one["id"], one["decision"]) for one in told[0]] == [(awaiting_approval["id"], "Deny")]


def test_no_key_decides(agent: Agent, awaiting_approval: Any) -> None:
    body = {"option": "Approve", "shown_digest": awaiting_approval["digest"]}
    agent.refused("FORBIDDEN", f"/approvals/{awaiting_approval['id']}/decide", body)
    assert agent.get(f"/approvals/{awaiting_approval['id']}")["status"] == "pending"


def test_who_may_not_decide_and_who_saw_something_else_does_not(
    company: Company, web: Server, agent: Agent, awaiting_approval: Any
) -> None:
    viewer, operator, approver = (
        Session(company.human(role), web.url) for role in ("viewer", "operator", "approver")
    )
    for lesser in (viewer, operator):
        refused = lesser.decide(awaiting_approval, "Approve")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    refused = approver.decide({**awaiting_approval, "digest": "0" * 64}, "Approve")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "DIGEST_MISMATCH")
    assert agent.get(f"/approvals/{awaiting_approval['id']}") == awaiting_approval
    for session in (viewer, operator, approver):
        session.client.close()
