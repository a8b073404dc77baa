"""Filters and board forms are read as strictly as bodies: a 400 that names what is wrong, never a guess."""

from typing import Any
from urllib.parse import urlencode

import pytest

from .cast import Agent, Company, Human
from .visitors import Visit, Visitor

# Lists of the API with a filter that takes an id, a name or free text.
FILTERS = [
    ("/tasks", "created_by"),
    ("/tasks", "capability"),
    ("/runs", "task"),
    ("/approvals", "task"),
    ("/approvals", "status"),
    ("/effects", "run"),
    ("/checkpoints", "subject_id"),
    ("/checkpoints", "kind"),
    ("/leases", "resource_type"),
    ("/leases", "resource_id"),
    ("/handoffs", "status"),
    ("/events", "task_id"),
    ("/events", "kind"),
    ("/events", "resource_type"),
    ("/events", "limit"),
    ("/tasks", "limit"),
    ("/tasks", "cursor"),
]
VALUES = ["", "%0d%0a", "%0a", "%ff", "%c3%28", "%ed%a0%80", "%00"]
BLANKS = ["%20", "+", "%20%20"]
# Names that may be blanks for all we know: they are looked for exactly so.
FREE = {"subject_id", "resource_type", "resource_id"} | {("/checkpoints", "kind")}


@pytest.mark.parametrize(("path", "name"), FILTERS)
@pytest.mark.parametrize("value", VALUES)
def test_a_filter_is_not_stripped_nor_guessed(path: str, name: str, value: str, agent: Agent) -> None:
    answer = agent.client.get(f"/v1{path}?{name}={value}")
    assert answer.status_code == 400, answer.text
    assert list(answer.json()["error"]["details"]["fields"]) == [name]


@pytest.mark.parametrize(("path", "name"), FILTERS)
@pytest.mark.parametrize("value", BLANKS)
def test_blanks_match_nothing_but_blanks(
    path: str, name: str, value: str, agent: Agent, kept: Any, claimed: Any
) -> None:
    agent.post("/leases", {"resource_type": "host", "resource_id": "h1"})
    answer = agent.client.get(f"/v1{path}?{name}={value}")
    if name in FREE or (path, name) in FREE:
        assert answer.status_code == 200
        assert next(each for each in answer.json()["data"].values() if isinstance(each, list)) == []
    else:
        assert answer.status_code == 400, answer.text
        assert list(answer.json()["error"]["details"]["fields"]) == [name]


def test_blanks_around_a_value_are_part_of_it(agent: Agent, claimed: Any) -> None:
    task = claimed["task"]["id"]
    for value in (f" {task}", f"{task} ", f"{task}\n"):
        for path, name in (("/runs", "task"), ("/events", "task_id")):
            agent.refused("VALIDATION_ERROR", path, method="GET", params={name: value})
    agent.refused("VALIDATION_ERROR", "/tasks", method="GET", params={"limit": " 5"})


@pytest.mark.parametrize("name", ["%ff", "%00", "status%ff"])
def test_a_name_that_is_no_text_is_refused(name: str, agent: Agent) -> None:
    answer = agent.client.get(f"/v1/tasks?{name}=1")
    assert answer.status_code == 400
    assert list(answer.json()["error"]["details"]["fields"]) == ["query"]


BOARD = [
    ("/approvals", "status=%20", "status"),
    ("/approvals", "status=pending%20", "status"),
    ("/approvals", "status=%ff", "status"),
    ("/approvals", "risk=%0d%0a", "risk"),
    ("/approvals", "agent=%20", "agent"),
    ("/approvals", "agent=%ff", "agent"),
    ("/approvals", "agent=a%0ab", "agent"),
    ("/approvals", "agent=a&agent=b", "agent"),
    ("/approvals", "status=pending&status=decided", "status"),
    ("/", "org=%ff", "org"),
    ("/", "org=a&org=b", "org"),
    ("/policy", "tool=a&tool=b", "tool"),
    ("/policy", "tool=%ff", "tool"),
    ("/policy", "tool=a%00b", "tool"),
]


