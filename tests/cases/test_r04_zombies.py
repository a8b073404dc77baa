"""R04: who was frozen past its lease wakes up, and nothing it sends changes anything."""

import signal
from typing import Any

import pytest

from tests.cast import Agent
from tests.leasing import gone, named
from tests.processes import eventually

from .tools import Obedient, agent_process, events_of, swept


@pytest.fixture
def zombie(agent: Agent, other: Agent) -> Any:
    """(A's process, A's claim, B's claim): A heartbeats, is frozen past its lease, B takes over, A wakes."""
    agent.create("Contested", description="Only one may finish this")
    with agent_process(agent) as frozen:
        status, mine = frozen.send("/tasks/claim", {"ttl_seconds": 1})
        assert status == 200
        beat = {"epoch": mine["lease"]["epoch"], "progress": 40, "status": "Reading the logs"}
        frozen.order(do="beat", path=f"/v1/runs/{mine['run']['id']}/heartbeat", body=beat, every=0.2)
        eventually(lambda: len(frozen.ask(do="beats")) > 3)
        frozen.signal(signal.SIGSTOP)
        swept(other, mine["run"]["id"])
        theirs = other.claim()
        frozen.signal(signal.SIGCONT)
        yield frozen, mine, theirs


def everything(frozen: Obedient, run_id: str, epoch: int, task_id: str) -> list[tuple[str, int, Any]]:
    """Whatever a holder can send for a run."""
    sent = [
        (f"/runs/{run_id}/heartbeat", {"epoch": epoch, "progress": 99, "status": "I am back"}),
        (f"/runs/{run_id}/complete", {"epoch": epoch, "summary": "Mine", "result": {"by": "zombie"}}),
        (f"/runs/{run_id}/complete", {"epoch": epoch, "claim_next": True}),
        (f"/runs/{run_id}/fail", {"epoch": epoch, "error": "Mine"}),
        (f"/runs/{run_id}/release", {"epoch": epoch, "checkpoint": {"by": "zombie"}}),
        ("/checkpoints", {"run_id": run_id, "epoch": epoch, "state": {"by": "zombie"}}),
        (
            f"/tasks/{task_id}/comments",
            {"body": "May I?", "blocking": True, "run_id": run_id, "epoch": epoch},
        ),
        ("/approvals", {"run_id": run_id, "epoch": epoch, "question": "May I?", "options": ["Yes", "No"]}),
        ("/handoffs", {"run_id": run_id, "epoch": epoch, "to_principal": "bert"}),
    ]
    return [(path, *frozen.send(path, body)) for path, body in sent]


def readable_checkpoints(agent: Agent) -> Any:
    """What it may read of anybody's state."""
    return agent.get("/checkpoints")["checkpoints"]


