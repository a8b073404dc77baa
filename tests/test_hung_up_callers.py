"""Work does not go to a caller who hung up while its attempt was under way: what was granted is kept for seconds."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
import pytest

from coordination import sweeping
from coordination.leases import KEPT_FOR_A_REPEAT
from titen.live.doors import environ_of
from titen.live.requests import Request

from .cast import Agent
from .clockwork import let_lease_run_out, uuid_of
from .hub import eventually, run_hub
from .servers import Server
from .stack import Stack

TTL = 300
LOCK_TASK = "SELECT FROM coordination_task WHERE id = %s FOR NO KEY UPDATE"
LOCK_RESOURCE = "SELECT FROM coordination_resource WHERE id = %s FOR NO KEY UPDATE"
LOCK_HANDOFF = "SELECT FROM coordination_handoff WHERE id = %s FOR NO KEY UPDATE"
LIVE = """
SELECT l.answer, extract(epoch FROM l.expires_at - clock_timestamp())::float, l.id
FROM coordination_lease l JOIN coordination_principal p ON p.id = l.principal_id
WHERE l.ended_at IS NULL AND l.principal_id = %s"""


@pytest.fixture(scope="module")
def hub(static_files: None) -> Iterator[Server]:
    """The hub on a port of its own."""
    with run_hub() as server:
        yield server
        assert not server.trouble()


@dataclass
class Place:
    """An agent at an address, and the database behind it. `front`: something stands between the two."""

    address: str
    agent: Agent
    database: str
    front: bool = False

    def query(self, statement: str, *params: Any) -> list[Any]:
        with psycopg.connect(self.database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def me(self) -> Any:
        return uuid_of(self.agent.get("/principal")["principal_id"])

    def live(self) -> tuple[str, float]:
        """What is known of the answer that granted the agent's one live lease, and how long the lease lasts."""
        ((answer, left, _),) = self.query(LIVE, self.me())
        return answer, left

    @contextmanager
    def locked(self, statement: str, key: Any) -> Iterator[int]:
        """A row that another session holds inside the block; the id of the session."""
        with psycopg.connect(self.database) as holder:
            holder.execute(statement.encode(), [key])
            yield holder.info.backend_pid
            holder.commit()

    def hang_up(self, holder: int, path: str, body: Any, key: str | None = None) -> None:
        """Send a request, and hang up while it waits for what the session `holder` has locked."""
        parts, content = urlsplit(self.address), json.dumps(body).encode()
        names = {
            "Host": parts.netloc,
            "Authorization": f"Bearer {self.agent.secret}",
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **({"Idempotency-Key": key} if key else {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in names.items())
        with socket.create_connection((parts.hostname or "", parts.port or 80)) as client:
            mine = client.getsockname()[1]
            client.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content)
            waits = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            eventually(lambda: self.query(waits, holder) != [(0,)])
        eventually(
            lambda: (
                not [
                    each
                    for each in psutil.net_connections("tcp")
                    if each.raddr and each.raddr.port == mine and each.status != psutil.CONN_TIME_WAIT
                ]
            )
        )
        if self.front:
            # Nothing shows from here when the process behind it has heard.
            time.sleep(0.5)


@pytest.fixture(params=["web", "hub", "web through the front", "hub through the front"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each way to a claim; the hub's with `?wait=`."""
    kind, _, front = request.param.partition(" through the ")
    if front:
        stack: Stack = request.getfixturevalue("stack")
        founded = stack.found(1)
        yield Place(stack.address, founded.agents[0], stack.database, front=True)
        founded.close()
    else:
        server: Server = request.getfixturevalue(kind)
        yield Place(server.url, request.getfixturevalue("agent"), os.environ["DATABASE_URL"])


@pytest.fixture
def here(web: Server, agent: Agent) -> Place:
    """The web processes, asked directly."""
    return Place(web.url, agent, os.environ["DATABASE_URL"])


@pytest.fixture
def claim_path(request: pytest.FixtureRequest) -> str:
    """Where claims go that the place is to serve."""
    place = request.node.callspec.params.get("place", "")
    return "/v1/tasks/claim" + ("?wait=20" if place.startswith("hub") else "")


def _lose_a_claim(place: Place, path: str = "/v1/tasks/claim", key: str | None = None) -> dict[str, Any]:
    task = place.agent.create("Wanted", lease_ttl_seconds=TTL)
    body = {"task_id": task["id"]}
    with place.locked(LOCK_TASK, uuid_of(task["id"])) as holder:
        place.hang_up(holder, path, body, key)
    return task


def test_a_claim_whose_caller_hung_up_is_kept_for_seconds(place: Place, claim_path: str) -> None:
    """Or is not made at all: the hub asks first whether anybody is there."""
    task = _lose_a_claim(place, claim_path)

    def over() -> bool:
        found = place.query(LIVE, place.me())
        return not found or found[0][0] == "lost"

    eventually(over)
    for answer, left, _ in place.query(LIVE, place.me()):
        assert (answer, left <= KEPT_FOR_A_REPEAT) == ("lost", True)
    assert place.agent.get(f"/tasks/{task['id']}")["attempt_count"] == 0


def test_a_repeat_with_the_same_key_gets_it(place: Place, claim_path: str) -> None:
    """The same run under the same epoch, for as long as it says."""
    task = _lose_a_claim(place, claim_path, "hung-up")

    def repeat() -> Any:
        headers = {"Authorization": f"Bearer {place.agent.secret}", "Idempotency-Key": "hung-up"}
        answer = httpx.post(
            place.address + claim_path, json={"task_id": task["id"]}, headers=headers, timeout=30
        )
        # Refused while the first attempt is still under way.
        return answer.json()["data"] if answer.status_code == 200 else None

    again = eventually(repeat)
    assert (again["task"]["id"], again["run"]["number"], again["lease"]["epoch"]) == (task["id"], 1, 1)
    answer, left = place.live()
    # The hub may have noticed in time, and claimed nothing for the first request.
    assert answer in ("repeated", "")
    assert left > TTL - 60


def test_what_nobody_repeats_goes_back_and_counts_as_no_attempt(
    here: Place, agent: Agent, other: Agent
) -> None:
    task = _lose_a_claim(here)
    eventually(lambda: here.live()[0] == "lost")
    ((_, _, lease),) = here.query(LIVE, here.me())
    let_lease_run_out({"lease": {"lease_id": f"lease_{lease.hex}"}})
    sweeping.sweep()
    after = agent.get(f"/tasks/{task['id']}")
    assert (after["status"], after["attempt_count"]) == ("todo", 0)
    assert other.claim(task_id=task["id"])["lease"]["epoch"] == 2


def test_who_heartbeats_has_got_the_answer(here: Place, agent: Agent) -> None:
    """It keeps the lease, and its next lapse counts as any other."""
    task = _lose_a_claim(here)
    eventually(lambda: here.live()[0] == "lost")
    (run,) = agent.get("/runs", params={"task": task["id"]})["runs"]
    agent.post(f"/runs/{run['id']}/heartbeat", {"epoch": 1})
    assert here.live()[0] == ""
    assert here.live()[1] > TTL - 60


def test_a_lease_whose_caller_hung_up_is_kept_for_seconds(here: Place, agent: Agent) -> None:
    name = {"resource_type": "deploy", "resource_id": "hung-up"}
    first = agent.post("/leases", name)
    agent.send("DELETE", f"/leases/{first['lease_id']}")
    ((resource,),) = here.query(
        "SELECT resource_id FROM coordination_lease WHERE id = %s", uuid_of(first["lease_id"])
    )
    with here.locked(LOCK_RESOURCE, resource) as holder:
        here.hang_up(holder, "/v1/leases", {**name, "ttl_seconds": TTL})
    eventually(lambda: here.query(LIVE, here.me()) and here.live()[0] == "lost")
    assert here.live()[1] <= KEPT_FOR_A_REPEAT


def test_an_accepted_handoff_whose_caller_hung_up_is_kept_for_seconds(
    here: Place, agent: Agent, other: Agent
) -> None:
    other.create("Handed over", lease_ttl_seconds=TTL)
    claim = other.claim()
    offer = {
        "to_principal": agent.principal.name,
        "run_id": claim["run"]["id"],
        "epoch": 1,
        "task_id": claim["task"]["id"],
        "message": "Yours.",
    }
    handoff = other.post("/handoffs", offer)
    with here.locked(LOCK_HANDOFF, uuid_of(handoff["handoff_id"])) as holder:
        here.hang_up(holder, f"/v1/handoffs/{handoff['handoff_id']}/resolve", {"status": "accepted"})
    eventually(lambda: here.query(LIVE, here.me()) and here.live()[0] == "lost")


def test_an_answer_that_arrives_changes_nothing(agent: Agent, here: Place) -> None:
    agent.create(lease_ttl_seconds=TTL)
    agent.claim()
    assert here.live()[0] == ""
    assert here.live()[1] > TTL - 60


def test_what_an_attempt_grants_after_its_client_was_answered_is_kept_for_seconds(
    here: Place, agent: Agent
) -> None:
    """The hub answers a client whose attempt takes too long, and the attempt may still grant."""
    agent.create(lease_ttl_seconds=TTL)
    scope = {
        "method": "POST",
        "path": "/v1/tasks/claim",
        "query_string": b"wait=1",
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"authorization", f"Bearer {agent.secret}".encode()),
            (b"content-type", b"application/json"),
        ],
    }
    assert Request(environ_of(scope), b"{}", given_up=True).attempt().status == 200
    answer, left = here.live()
    assert answer == "lost"
    assert left <= KEPT_FOR_A_REPEAT
