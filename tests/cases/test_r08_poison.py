"""R08: a task that kills whoever claims it is offered max_attempts times, then waits for a human."""

from typing import Any

from tests.cast import Agent, Human
from tests.processes import eventually
from tests.sessions import Session

from .tools import agent_process, events_of, sweeping

ATTEMPTS = 3


def test_it_is_blocked_after_its_attempts_and_the_rest_is_served(agent: Agent, admin: Human) -> None:
    poison = agent.create("Poison", priority=50, max_attempts=ATTEMPTS)
    harmless = agent.create("Harmless", priority=-50)
    claimed: list[str] = []
    with sweeping(0.2):
        for _ in range(ATTEMPTS + 2):
            claim = claim_and_die(agent)
            if claim is None:
                break
            claimed.append(claim["task"]["id"])
            if claim["task"]["id"] == harmless["id"]:
                # Its holder died too; so that the loop ends, it is done by somebody who lives.
                agent.post(f"/runs/{claim['run']['id']}/complete", {"epoch": claim["lease"]["epoch"]})
                continue
            eventually(lambda: agent.get(f"/runs/{claim['run']['id']}")["ended_at"])  # noqa: B023
    assert claimed == [poison["id"]] * ATTEMPTS + [harmless["id"]]

    stands = agent.get(f"/tasks/{poison['id']}")
    assert (stands["status"], stands["attempt_count"]) == ("blocked", ATTEMPTS)
    (wait,) = stands["waits_for"]
    assert wait["kind"] == "attempts"
    assert wait["sentence"].startswith(f"{ATTEMPTS} of {ATTEMPTS} attempts ended without success.")
    assert "operator" in wait["sentence"]
    (why,) = events_of(agent, task_id=poison["id"], kind="task.blocked")
    assert (why["data"]["blocker"], why["data"]["attempt_count"]) == ("attempts", ATTEMPTS)
    runs = agent.get("/runs", params={"task": poison["id"]})["runs"]
    assert [run["status"] for run in runs] == ["abandoned"] * ATTEMPTS
    assert [run["number"] for run in runs] == [3, 2, 1]

    # Never again until a human acts; then with new attempts.
    assert agent.claim() is None
    assert agent.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": poison["id"]})["details"]["waits_for"]
    with_board = Session(admin, agent.url)
    seen = {"shown_digest": stands["digest"]}
    assert with_board.post(f"/v1/tasks/{poison['id']}/reopen", seen).status_code == 200
    with_board.client.close()
    again = agent.claim()
    assert (again["task"]["id"], again["task"]["attempt_count"]) == (poison["id"], 0)


def claim_and_die(agent: Agent) -> Any:
    """Have a process claim and be killed by its work; what it had claimed."""
    with agent_process(agent) as process:
        answer = process.ask(do="claim_and_die", body={"ttl_seconds": 1})
        if answer["status"] == 204:
            return None
        assert process.process.wait(10) == -9
        return answer["content"]["data"]


def test_only_abandoned_and_failed_runs_count(agent: Agent) -> None:
    """The published rule: a release and a parked run cost no attempt, a failure and an abandonment do."""
    task = agent.create(max_attempts=5)

    def claim(**wish: Any) -> Any:
        taken = eventually(lambda: agent.claim(**wish), within=15)
        assert taken["task"]["id"] == task["id"]
        return taken, {"epoch": taken["lease"]["epoch"]}

    def count() -> int:
        found: int = agent.get(f"/tasks/{task['id']}")["attempt_count"]
        return found

    taken, epoch = claim()
    agent.post(f"/runs/{taken['run']['id']}/release", {**epoch, "checkpoint": {"page": 3}})
    assert count() == 0
    with sweeping(0.2):
        taken, epoch = claim(ttl_seconds=1)
        question = {"run_id": taken["run"]["id"], "question": "Go?", "options": ["Yes", "No"], **epoch}
        approval = agent.post("/approvals", question)
        eventually(lambda: agent.get(f"/runs/{taken['run']['id']}")["status"] == "parked")
        assert count() == 0
        agent.post(f"/approvals/{approval['id']}/cancel")
        taken, epoch = claim(ttl_seconds=1)
        eventually(lambda: agent.get(f"/runs/{taken['run']['id']}")["status"] == "abandoned")
        assert count() == 1
    taken, epoch = claim()
    agent.post(f"/runs/{taken['run']['id']}/fail", {**epoch, "error": "No luck"})
    assert count() == 2
    assert agent.get(f"/tasks/{task['id']}")["backoff_until"]