@pytest.mark.parametrize(("path", "query", "name"), BOARD)
def test_a_filter_on_the_board_is_not_guessed(path: str, query: str, name: str, otto: Visitor) -> None:
    answer = otto.client.get(f"{path}?{query}")
    assert answer.status_code == 400, answer.text
    assert f"{name}: " in answer.text


def test_the_filter_form_may_leave_fields_empty(otto: Visitor) -> None:
    for query in ("status=&risk=&agent=", "agent=+ada+"):
        assert otto.client.get(f"/approvals?{query}").status_code == 200


# --- forms


def send(visitor: Visitor, path: str, fields: list[tuple[str, str]]) -> Any:
    """A form as a browser sends it, fields twice where they stand twice."""
    return visitor.client.post(
        path,
        content=urlencode(fields),
        headers={"X-CSRFToken": visitor.token, "Content-Type": "application/x-www-form-urlencoded"},
    )


def test_two_options_in_one_decision_are_refused(
    awaiting_approval: Any, agent: Agent, visit: Visit, approver: Human
) -> None:
    ada = visit(approver)
    ada.open("/")
    digest = awaiting_approval["digest"]
    path = f"/approvals/{awaiting_approval['id']}/decide"
    for fields in (
        [("option", "Deny"), ("option", "Approve"), ("shown_digest", digest)],
        [("option", "Approve"), ("option", "Approve"), ("shown_digest", digest)],
        [("option", "Approve"), ("shown_digest", "x"), ("shown_digest", digest)],
        [("option", "Approve"), ("shown_digest", digest), ("reason", "a"), ("reason", "b")],
    ):
        answer = send(ada, path, fields)
        twice = next(name for name, _ in fields if [each for each, _ in fields].count(name) > 1)
        assert answer.status_code == 400
        assert f"{twice}: stands twice: send exactly one value." in answer.text
    assert agent.get(f"/approvals/{awaiting_approval['id']}")["status"] == "pending"


def test_every_form_of_the_board_takes_one_value_per_field(
    company: Company, admin: Human, visit: Visit, claimed: Any, agent: Agent, awaiting_approval: Any
) -> None:
    boss = visit(admin)
    boss.open("/")
    task, org = claimed["task"]["id"], f"?org={company.organization.slug}"
    lease = agent.post("/leases", {"resource_type": "host", "resource_id": "h1"})
    comment = {"body": "Which?", "blocking": True, "run_id": claimed["run"]["id"], "epoch": 1}
    question = agent.post(f"/tasks/{task}/comments", comment)
    forms = {
        f"/tasks/{task}/takeover": ("to", "queue"),
        f"/tasks/{task}/block": ("sentence", "Wait."),
        f"/tasks/{task}/priority": ("priority", "1"),
        f"/tasks/{task}/cancel": ("reason", "x"),
        f"/tasks/{task}/comments": ("body", "x"),
        f"/tasks/{task}/comments/{question['id']}/answer": ("body", "x"),
        f"/leases/{lease['lease_id']}/revoke": ("reason", "x"),
        f"/leases/{lease['lease_id']}/messages": ("body", "x"),
        f"/messages/new{org}": ("body", "x"),
        f"/keys/agents{org}": ("name", "x"),
        f"/keys/new{org}": ("label", "x"),
        f"/policy/flags{org}": ("shown", "x"),
        f"/policy/rules/new{org}": ("tool", "x"),
        f"/policy/tools/new{org}": ("tool", "x"),
        f"/approvals/{awaiting_approval['id']}/always-allow": ("seconds", "3600"),
    }
    for path, (name, value) in forms.items():
        answer = send(boss, path, [(name, value), (name, value)])
        assert answer.status_code == 400, path
        assert f"{name}: stands twice: send exactly one value." in answer.text, path
    assert agent.get(f"/tasks/{task}")["status"] == "blocked"


def test_a_login_takes_one_value_per_field(visit: Visit, admin: Human) -> None:
    nobody = visit()
    nobody.open("/login")
    email = admin.user.email
    answer = send(nobody, "/login", [("username", "x@example.org"), ("username", email), ("password", "x")])
    assert answer.status_code == 400
    assert "username: stands twice" in answer.text