def test_nothing_that_a_zombie_sends_is_done(zombie: Any, agent: Agent, other: Agent) -> None:
    frozen, mine, theirs = zombie
    task_id, e1, e2 = mine["task"]["id"], mine["lease"]["epoch"], theirs["lease"]["epoch"]
    assert theirs["task"]["id"] == task_id
    assert e2 > e1
    # Its own heartbeat thread woke too, was refused and stopped.
    eventually(lambda: frozen.ask(do="beats")[-1] == 409)

    before = other.get(f"/tasks/{task_id}"), other.get(f"/runs/{theirs['run']['id']}")
    for run, epoch, code in (
        (mine["run"]["id"], e1, "LEASE_EXPIRED"),
        (mine["run"]["id"], e2, "LEASE_EXPIRED"),
        (theirs["run"]["id"], e1, "NOT_HOLDER"),
        (theirs["run"]["id"], e2, "NOT_HOLDER"),
    ):
        for path, status, error in everything(frozen, run, epoch, task_id):
            assert (status, error["code"]) == (409, code), path
    assert (other.get(f"/tasks/{task_id}"), other.get(f"/runs/{theirs['run']['id']}")) == before
    assert other.get("/approvals")["approvals"] == []
    assert other.get("/handoffs")["handoffs"] == []
    assert readable_checkpoints(agent) == readable_checkpoints(other) == []
    assert other.get(f"/tasks/{task_id}/comments")["comments"] == []

    # What it did before it was frozen is kept, and the next attempt can read it.
    lost = agent.get(f"/runs/{mine['run']['id']}")
    assert (lost["status"], lost["progress"], lost["status_line"]) == ("abandoned", 40, "Reading the logs")
    (attempt,) = theirs["context"]["attempts"]
    assert (attempt["progress"], attempt["status_line"]) == (40, "Reading the logs")
    # An audit sees who tried: one line per run, code and minute.
    traces = events_of(other, kind="run.refused")
    assert {(trace["run_id"], trace["data"]["code"]) for trace in traces} == {
        (mine["run"]["id"], "LEASE_EXPIRED"),
        (theirs["run"]["id"], "NOT_HOLDER"),
    }
    assert {trace["actor_id"] for trace in traces} == {agent.get("/principal")["principal_id"]}
    assert len(traces) <= 4

    done = other.post(f"/runs/{theirs['run']['id']}/complete", {"epoch": e2, "summary": "Done by B"})
    assert done["task"]["status"] == "done"
    assert other.get(f"/tasks/{task_id}")["summary"] == "Done by B"


def test_a_zombie_with_a_lease_on_anything_is_refused(agent: Agent, other: Agent) -> None:
    with agent_process(agent) as frozen:
        _, mine = frozen.send("/leases", named("checkout", ttl_seconds=1))
        frozen.signal(signal.SIGSTOP)
        theirs = eventually(lambda: taken(other))
        frozen.signal(signal.SIGCONT)
        before = other.get(f"/leases/{theirs['lease_id']}")
        refused = frozen.send(f"/leases/{mine['lease_id']}/jeopardy")
        busy = frozen.send("/leases", named("checkout"))
    assert (refused[0], refused[1]["details"]) == (404, {"reason": "expired"})
    assert busy[0] == 409
    assert [gone(agent, mine, method) for method in ("PATCH", "DELETE")] == ["expired", "expired"]
    for method in ("PATCH", "DELETE"):
        assert gone(agent, theirs, method) is None
    assert other.get(f"/leases/{theirs['lease_id']}") == before
    assert theirs["epoch"] == mine["epoch"] + 1
    # Whoever receives effects can tell the two apart.
    asked = {"resource_type": "deploy", "resource_id": "checkout"}
    assert not other.post("/fencing/verify", {**asked, "epoch": mine["epoch"]})["valid"]
    assert other.post("/fencing/verify", {**asked, "epoch": theirs["epoch"]})["valid"]


def taken(agent: Agent) -> Any:
    """A lease on what the zombie holds, once it is to be had."""
    answer = agent.send("POST", "/leases", named("checkout"))
    return answer.json()["data"] if answer.status_code == 201 else None


def test_an_expired_holder_is_refused_though_nobody_swept_or_took_over(agent: Agent, other: Agent) -> None:
    agent.create()
    with agent_process(agent) as frozen:
        _, mine = frozen.send("/tasks/claim", {"ttl_seconds": 1})
        frozen.signal(signal.SIGSTOP)
        run = mine["run"]["id"]
        eventually(lambda: other.get(f"/runs/{run}")["lease"]["certainty"] == "expired")
        frozen.signal(signal.SIGCONT)
        for path, status, error in everything(frozen, run, mine["lease"]["epoch"], mine["task"]["id"]):
            assert (status, error["code"]) == (409, "LEASE_EXPIRED"), path
    assert other.get(f"/runs/{run}")["ended_at"] is None
    # It comes back through a claim that finds nothing else.
    assert other.claim()["task"]["id"] == mine["task"]["id"]
    assert other.get(f"/runs/{run}")["status"] == "abandoned"
