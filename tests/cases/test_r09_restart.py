"""R09: everything but the database is killed while things are pending; nothing is lost by it."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.processes import eventually
from tests.stack import Founded, Stack, retried
from titen.client import Answer, Decision, Titen

pytestmark = pytest.mark.alone

KILLED = ("web", "express", "hub", "worker", "beat", "valkey")
TTL = 6
SWEEP_SECONDS = 5


@pytest.fixture
def firm(stack: Stack) -> Iterator[Founded]:
    """Three agents, an approver and an operator."""
    firm = stack.found(3, "approver", "operator")
    yield firm
    firm.close()


class Waiting(threading.Thread):
    """An agent with the SDK that asks and waits, through whatever happens to the server."""

    def __init__(self, firm: Founded, number: int, *, approval: bool) -> None:
        super().__init__(daemon=True)
        self.titen = Titen(firm.stack.address, firm.agents[number].secret)
        self.approval = approval
        self.heard: Decision | Answer | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Claim, ask, wait, complete."""
        try:
            run = self.titen.claim(ttl_seconds=60)
            assert run is not None
            with run:
                if self.approval:
                    self.heard = run.ask("Roll back?", ["Approve", "Deny"])
                else:
                    self.heard = run.ask_question("Which build?")
                run.complete("Done as told")
        except BaseException as error:
            self.error = error


def pending(firm: Founded) -> tuple[list[Any], list[Any]]:
    """The pending approvals and the unanswered questions, as the API lists them."""
    agent = firm.agents[0]
    approvals = agent.get("/approvals", params={"status": "pending"})["approvals"]
    tasks = agent.get("/tasks", params={"limit": 200})["tasks"]
    comments = [one for task in tasks for one in agent.get(f"/tasks/{task['id']}/comments")["comments"]]
    return approvals, [one for one in comments if one["blocking"] and one["answer"] is None]


def lease(stack: Stack, run: str) -> Any:
    """How a run stands in the database, and whether its lease has run out."""
    query = (
        "SELECT r.status, l.expires_at <= clock_timestamp() FROM coordination_run r"
        " JOIN coordination_lease l ON l.id = r.lease_id WHERE r.id = %s"
    )
    return stack.query(query, run.removeprefix("run_"))[0]


def test_what_was_pending_is_pending_after_the_restart_and_each_is_resolved_once(
    stack: Stack, firm: Founded
) -> None:
    holder = firm.agents[2]
    askers = []
    for number in (0, 1):
        firm.agents[number].create(f"Needs a human {number}")
        askers.append(Waiting(firm, number, approval=number == 0))
        askers[-1].start()
        eventually(lambda: sum(len(found) for found in pending(firm)) == number + 1)  # noqa: B023
    ((approval,), (question,)) = pending(firm)
    task = holder.create("About to expire")
    run = holder.claim(ttl_seconds=TTL)["run"]["id"]
    holder.post(f"/runs/{run}/heartbeat", {"epoch": 1, "progress": 70, "status": "Almost"})

    stack.freeze()
    try:
        for name in KILLED:
            stack.kill_all(name)
        assert stack.get("/readyz")[0] != 200
        assert lease(stack, run) == ("running", False)
        # Nobody is there to write it down.
        eventually(lambda: lease(stack, run) == ("running", True))
    finally:
        stack.thaw()
    for name in KILLED:
        eventually(lambda: stack.pid(name), within=40)  # noqa: B023
    eventually(stack.answers, within=40)

    eventually(retried(lambda: holder.get(f"/runs/{run}")["ended_at"]), within=SWEEP_SECONDS + 10)
    abandoned = holder.get(f"/runs/{run}")
    assert (abandoned["status"], abandoned["progress"]) == ("abandoned", 70)
    assert holder.get(f"/tasks/{task['id']}")["status"] == "todo"
    assert pending(firm) == ([approval], [question])

    with firm.session(0) as approver, firm.session(1) as operator:
        page = approver.client.get("/").text
        counted = re.search(r'id="needs-you"[^>]*data-count="(\d+)"', page)
        assert counted
        assert int(counted[1]) == 2
        assert approval["id"] in page
        assert question["id"] in page
        assert approver.decide(approval, "Approve").status_code == 200
        assert approver.decide(approval, "Deny").status_code == 409
        answer = f"/tasks/{question['task_id']}/comments/{question['id']}/answer"
        assert operator.htmx("POST", answer, {"body": "Build 41"}).status_code == 200
        assert operator.htmx("POST", answer, {"body": "Build 42"}).status_code == 409
    for asker in askers:
        asker.join(30)
        assert not asker.is_alive()
        assert asker.error is None
        asker.titen.close()
    assert isinstance(askers[0].heard, Decision)
    assert askers[0].heard.decision == "Approve"
    assert isinstance(askers[1].heard, Answer)
    assert askers[1].heard.body == "Build 41"
    assert pending(firm) == ([], [])
    assert stack.broken() == {}
