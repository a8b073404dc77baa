"""R05: numbers and ids beyond every bound are refused by name, and change nothing."""

from typing import Any

import pytest

from tests.cast import Agent, Human
from tests.leasing import acquire, batch, named, renew
from tests.servers import Server
from tests.sessions import Session

from .routes import METHODS, PREFIXES, Call, offered, routes

TTLS = [0, -1, 86_401, 2**31, 2**63, 2**63 - 1, 10**30, 1.5, 60.0, "60", "", None, True, [], {}]
PRIORITIES = [101, -101, 2**31, 2**63, -(2**63), 10**30, 1.5, "5", "", None, True, []]
EPOCHS = [0, -1, 2**53, 2**63, 10**40, 1.0, "1", None, True, []]
NUMBERS = {
    "heartbeat": ("progress", [-1, 101, 2**31, 2**63, 0.5, "50", None, True, []]),
    "approvals": ("expires_in_seconds", [0, -1, 30 * 86_400 + 1, 2**31, 2**63, 10**30, 1.5, "60", True, []]),
    "handoffs": ("expires_in_seconds", [0, -1, 30 * 86_400 + 1, 2**31, 2**63, 10**30, 1.5, "60", True, []]),
    "tasks": ("max_attempts", [0, -1, 101, 2**31, 2**63, 1.5, "3", None, True, []]),
}
IDS = ["0", "-1", str(2**63), str(10**40), "task_0", "task_" + "f" * 33, "run_" + "G" * 32, "%00", "x" * 3000]
LISTS = ["/tasks", "/runs", "/approvals", "/leases", "/handoffs", "/messages", "/checkpoints"]
LIMITS = ["0", "-1", "201", str(2**31), str(2**63), str(10**40), "1.5", "ten", "", "%20", "٣"]


def refused(agent: Agent, field: str, path: str, body: Any) -> None:
    """A 400 that names the field and nothing else."""
    error = agent.refused("VALIDATION_ERROR", path, body)
    assert list(error["details"]["fields"]) == [field], error
    assert field in error["message"]


