"""R02: a write whose answer was lost is repeated under its key, and is done once."""

import os
import signal
from collections import Counter
from typing import Any

import httpx
import psycopg
import pytest
from django.conf import settings

from tests.cast import Agent, Company, found_company
from tests.processes import eventually
from tests.proxy import Proxy
from tests.servers import Server, run_web

from .tools import events_of, together, waiting_for_locks


def counts(agent: Agent) -> Counter[str]:
    """How many tasks stand in which state."""
    return Counter(task["status"] for task in agent.get("/tasks", params={"limit": 200})["tasks"])


@pytest.fixture
def three_tasks(agent: Agent) -> list[Any]:
    """A queue of three."""
    return [agent.create(f"Task {number}") for number in range(3)]


@pytest.fixture
def remote(company: Company, web: Server, agent: Agent) -> Any:
    """`agent` behind a proxy that can cut replies."""
    with Proxy(web.port) as proxy:
        far = Agent(agent.principal, agent.secret, proxy.url)
        yield far, proxy
        far.close()


def lose_answer(far: Agent, proxy: Proxy, path: str, body: Any, key: str) -> None:
    """Send a POST that the server does, and never hear of it."""
    proxy.cut_replies(path=path)
    with pytest.raises(httpx.RemoteProtocolError):
        far.client.post(f"/v1{path}", json=body, headers={"Idempotency-Key": key})
    assert proxy.cuts


def test_a_claim_whose_answer_was_lost_is_told_again(
    three_tasks: list[Any], remote: Any, agent: Agent
) -> None:
    far, proxy = remote
    lose_answer(far, proxy, "/tasks/claim", {}, "k1")
    assert counts(agent) == {"todo": 2, "in_progress": 1}
    first = far.post("/tasks/claim", {}, headers={"Idempotency-Key": "k1"})
    again = far.post("/tasks/claim", {}, headers={"Idempotency-Key": "k1"})
    assert first == again
    assert first["task"]["id"] == three_tasks[0]["id"]
    assert counts(agent) == {"todo": 2, "in_progress": 1}
    (event,) = events_of(agent, kind="task.claimed")
    assert (event["run_id"], event["lease_id"]) == (first["run"]["id"], first["lease"]["lease_id"])
    assert event["epoch"] == first["lease"]["epoch"]
    far.post(f"/runs/{first['run']['id']}/complete", {"epoch": first["lease"]["epoch"]})


def test_the_end_of_a_run_whose_answer_was_lost_is_told_again_with_the_next_claim(
    three_tasks: list[Any], remote: Any, agent: Agent
) -> None:
    far, proxy = remote
    claim = far.claim()
    path, body = f"/runs/{claim['run']['id']}/complete", {"epoch": 1, "claim_next": True}
    lose_answer(far, proxy, path, body, "end")
    ended = far.post(path, body, headers={"Idempotency-Key": "end"})
    assert ended["task"]["status"] == "done"
    assert ended["next"]["task"]["id"] == three_tasks[1]["id"]
    assert counts(agent) == {"done": 1, "in_progress": 1, "todo": 1}


def test_an_approval_whose_answer_was_lost_is_asked_once(claimed: Any, remote: Any, agent: Agent) -> None:
    far, proxy = remote
    body = {"run_id": claimed["run"]["id"], "epoch": 1, "question": "Go?", "options": ["Yes", "No"]}
    lose_answer(far, proxy, "/approvals", body, "ask")
    told = far.post("/approvals", body, headers={"Idempotency-Key": "ask"})
    assert [found["id"] for found in agent.get("/approvals")["approvals"]] == [told["id"]]
    assert agent.get(f"/tasks/{claimed['task']['id']}")["open_blockers"] == 1


