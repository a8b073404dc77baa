"""An agent that floods its humans: so many questions at once, and no more."""

from collections import Counter
from typing import Any

import pytest

from approvals.requests import PENDING_OF_A_PRINCIPAL, PENDING_OF_A_TASK
from coordination.models import User

from . import acting
from .cases.tools import at_once
from .cast import Agent, Company, Human
from .clockwork import let_approval_run_out
from .effecting import ask, decide, hold, new_person, seat
from .locking import second_connection, wait_until_blocked


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def approver(company: Company, person: User) -> Human:
    return seat(company, person)


def test_the_sixth_question_of_a_task_is_one_too_many(agent: Agent, approver: Human, claimed: Any) -> None:
    pending = [ask(agent, claimed, acting.deploy()) for _ in range(PENDING_OF_A_TASK)]
    answer = agent.send("POST", "/approvals", acting.request(claimed, acting.deploy()))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "RATE_LIMITED")
    assert int(answer.headers["Retry-After"]) > 0
    assert error["details"]["pending"] == [each["id"] for each in pending]
    # So is one about no action.
    mere = {**acting.under(claimed), "question": "And now?", "options": ["Yes", "No"]}
    agent.refused("RATE_LIMITED", "/approvals", mere)
    # One that is decided, taken back or has run out makes room for another.
    decide(approver, pending[0], "deny")
    ask(agent, claimed, acting.deploy())
    agent.post(f"/approvals/{pending[1]['id']}/cancel")
    ask(agent, claimed, acting.deploy())
    let_approval_run_out(pending[2]["id"])
    agent.post("/approvals", mere)
    agent.refused("RATE_LIMITED", "/approvals", mere)


def test_the_21st_question_of_a_principal_is_one_too_many(agent: Agent, other: Agent) -> None:
    claims = [hold(agent) for _ in range(5)]
    pending = [ask(agent, claim, acting.deploy()) for claim in claims for _ in range(4)]
    assert len(pending) == PENDING_OF_A_PRINCIPAL
    claim = hold(agent)
    error = agent.refused("RATE_LIMITED", "/approvals", acting.request(claim))
    assert error["details"]["pending"] == [each["id"] for each in pending]
    # Nobody else is held up by it.
    ask(other, hold(other))
    agent.post(f"/approvals/{pending[0]['id']}/cancel")
    ask(agent, claim)


@pytest.mark.parametrize(("tasks", "most"), [(1, PENDING_OF_A_TASK), (6, PENDING_OF_A_PRINCIPAL)])
def test_30_questions_at_once_are_no_way_past_the_limits(agent: Agent, tasks: int, most: int) -> None:
    claims = [hold(agent) for _ in range(tasks)]
    bodies = [acting.request(claims[number % tasks], acting.deploy()) for number in range(30)]
    answers = at_once(bodies, lambda body: agent.client.post("/v1/approvals", json=body))
    assert Counter(answer.status_code for answer in answers) == {201: most, 429: 30 - most}
    assert len(agent.get("/approvals", params={"status": "pending"})["approvals"]) == most


def test_questions_on_several_tasks_wait_for_each_other(agent: Agent) -> None:
    """The limit of a principal is counted under a lock of its own: 20 tasks do not hide each other's."""
    claims = [hold(agent) for _ in range(2)]
    for _ in range(4):
        ask(agent, claims[0], acting.deploy())
    with second_connection() as other:
        name = f"asks {agent.principal.pk}"
        other.run("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", name)
        bodies = [acting.request(claim, acting.deploy()) for claim in claims]

        def let_go(body: Any) -> int:
            if body is None:
                wait_until_blocked(other, count=2)
                other.commit()
                return 201
            return int(agent.client.post("/v1/approvals", json=body).status_code)

        assert at_once([*bodies, None], let_go) == [201, 201, 201]
