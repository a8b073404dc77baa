"""Bodies: read alike whatever their framing, and taken in on every path, so that no answer is lost."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .cast import Agent, Company
from .hub import run_hub
from .servers import Server
from .stack import Stack

LARGE = b"x" * 300_000


@pytest.fixture(scope="module")
def hub(static_files: None) -> Iterator[Server]:
    """The hub on a port of its own."""
    with run_hub() as server:
        yield server
        assert not server.trouble()


@pytest.fixture(params=["web", "hub"])
def door(request: pytest.FixtureRequest) -> Server:
    """Each kind of process that answers `/v1`."""
    server: Server = request.getfixturevalue(request.param)
    return server


def _in_chunks(body: bytes) -> Iterator[bytes]:
    """Sent without a length, in pieces."""
    for start in range(0, len(body), 7_001):
        yield body[start : start + 7_001]


def _send(server: Server, agent: Agent, method: str, path: str, body: bytes) -> httpx.Response:
    headers = {"Authorization": f"Bearer {agent.secret}", "Content-Type": "application/json"}
    return httpx.request(
        method, f"{server.url}/v1{path}", content=_in_chunks(body), headers=headers, timeout=20
    )


def test_a_chunked_claim_takes_the_task_that_it_names(door: Server, agent: Agent) -> None:
    agent.create("Older")
    named = agent.create("Named")["id"]
    answer = _send(door, agent, "POST", "/tasks/claim", json.dumps({"task_id": named}).encode())
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"]["task"]["id"] == named


def test_a_chunked_renewal_has_the_lifetime_that_it_names(web: Server, agent: Agent) -> None:
    lease = agent.post("/leases", {"resource_type": "deploy", "resource_id": "chunked", "ttl_seconds": 60})
    answer = _send(web, agent, "PATCH", f"/leases/{lease['lease_id']}", b'{"ttl_seconds": 600}')
    assert answer.json()["data"]["ttl_seconds"] == 600


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"title": 1}', 400, "VALIDATION_ERROR"),
        (b'{"title": "a", "title": "b"}', 400, "VALIDATION_ERROR"),
        (b"not JSON", 400, "VALIDATION_ERROR"),
        (b'{"title": "' + b"x" * 1_048_577 + b'"}', 413, "PAYLOAD_TOO_LARGE"),
        (b'{"title": "' + b"x" * 3_000_000 + b'"}', 413, "PAYLOAD_TOO_LARGE"),
    ],
)
def test_a_chunked_body_is_judged_as_any_other(
    door: Server, agent: Agent, body: bytes, status: int, code: str
) -> None:
    answer = _send(door, agent, "POST", "/tasks", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_chunked_form_is_read(web: Server, company: Company) -> None:
    """Without its fields the login would say that they are missing."""
    with httpx.Client(base_url=web.url) as browser:
        page = browser.get("/login")
        token = page.text.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
        form = f"csrfmiddlewaretoken={token}&username=nobody%40example.org&password=wrong-password"
        answer = browser.post(
            "/login",
            content=_in_chunks(form.encode()),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
    assert answer.status_code == 200, answer.text
    assert "nobody@example.org" in answer.text


# Paths on which nobody wants a body: refused for its CSRF token, unknown, of another method, static, live.
UNREAD: list[tuple[str, str, dict[str, str], int]] = [
    ("POST", "/login", {"Content-Type": "application/x-www-form-urlencoded"}, 403),
    ("POST", "/nope", {}, 404),
    ("POST", "/v1/nope", {"Authorization": "Bearer titen_sk_x"}, 404),
    ("POST", "/v1/tasks", {}, 401),
    ("POST", "/healthz", {}, 403),
    ("POST", "/live/board", {}, 405),
    ("POST", "/v1/events/stream", {}, 401),
    ("POST", "/static/nope.css", {}, 404),
    ("DELETE", "/api/v1/documents/a/sections/b/lease", {}, 401),
]


def _answers(client: httpx.Client, case: tuple[str, str, dict[str, str], int], body: Any) -> set[Any]:
    method, path, headers, _ = case
    return {
        (answer.status_code, "starting again" in answer.text)
        for answer in (client.request(method, path, headers=headers, content=body()) for _ in range(25))
    }


@pytest.mark.parametrize("case", UNREAD, ids=lambda case: f"{case[0]} {case[1]}")
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_no_answer_is_lost_behind_an_unread_body(
    stack: Stack, case: tuple[str, str, dict[str, str], int], framing: str
) -> None:
    """Over one connection, through the front."""
    body = (lambda: LARGE) if framing == "length" else (lambda: _in_chunks(LARGE))
    with httpx.Client(base_url=stack.address, timeout=20) as client:
        assert _answers(client, case, body) == {(case[3], False)}


@pytest.mark.parametrize("case", UNREAD, ids=lambda case: f"{case[0]} {case[1]}")
def test_no_answer_of_a_process_is_lost_either(
    web: Server, hub: Server, case: tuple[str, str, dict[str, str], int]
) -> None:
    server = hub if case[1].endswith("/stream") or case[1].startswith("/live/") else web
    with httpx.Client(base_url=server.url, timeout=20) as client:
        assert _answers(client, case, lambda: LARGE) == {(case[3], False)}