def test_20_at_once_with_one_key_make_one_task(agent: Agent) -> None:
    headers = {"Idempotency-Key": "twenty", "Authorization": f"Bearer {agent.secret}"}

    def create() -> httpx.Response:
        with httpx.Client(base_url=agent.url, headers=headers, timeout=30) as client:
            return client.post("/v1/tasks", json={"title": "Only one"})

    answers = together([create] * 20)
    assert {answer.status_code for answer in answers} <= {201, 409}
    made = [answer.json()["data"] for answer in answers if answer.status_code == 201]
    assert made
    assert all(task == made[0] for task in made)
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["error"]["details"] == {"reason": "in_flight"}
            assert answer.headers["Retry-After"] == "1"
    assert counts(agent) == {"todo": 1}
    assert agent.post("/tasks", {"title": "Only one"}, headers=headers) == made[0]


def test_the_same_key_with_another_request_is_refused(agent: Agent) -> None:
    key = {"Idempotency-Key": "same"}
    agent.post("/tasks", {"title": "First"}, headers=key)
    agent.refused("IDEMPOTENCY_MISMATCH", "/tasks", {"title": "Second"}, headers=key)
    agent.refused("IDEMPOTENCY_MISMATCH", "/tasks/claim", {}, headers=key)
    assert counts(agent) == {"todo": 1}


def test_the_same_key_of_somebody_else_is_another_key(agent: Agent, other: Agent, web: Server) -> None:
    stranger = found_company(web.url).agent()
    key = {"Idempotency-Key": "shared"}
    made = [one.post("/tasks", {"title": "Mine"}, headers=key) for one in (agent, other, stranger)]
    assert len({task["id"] for task in made}) == 3
    assert counts(agent) == {"todo": 2}
    assert counts(stranger) == {"todo": 1}
    stranger.close()


def test_a_refused_or_empty_answer_is_not_kept(agent: Agent) -> None:
    key = {"Idempotency-Key": "early"}
    assert agent.post("/tasks/claim", {}, headers=key) is None
    task = agent.create()
    assert agent.post("/tasks/claim", {}, headers=key)["task"]["id"] == task["id"]


def test_a_crash_during_the_request_leaves_the_key_free(
    three_tasks: list[Any], agent: Agent, company: Company
) -> None:
    """A web process is killed while the claim waits for a lock: the retry claims, once."""
    body, headers = {"task_id": three_tasks[0]["id"]}, {"Idempotency-Key": "crash"}
    with run_web(workers=1, respawn=True) as server, psycopg.connect(settings.DATABASE_URL) as lock:
        near = Agent(agent.principal, agent.secret, server.url)
        lock.execute(
            "SELECT FROM coordination_task WHERE id = %s FOR UPDATE",
            [three_tasks[0]["id"].removeprefix("task_")],
        )
        (killed,) = server.workers()

        def send() -> str:
            try:
                near.client.post("/v1/tasks/claim", json=body, headers=headers)
            except httpx.HTTPError as error:
                return type(error).__name__
            return "answered"

        def kill() -> str:
            eventually(lambda: waiting_for_locks("caller AS MATERIALIZED") == 1)
            os.kill(killed, signal.SIGKILL)
            return "killed"

        assert together([send, kill])[0] != "answered"
        near.close()
        eventually(lambda: server.workers() not in ([], [killed]))
        # As long as the dead process's statement waits in the database, the key is in flight.
        error = agent.refused("CONFLICT", "/tasks/claim", body, headers=headers)
        assert error["details"] == {"reason": "in_flight"}
        lock.rollback()

        def retried() -> Any:
            try:
                answer = near.client.post("/v1/tasks/claim", json=body, headers=headers)
            except httpx.ConnectError:
                return None
            assert answer.status_code in (200, 409), answer.text
            return answer.json().get("data")

        claim = eventually(retried)
        assert claim == near.post("/tasks/claim", body, headers=headers)
        near.close()
    assert [event["run_id"] for event in events_of(agent, kind="task.claimed")] == [claim["run"]["id"]]
    assert counts(agent) == {"in_progress": 1, "todo": 2}
