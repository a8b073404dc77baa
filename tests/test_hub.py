"""Requests that wait: answered when something happened, never twice, never for somebody who has left."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from approvals import decisions
from coordination import comments
from titen.api.doors import transact

from .cast import Agent, Company, Human, found_company, founded
from .clockwork import let_approval_run_out, let_lease_run_out, pass_time, uuid_of
from .hub import connections_of, eventually, run_hub
from .proxy import Proxy
from .servers import Server

pytestmark = pytest.mark.alone

WAIT = "/tasks/claim?wait=20"
# What an answer that came at once may take on a busy machine; a wait of 20 s that ran out is longer.
SOON = 8.0


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub() as server:
        yield server
        assert not server.trouble()


@pytest.fixture
def company(hub: Server) -> Iterator[Company]:
    with founded(hub.url) as company:
        yield company


@pytest.fixture
def aside() -> Iterator[Callable[..., Future[Any]]]:
    """Run something in a thread of its own; its future."""
    with ThreadPoolExecutor(40) as pool:
        yield pool.submit


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    return time.monotonic() - began, work()


def soon(future: Future[Any]) -> Any:
    return future.result(SOON)


def test_a_waiting_claim_is_answered_when_work_comes(agent: Agent, other: Agent, aside: Any) -> None:
    waiting = aside(agent.post, WAIT, {})
    made = other.create("Late work")
    assert soon(waiting)["task"]["id"] == made["id"]


def test_a_wait_without_work_ends_with_204_in_its_time(agent: Agent) -> None:
    began = time.monotonic()
    answer = agent.send("POST", "/tasks/claim?wait=1", {})
    assert answer.status_code == 204
    assert not answer.content
    assert 1 <= time.monotonic() - began < SOON


def test_wait_0_is_a_plain_claim(agent: Agent) -> None:
    assert agent.post("/tasks/claim?wait=0", {}) is None
    made = agent.create()
    assert agent.post("/tasks/claim?wait=0", {})["task"]["id"] == made["id"]


@pytest.mark.parametrize(
    "query", ["wait=26", "wait=-1", "wait=x", "wait=", "wait=1&wait=2", "wait=1&hurry=1"]
)
def test_a_bad_wait_is_refused_at_once(agent: Agent, query: str) -> None:
    began = time.monotonic()
    agent.refused("VALIDATION_ERROR", f"/tasks/claim?{query}")
    assert time.monotonic() - began < SOON


def test_as_many_waiters_get_work_as_there_is_and_each_task_goes_once(company: Company, aside: Any) -> None:
    agents = [company.agent() for _ in range(16)]
    waiting = [aside(agent.post, "/tasks/claim?wait=4", {}) for agent in agents]
    made = {agents[0].create(f"Task {number}")["id"] for number in range(10)}
    answers = [future.result(30) for future in waiting]
    assert sorted(answer["task"]["id"] for answer in answers if answer) == sorted(made)


def test_a_waiter_with_the_wrong_capabilities_is_passed_over(company: Company, aside: Any) -> None:
    unfit, fit = company.agent(), company.agent(capabilities=["python"])
    passed_over, waiting = aside(unfit.post, "/tasks/claim?wait=3", {}), aside(fit.post, WAIT, {})
    made = unfit.create(required_capabilities=["python"])
    assert soon(waiting)["task"]["id"] == made["id"]
    assert passed_over.result(20) is None


def test_a_task_wakes_when_its_time_comes(agent: Agent, other: Agent, aside: Any) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=1.5)
    made = other.create(not_before=moment.isoformat())
    claim = soon(aside(agent.post, WAIT, {}))
    assert claim["task"]["id"] == made["id"]
    assert datetime.fromisoformat(claim["server_time"]) >= moment


def test_the_end_of_a_backoff_wakes(agent: Agent, other: Agent, aside: Any) -> None:
    agent.create()
    claim = other.claim()
    other.post(f"/runs/{claim['run']['id']}/fail", {"epoch": claim["lease"]["epoch"], "error": "no luck"})
    waiting = aside(agent.post, WAIT, {})
    pass_time(claim["task"]["id"], "backoff_until")
    assert soon(waiting)["task"]["id"] == claim["task"]["id"]


def test_the_work_of_a_dead_agent_wakes_with_no_sweeper_running(
    agent: Agent, other: Agent, aside: Any
) -> None:
    agent.create()
    claim = other.claim()
    waiting = aside(agent.post, WAIT, {})
    let_lease_run_out(claim)
    again = soon(waiting)
    assert again["lease"]["granted_because"] == "after_expiry"
    assert again["lease"]["epoch"] == claim["lease"]["epoch"] + 1


def test_a_claim_by_id_waits_until_its_task_is_free(agent: Agent, other: Agent, aside: Any) -> None:
    made = agent.create()
    claim = other.claim(task_id=made["id"])
    waiting = aside(agent.post, WAIT, {"task_id": made["id"]})
    other.post(f"/runs/{claim['run']['id']}/release", {"epoch": claim["lease"]["epoch"]})
    assert soon(waiting)["task"]["id"] == made["id"]


def test_a_claim_by_id_ends_when_its_task_is_over(agent: Agent, other: Agent, aside: Any) -> None:
    made = agent.create()
    claim = other.claim(task_id=made["id"])
    waiting = aside(agent.refused, "NOT_CLAIMABLE", WAIT, {"task_id": made["id"]})
    other.post(f"/runs/{claim['run']['id']}/complete", {"epoch": claim["lease"]["epoch"]})
    assert soon(waiting)["details"]["state"] == "done"


def test_a_decision_is_learnt_at_once(
    agent: Agent, awaiting_approval: Any, approver: Human, aside: Any
) -> None:
    waiting = aside(agent.get, f"/approvals/{awaiting_approval['id']}?wait=20")
    transact(
        lambda: decisions.decide(
            approver.caller,
            uuid_of(awaiting_approval["id"]),
            option="Deny",
            shown_digest=awaiting_approval["digest"],
        )
    )
    assert soon(waiting)["decision"] == "Deny"


def test_the_end_of_an_approvals_time_is_learnt_at_once(
    agent: Agent, awaiting_approval: Any, aside: Any
) -> None:
    waiting = aside(agent.get, f"/approvals/{awaiting_approval['id']}?wait=20")
    let_approval_run_out(awaiting_approval["id"])
    assert soon(waiting)["status"] == "expired"


def test_an_answer_is_learnt_at_once(agent: Agent, claimed: Any, approver: Human, aside: Any) -> None:
    path = f"/tasks/{claimed['task']['id']}/comments"
    asked = agent.post(
        path,
        {
            "body": "Which?",
            "blocking": True,
            "run_id": claimed["run"]["id"],
            "epoch": claimed["lease"]["epoch"],
        },
    )
    waiting = aside(agent.get, f"{path}/{asked['id']}?wait=20")
    transact(
        lambda: comments.answer(
            approver.caller, uuid_of(claimed["task"]["id"]), uuid_of(asked["id"]), body="The blue one"
        )
    )
    assert soon(waiting)["answer"]["body"] == "The blue one"


def test_what_is_over_already_is_not_waited_for(agent: Agent, awaiting_approval: Any) -> None:
    agent.post(f"/approvals/{awaiting_approval['id']}/cancel")
    began = time.monotonic()
    assert agent.get(f"/approvals/{awaiting_approval['id']}?wait=20")["status"] == "cancelled"
    agent.refused("NOT_FOUND", f"/approvals/appr_{'0' * 32}?wait=20", method="GET")
    assert time.monotonic() - began < SOON


def test_a_repeat_of_a_waiting_claim_gets_the_same_claim(company: Company, agent: Agent, aside: Any) -> None:
    twin = Agent(agent.principal, agent.secret, agent.url)
    company.agents.append(twin)
    key = {"headers": {"Idempotency-Key": "one-of-a-kind"}}
    both = [aside(agent.post, WAIT, {}, **key), aside(twin.post, WAIT, {}, **key)]
    agent.create()
    first, second = (soon(future) for future in both)
    assert first == second


def test_a_claim_whose_answer_was_cut_off_is_repeated(company: Company, agent: Agent, hub: Server) -> None:
    agent.create()
    agent.create()
    headers = {"Idempotency-Key": "cut", "Authorization": f"Bearer {agent.secret}"}
    with Proxy(urlsplit(hub.url).port or 0) as proxy:
        url = f"{proxy.url}/v1{WAIT}"
        proxy.cut_replies(path="/claim")
        with pytest.raises(httpx.HTTPError):
            httpx.post(url, json={}, headers=headers)
        first = httpx.post(url, json={}, headers=headers).json()["data"]
        assert httpx.post(url, json={}, headers=headers).json()["data"] == first
    assert len(agent.get("/runs")["runs"]) == 1


def test_nothing_is_claimed_for_a_client_that_left(agent: Agent, other: Agent, hub: Server) -> None:
    address = urlsplit(hub.url)
    with socket.create_connection((address.hostname, address.port)) as gone:
        gone.sendall(
            f"POST /v1{WAIT} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {agent.secret}\r\n"
            "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".encode()
        )
        # A later request of the same connection would be answered in order; another one's answer shows
        # that the first attempt is behind us.
        assert agent.post("/tasks/claim?wait=1", {}) is None
    made = other.create()
    assert other.post(WAIT, {})["run"]["number"] == 1
    assert [run["task_id"] for run in other.get("/runs")["runs"]] == [made["id"]]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_by_the_door(agent: Agent, hub: Server, chunked: bool) -> None:
    body = json.dumps({"capabilities": ["x" * 2_000_000]}).encode()
    content: Any = (body[at : at + 65536] for at in range(0, len(body), 65536)) if chunked else body
    answer = httpx.post(
        f"{hub.url}/v1{WAIT}",
        content=content,
        headers={"Authorization": f"Bearer {agent.secret}", "Content-Type": "application/json"},
    )
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "PAYLOAD_TOO_LARGE"


def test_waiters_hold_no_connection(company: Company, hub: Server, aside: Any) -> None:
    agents = [company.agent() for _ in range(30)]
    waiting = [aside(agent.post, "/tasks/claim?wait=3", {}) for agent in agents]
    while not all(future.done() for future in waiting):
        states = connections_of(hub)
        assert len(states) <= 7  # one of its own, four for views, two for other work
        time.sleep(0.1)
    assert all(future.result() is None for future in waiting)
    eventually(lambda: "idle in transaction" not in connections_of(hub))


def test_beyond_its_limit_the_hub_says_when_to_come_back(database: None, aside: Any) -> None:
    with run_hub(TITEN_HUB_LIMIT="2") as small:
        company = found_company(small.url)
        agents = [company.agent() for _ in range(3)]

        def wait(agent: Agent) -> int:
            """Wait for six seconds, once there is room: the knocking below takes a place now and then."""
            while (status := agent.send("POST", "/tasks/claim?wait=6", {}).status_code) == 503:
                pass
            return status

        waiting = [aside(wait, agent) for agent in agents[:2]]

        def turned_away() -> httpx.Response | None:
            answer = agents[2].send("POST", "/tasks/claim?wait=0", {})
            return answer if answer.status_code != 204 else None

        answer = eventually(turned_away, within=5)
        assert answer is not None
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "OVERLOADED"
        assert int(answer.headers["Retry-After"]) > 0
        assert [future.result(30) for future in waiting] == [204, 204]
        assert agents[2].post("/tasks/claim?wait=0", {}) is None
        for agent in agents:
            agent.close()


def test_a_stop_gives_waiters_their_last_answer(database: None, aside: Any) -> None:
    with run_hub() as server:
        company = found_company(server.url)
        agent = company.agent()
        waiting = aside(agent.post, WAIT, {})
        eventually(lambda: connections_of(server).count("idle") >= 2)
        server.process.terminate()
        assert soon(waiting) is None
        assert server.process.wait(4) == 0
        agent.close()
