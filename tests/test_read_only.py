"""The database takes no writes for a while, as after a failover: reading goes on, and writing comes back by itself."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from coordination import events

from .cases.routes import Call, offered
from .cast import Agent, Company, Human, founded
from .following import follow
from .hub import eventually, run_hub
from .servers import Server, run_web
from .sessions import Session
from .visitors import Visitor

pytestmark = pytest.mark.alone

NAME = "read-only-web"


@pytest.fixture(scope="module")
def own_web(static_files: None) -> Iterator[Server]:
    """Web processes whose connections are told apart."""
    with run_web(workers=2, threads=2, PGAPPNAME=NAME) as server:
        yield server
        assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub() as server:
        yield server
        assert "Traceback" not in server.log.read_text()


@pytest.fixture
def company(own_web: Server) -> Iterator[Company]:
    with founded(own_web.url) as company:
        yield company


@contextmanager
def no_writes(*names: str) -> Iterator[None]:
    """Sessions of the database that begin now write nothing, and the servers of these names begin new ones."""
    database = urlsplit(os.environ["DATABASE_URL"]).path.lstrip("/")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        owner.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        try:
            for name in names:
                owner.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                    [name],
                )
            yield
        finally:
            owner.execute(f'ALTER DATABASE "{database}" RESET default_transaction_read_only')


@pytest.fixture
def visitor(own_web: Server) -> Iterator[Visitor]:
    """A browser that is not logged in."""
    visitor = Visitor(own_web.url)
    yield visitor
    visitor.client.close()


def test_writes_are_told_to_wait_and_reads_go_on(
    own_web: Server, agent: Agent, admin: Human, visitor: Visitor
) -> None:
    spare = agent.create("Spare")
    claim = agent.claim(task_id=agent.create("Held")["id"])
    lease = agent.post("/leases", {"resource_type": "deploy", "resource_id": "shop"})
    holds = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    ids = {"task_id": claim["task"]["id"], "run_id": holds["run_id"], "lease_id": lease["lease_id"]}
    writes: dict[tuple[str, str], dict[str, Any]] = {
        (call.method, call.path(ids)): {
            **(call.body(ids) or {}),
            **({"epoch": holds["epoch"]} if "epoch" in (call.body(ids) or {}) else {}),
        }
        for call in offered()
        if call.method != "GET"
        and set(call.names) <= {*ids}
        and not call.human_only
        # These find nothing to do, ask for what is not there, or read.
        and call.route not in ("handoffs", "messages", "webhooks", "contexts", "fencing/verify")
        and not call.route.endswith("/revoke")
    }
    reads = [
        Call("GET", call.route).path(ids)
        for call in offered()
        if call.method == "GET" and set(call.names) <= {*ids} and call.route != "events/stream"
    ]
    assert len(writes) > 12
    assert len(reads) > 12
    with Session(admin, own_web.url) as person:
        with no_writes(NAME):
            for (method, path), body in writes.items():
                answer = agent.send(method, path, body or None)
                assert answer.status_code == 503, (method, path, answer.text)
                assert answer.json()["error"]["code"] == "NOT_READY"
                assert answer.json()["error"]["details"] == {"reason": "read_only"}
                assert answer.headers["Retry-After"] == "2"
            for path in reads:
                assert agent.send("GET", path).status_code == 200, path
            ready = agent.client.get("/readyz")
            assert (ready.status_code, ready.json()["error"]["details"]["reason"]) == (503, "read_only")
            assert agent.client.get("/healthz").status_code == 200
            for page in ("/", f"/tasks/{spare['id']}", "/leases", "/messages", "/keys", "/admin/"):
                assert person.client.get(page).status_code == 200, page
            cancel = {"reason": "No longer needed", "csrfmiddlewaretoken": person.token}
            assert person.client.post(f"/tasks/{spare['id']}/cancel", data=cancel).status_code == 503
            answer = visitor.log_in(admin.user.email)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
            assert (
                person.client.post("/logout", data={"csrfmiddlewaretoken": person.token}).status_code == 503
            )
        # The sessions began while nothing could be written; they are made anew, and nobody restarts anything.
        eventually(lambda: agent.client.get("/readyz").status_code == 200, within=5)
        for _ in range(12):
            eventually(lambda: agent.send("POST", "/tasks", {"title": "Again"}).status_code == 201, within=3)
    assert agent.post(f"/runs/{holds['run_id']}/complete", {"epoch": holds["epoch"]})


def test_streams_and_waits_go_on(own_web: Server, hub: Server, company: Company, agent: Agent) -> None:
    there = Agent(agent.principal, agent.secret, hub.url)
    names = (NAME, f"hub-{hub.port}")
    with ThreadPoolExecutor(1) as pool, follow(agent, hub.url) as stream:
        with no_writes(*names):
            waiting = pool.submit(there.post, "/tasks/claim?wait=20", {})
            pings = stream.pings
            assert there.send("POST", "/tasks/claim?wait=1", {}).status_code == 503
            eventually(lambda: stream.pings > pings or stream.pings == 0)
            assert not stream.ended.is_set()
        eventually(lambda: agent.send("POST", "/tasks", {"title": "Again"}).status_code == 201, within=5)
        assert waiting.result(15)["task"]["title"] == "Again"
        eventually(lambda: [line for line in stream.events if line["kind"] == "task.claimed"])
    there.close()


def test_readers_read_what_is_numbered(company: Company, agent: Agent) -> None:
    """Who reads the log numbers it first, which is a write."""
    agent.create()
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    try:
        assert events.number() == 0
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
    assert events.number() >= 0