def places(claim: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """(path, the TTL's field, the rest of the body) of every route that takes a TTL."""
    run, epoch = f"/runs/{claim['run']['id']}", {"epoch": claim["lease"]["epoch"]}
    return [
        ("/tasks/claim", "ttl_seconds", {}),
        (f"{run}/heartbeat", "ttl_seconds", epoch),
        (f"{run}/complete", "ttl_seconds", {**epoch, "claim_next": True}),
        (f"{run}/fail", "ttl_seconds", {**epoch, "error": "No luck", "claim_next": True}),
        (f"{run}/release", "ttl_seconds", {**epoch, "claim_next": True}),
        ("/tasks", "lease_ttl_seconds", {"title": "Some work"}),
    ]


def test_a_ttl_out_of_range_is_refused_on_every_route_and_the_lease_stands(
    agent: Agent, other: Agent, claimed: Any
) -> None:
    agent.create("Still to be had")
    run = f"/runs/{claimed['run']['id']}"
    before, tasks = agent.get(run), agent.get("/tasks")
    for path, field, body in places(claimed):
        for ttl in TTLS:
            refused(agent, field, path, {**body, field: ttl})
    assert agent.get(run) == before
    assert agent.get("/tasks") == tasks
    assert before["lease"]["certainty"] == "held"
    other.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": claimed["task"]["id"]})
    # The bounds themselves are good, and a shorter wish never brings the end of the lease forward.
    beat = f"{run}/heartbeat"
    longest = agent.post(beat, {"epoch": 1, "ttl_seconds": 86_400})["lease"]["expires_at"]
    assert longest > before["lease"]["expires_at"]
    assert agent.post(beat, {"epoch": 1, "ttl_seconds": 1})["lease"]["expires_at"] == longest


def test_a_ttl_out_of_range_neither_grants_nor_renews_nor_ends_a_lease(agent: Agent, other: Agent) -> None:
    held = acquire(agent, ttl_seconds=60)
    path = f"/leases/{held['lease_id']}"
    before = agent.get(path)
    for ttl in TTLS:
        wish = {"ttl_seconds": ttl}
        refused(agent, "ttl_seconds", "/leases", named("checkout", **wish))
        refused(agent, "ttl_seconds", "/leases/batch", batch("checkout", "search", **wish))
        error = agent.refused("VALIDATION_ERROR", path, wish, method="PATCH")
        assert list(error["details"]["fields"]) == ["ttl_seconds"], error
        other.refused("CONFLICT", "/leases", named("checkout"))
    assert agent.get(path) == before
    assert agent.get("/leases?resource_id=search")["leases"] == []
    # The bounds themselves are good, and a shorter wish never brings the end of the lease forward.
    assert renew(agent, held, ttl_seconds=1)["expires_at"] == held["expires_at"]
    assert renew(agent, held, ttl_seconds=86_400)["expires_at"] > held["expires_at"]


def test_epochs_out_of_range_are_refused(agent: Agent, claimed: Any) -> None:
    run = claimed["run"]["id"]
    bodies: list[tuple[str, dict[str, Any]]] = [
        (f"/runs/{run}/heartbeat", {}),
        (f"/runs/{run}/complete", {}),
        (f"/runs/{run}/fail", {"error": "No luck"}),
        (f"/runs/{run}/release", {}),
        (f"/runs/{run}/jeopardy", {}),
        ("/approvals", {"run_id": run, "question": "Go?", "options": ["Yes", "No"]}),
        ("/handoffs", {"run_id": run, "to_principal": "bert"}),
        (f"/tasks/{claimed['task']['id']}/comments", {"body": "Go?", "blocking": True, "run_id": run}),
    ]
    before = agent.get(f"/runs/{run}")
    for path, body in bodies:
        for epoch in EPOCHS:
            refused(agent, "epoch", path, {**body, "epoch": epoch})
        refused(agent, "epoch", path, body)
    assert agent.get(f"/runs/{run}") == before


def test_other_numbers_out_of_range_are_refused(agent: Agent, claimed: Any) -> None:
    run = {"run_id": claimed["run"]["id"], "epoch": 1}
    rest: dict[str, tuple[str, dict[str, Any]]] = {
        "heartbeat": (f"/runs/{claimed['run']['id']}/heartbeat", {"epoch": 1}),
        "approvals": ("/approvals", {**run, "question": "Go?", "options": ["Yes", "No"]}),
        "handoffs": ("/handoffs", {"to_principal": "bert", **run}),
        "tasks": ("/tasks", {"title": "Some work"}),
    }
    for name, (field, values) in NUMBERS.items():
        path, body = rest[name]
        for value in values:
            refused(agent, field, path, {**body, field: value})
    assert agent.get(f"/tasks/{claimed['task']['id']}")["open_blockers"] == 0


def test_priorities_out_of_range_are_refused(agent: Agent, admin: Human, web: Server) -> None:
    for priority in PRIORITIES:
        refused(agent, "priority", "/tasks", {"title": "Some work", "priority": priority})
    assert agent.get("/tasks")["tasks"] == []
    task, session = agent.create(priority=100), Session(admin, web.url)
    for priority in PRIORITIES:
        answer = session.post(
            f"/v1/tasks/{task['id']}/priority", {"priority": priority, "shown_digest": "0" * 64}
        )
        assert answer.status_code == 400, (priority, answer.text)
        assert list(answer.json()["error"]["details"]["fields"]) == ["priority"]
    assert agent.get(f"/tasks/{task['id']}")["priority"] == 100
    session.client.close()


@pytest.mark.parametrize("call", list(offered()), ids=lambda call: f"{call.method} {call.route}")
def test_an_id_out_of_range_is_unknown(call: Call, agent: Agent) -> None:
    for wild in IDS if call.names else []:
        ids = dict.fromkeys(PREFIXES, wild)
        answer = agent.send(call.method, call.path(ids), call.body(ids))
        assert answer.status_code == (403 if call.human_only else 404), (wild, answer.text)


@pytest.mark.parametrize("route", routes())
def test_what_is_not_offered_is_405_or_changes_nothing(route: str, agent: Agent) -> None:
    """Every other method, with every wild id: never a fault of the server."""
    given = {call.method for call in offered() if call.route == route}
    for wild in ("-1", str(2**63), "0" * 32):
        path = Call("GET", route).path(dict.fromkeys(PREFIXES, wild))
        for method in (*METHODS, "HEAD", "OPTIONS", "TRACE"):
            answer = agent.client.request(method, f"/v1{path}")
            if method not in given and method in METHODS:
                assert answer.status_code in (403, 405), (method, path, answer.text)
            assert answer.status_code < 500, (method, path, answer.text)


def test_pages_out_of_range_are_refused(agent: Agent) -> None:
    for path in [*LISTS, "/events"]:
        for limit in LIMITS:
            error = agent.refused("VALIDATION_ERROR", f"{path}?limit={limit}", method="GET")
            assert list(error["details"]["fields"]) == ["limit"]
    for path in LISTS:
        for cursor in ("0", "-1", str(2**63), "%20", "A" * 23, "é" * 22, "A" * 4000):
            error = agent.refused("VALIDATION_ERROR", f"{path}?cursor={cursor}", method="GET")
            assert list(error["details"]["fields"]) == ["cursor"]
    for after in ("-1", str(2**63), str(10**40), "1.5", "x", "", "%00"):
        error = agent.refused("VALIDATION_ERROR", f"/events?after={after}", method="GET")
        assert list(error["details"]["fields"]) == ["after"] or after == "%00"
    assert agent.get(f"/events?after={10**18 - 1}")["events"] == []


def test_waits_out_of_range_are_refused(agent: Agent, awaiting_approval: Any) -> None:
    for wait in ("-1", "26", "100", str(2**63), "1.5", "x", "", "%00"):
        for path, body in (("/tasks/claim", {}), ("/leases", named("x")), ("/leases/batch", batch("x"))):
            error = agent.refused("VALIDATION_ERROR", f"{path}?wait={wait}", body)
            assert list(error["details"]["fields"]) == ["wait"] or wait == "%00"
        agent.refused("VALIDATION_ERROR", f"/approvals/{awaiting_approval['id']}?wait={wait}", method="GET")
