"""Names of documents and sections in paths: what differs is another section, by every way to the server."""

import http.client
import json
from typing import Any

import pytest

from .cast import Agent
from .editing import METHODS, acquire, lease_path
from .hub import run_hub
from .servers import Server
from .stack import Stack

BODY = {"leaseDurationSeconds": 60}
JSON = {"Content-Type": "application/json"}

# What stands between `sections/` and `/lease` -> the section's id.
IDS = {
    "intro": "intro",
    "a%2Fb": "a/b",
    "a%252Fb": "a%2Fb",
    "a%2F%2Fb": "a//b",
    "a%2F..%2Fb": "a/../b",
    "%2E%2E": "..",
    "%2E": ".",
    "%2F": "/",
    "lease": "lease",
    "x%2Flease": "x/lease",
    "sections%2Fx": "sections/x",
    "%3A": ":",
    "a%20b": "a b",
    "a+b": "a+b",
    "a;b": "a;b",
    "%3Fwait=5": "?wait=5",
    "%23": "#",
    "%25": "%",
    "%25FF": "%FF",
    "%C3%BC": "\u00fc",
    "u%CC%88": "u\u0308",
    "%E4%B8%AD%2F%F0%9F%98%80": "中/😀",
}
# The same without encoding every slash: other ways to write an id.
ALSO = {"a/b": "a/b", "a//b": "a//b", "x/lease": "x/lease", "%61%2fb": "a/b"}


def raw(address: str, secret: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """A request whose path nobody tidies up on the way."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    client = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        headers = {"Authorization": f"Bearer {secret}", **JSON}
        client.putrequest(method, path, skip_accept_encoding=True)
        content = b"" if body is None else json.dumps(body).encode()
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            client.putheader(name, value)
        client.endheaders(content)
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        client.close()


def lease_of_each(address: str, secret: str) -> dict[str, str]:
    """Acquire every section of IDS by its own path; id -> lease."""
    leases = {}
    for written, sid in IDS.items():
        status, lease = raw(
            address, secret, "POST", f"/api/v1/documents/handbook/sections/{written}/lease", BODY
        )
        assert status == 200, (written, lease)
        leases[sid] = lease["leaseId"]
    return leases


def check_each_is_its_own(address: str, secret: str) -> None:
    """As many leases as ids, each found again by every way to write its id, and no other."""
    leases = lease_of_each(address, secret)
    assert len(set(leases.values())) == len(IDS)
    for written, sid in {**IDS, **ALSO}.items():
        status, lease = raw(address, secret, "GET", f"/api/v1/documents/handbook/sections/{written}/lease")
        assert (status, lease["leaseId"]) == (200, leases[sid]), written


def test_ids_that_differ_are_different_sections(web: Server, agent: Agent) -> None:
    check_each_is_its_own(web.url, agent.secret)
    shown = agent.get("/leases?resource_type=section&limit=200")["leases"]
    assert {row["resource_id"] for row in shown} == {f"handbook/{sid}" for sid in IDS.values()}


def test_so_they_are_through_the_hub(web: Server, agent: Agent) -> None:
    with run_hub() as hub:
        check_each_is_its_own(hub.url, agent.secret)
        status, error = raw(hub.url, agent.secret, "GET", f"{lease_path()}?wait=1")
        assert (status, error["error"], error["field"]) == (400, "VALIDATION_ERROR", "wait")


def test_so_they_are_through_the_front(stack: Stack) -> None:
    firm = stack.found(1)
    check_each_is_its_own(stack.address, firm.agents[0].secret)
    status, error = raw(stack.address, firm.agents[0].secret, "GET", f"{lease_path()}?wait=1")
    assert (status, error["error"], error["field"]) == (400, "VALIDATION_ERROR", "wait")


BAD_PATHS = [
    ("handbook/sections//lease", "sid"),
    (f"handbook/sections/{'x' * 256}/lease", "sid"),
    ("handbook/sections/%00/lease", "sid"),
    ("handbook/sections/a%0Ab/lease", "sid"),
    ("handbook/sections/%7F/lease", "sid"),
    ("handbook/sections/%C2%85/lease", "sid"),
    ("handbook/sections/%FF/lease", "path"),
    ("handbook/sections/%ED%A0%80/lease", "path"),
    ("%C3/sections/x/lease", "path"),
    ("/sections/x/lease", "slug"),
    (f"{'x' * 101}/sections/x/lease", "slug"),
    ("%09/sections/x/lease", "slug"),
    ("handbook/sections/x/lease?leaseDurationSeconds=5", "leaseDurationSeconds"),
]


@pytest.mark.parametrize(("path", "field"), BAD_PATHS, ids=lambda part: part[:40])
def test_a_name_that_cannot_be_is_refused_and_named(web: Server, agent: Agent, path: str, field: str) -> None:
    for method in METHODS:
        body = BODY if method in ("POST", "PATCH") else None
        status, error = raw(web.url, agent.secret, method, f"/api/v1/documents/{path}", body)
        assert (status, error["error"], error["field"]) == (400, "VALIDATION_ERROR", field)


def test_names_may_be_as_long_as_told_whatever_their_characters(agent: Agent) -> None:
    for character in ("x", "ü", "😀"):
        acquire(agent, slug=character * 100, sid=character * 255)
