"""The shorter cases: misspelt filters (S6), starvation (S7), timers with one meaning each (S9)."""

from collections.abc import Callable
from typing import Any

import pytest

from approvals.jobs import expire
from tests.cast import Agent, Company, Human
from tests.processes import eventually
from tests.servers import Server
from tests.sessions import Session

from .tools import at_once, events_of, spread, swept

BAD_QUERIES = [
    ("statsu=todo", "statsu"),
    ("status=nope", "status"),
    ("status=", "status"),
    ("status=TODO", "status"),
    ("status=todo,done", "status"),
    ("status=todo&status=done", "status"),
    ("Status=todo", "Status"),
    ("status__in=todo", "status__in"),
    ("page=2", "page"),
    ("ordering=title", "ordering"),
    ("organization=1", "organization"),
    ("limit=5&limit=6", "limit"),
]
BAD_IDS = ["not-a-uuid", "task_", "0", "agent_" + "0" * 31, "00000000-0000-0000-0000-000000000000"]
LISTS = {
    "/tasks": ["created_by"],
    "/runs": ["task", "agent"],
    "/approvals": ["task", "requested_by"],
    "/leases": ["holder"],
}


@pytest.mark.parametrize("path", LISTS)
def test_a_misspelt_filter_is_refused_by_name(path: str, agent: Agent) -> None:
    agent.create()
    bad = BAD_QUERIES + [(f"{name}={value}", name) for name in LISTS[path] for value in BAD_IDS]
    for query, name in bad:
        error = agent.refused("VALIDATION_ERROR", f"{path}?{query}", method="GET")
        assert list(error["details"]["fields"]) == [name], (query, error)


@pytest.mark.parametrize("path", ["/principal", "/principals", "/keys", "/tasks/{}", "/tasks/{}/comments"])
def test_a_parameter_where_none_belongs_is_refused(path: str, agent: Agent) -> None:
    path = path.format(agent.create()["id"])
    error = agent.refused("VALIDATION_ERROR", f"{path}?status=todo", method="GET")
    assert list(error["details"]["fields"]) == ["status"]


def test_misspelt_filters_of_the_log_are_refused(agent: Agent) -> None:
    for query, name in (
        ("kinds=task.claimed", "kinds"),
        ("kind=TASK", "kind"),
        ("kind=", "kind"),
        ("task_id=nope", "task_id"),
        ("task=nope", "task"),
        ("after=1&after=2", "after"),
    ):
        error = agent.refused("VALIDATION_ERROR", f"/events?{query}", method="GET")
        assert list(error["details"]["fields"]) == [name], query


def test_16_claimers_are_served_oldest_first(company: Company, agent: Agent) -> None:
    claimers = [company.agent() for _ in range(16)]
    made = [agent.create(f"Task {number}")["id"] for number in range(120)]
    spread(claimers, lambda one: one.get("/principal"))

    def empty(one: Agent) -> list[tuple[str, str]]:
        mine = []
        while (answer := one.client.post("/v1/tasks/claim", json={})).status_code == 200:
            taken = answer.json()["data"]
            mine.append((taken["server_time"], taken["task"]["id"]))
        return mine

    served = [task for _, task in sorted(pair for mine in at_once(claimers, empty) for pair in mine)]
    assert sorted(served) == sorted(made)
    age = {task: number for number, task in enumerate(made)}
    for place, task in enumerate(served):
        # Whoever is overtaken is in another claimer's hands at that moment, so by 15 at most.
        overtaken = sum(age[later] < age[task] for later in served[place + 1 :])
        assert overtaken <= 15, (place, overtaken)


def test_priority_goes_before_age_and_may_starve_what_is_low(agent: Agent) -> None:
    """Published: the highest priority is served first, however long the others have waited."""
    low, high, middle = (agent.create(priority=priority)["id"] for priority in (-5, 90, 10))
    late = agent.create(priority=90)["id"]
    assert [agent.claim()["task"]["id"] for _ in range(4)] == [high, late, middle, low]


def test_a_returned_task_keeps_its_age(agent: Agent) -> None:
    first = agent.create("First")["id"]
    lost = agent.claim(ttl_seconds=1)
    younger = [agent.create(f"Younger {number}")["id"] for number in range(3)]
    swept(agent, lost["run"]["id"])
    released = agent.claim()
    assert released["task"]["id"] == first
    agent.post(f"/runs/{released['run']['id']}/release", {"epoch": released["lease"]["epoch"]})
    assert [agent.claim()["task"]["id"] for _ in range(4)] == [first, *younger]


def test_what_does_not_match_hides_nothing_that_does(company: Company, agent: Agent) -> None:
    """Hundreds that need another capability stand ahead, with more priority and age."""
    spread(
        range(260), lambda number: agent.create(priority=50, required_capabilities=["gpu", f"v{number % 9}"])
    )
    plain = agent.create("Plain")["id"]
    wanted = agent.create("Wanted", priority=-100, required_capabilities=["cpu"])["id"]
    able = company.agent(capabilities=["cpu", "disk"])
    assert able.claim(capabilities=["disk"])["task"]["id"] == plain
    assert able.claim()["task"]["id"] == wanted
    assert able.claim() is None
    error = able.refused("VALIDATION_ERROR", "/tasks/claim", {"capabilities": ["gpu"]})
    assert list(error["details"]["fields"]) == ["capabilities"]


def test_an_approval_longer_than_the_lease_neither_dies_with_it_nor_keeps_it(
    agent: Agent, approver: Human, ask: Callable[..., Any], web: Server
) -> None:
    agent.create()
    claim = agent.claim(ttl_seconds=1)
    asked = ask(claim, expires_in_seconds=3600)
    swept(agent, claim["run"]["id"])
    expire()
    run, task = agent.get(f"/runs/{claim['run']['id']}"), agent.get(f"/tasks/{claim['task']['id']}")
    assert (run["status"], run["lease"]["end_reason"]) == ("parked", "expired")
    assert run["ended_at"] == run["lease"]["expires_at"]
    assert (task["status"], task["standing"], task["attempt_count"]) == ("blocked", None, 0)
    assert agent.get(f"/approvals/{asked['id']}") == asked
    session = Session(approver, web.url)
    assert session.decide(asked, "Approve").status_code == 200
    session.client.close()
    again = agent.claim(task_id=claim["task"]["id"])
    assert again["lease"]["epoch"] > claim["lease"]["epoch"]
    told = agent.post(f"/runs/{again['run']['id']}/heartbeat", {"epoch": again["lease"]["epoch"]})
    assert again["context"]["approvals"][0]["decision"] == "Approve"
    assert told["lease"]["certainty"] == "held"


def test_an_approval_shorter_than_the_lease_ends_alone(
    agent: Agent, claimed: Any, ask: Callable[..., Any]
) -> None:
    asked = ask(claimed, expires_in_seconds=1)
    eventually(lambda: agent.get(f"/approvals/{asked['id']}")["status"] == "expired")
    expire()
    run = agent.get(f"/runs/{claimed['run']['id']}")
    assert (run["status"], run["lease"]["expires_at"]) == ("running", claimed["lease"]["expires_at"])
    (event,) = events_of(agent, kind="approval.expired")
    assert event["data"]["approval"] == "expired"
    assert event["actor_id"] is None
