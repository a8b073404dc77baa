"""In jeopardy a holder is told why, what it may still do and what it may not; and that is what it may."""

from collections.abc import Callable
from typing import Any

import pytest

from coordination.standing import OF_A_LEASE, OF_A_RUN

from .acting import effect
from .cast import Agent
from .clockwork import bring_into_jeopardy
from .leasing import acquire, shown
from .scenes import offer, question

BECAUSE = ["silence", "declared"]

# What a holder sends, as (method, path, body).
OF_RUNS: dict[str, Callable[[Any, Agent], tuple[str, str, Any]]] = {
    "heartbeat": lambda claim, other: _verb(claim, "heartbeat"),
    "release": lambda claim, other: _verb(claim, "release"),
    "fail": lambda claim, other: _verb(claim, "fail", error="no network"),
    "complete": lambda claim, other: _verb(claim, "complete"),
    "checkpoint": lambda claim, other: ("POST", "/checkpoints", {**_under(claim), "state": 1}),
    "comment": lambda claim, other: (
        "POST",
        f"/tasks/{claim['task']['id']}/comments",
        {**_under(claim), "body": "The network is slow."},
    ),
    "ask": lambda claim, other: ("POST", "/approvals", question(claim)),
    "hand_off": lambda claim, other: ("POST", "/handoffs", offer(other, claim)),
    "authorize": lambda claim, other: ("POST", "/effects", effect(claim)),
}
OF_LEASES: dict[str, Callable[[Any], tuple[str, str, Any]]] = {
    "renew": lambda lease: ("PATCH", f"/leases/{lease['lease_id']}", {}),
    "release": lambda lease: ("DELETE", f"/leases/{lease['lease_id']}", None),
    "authorize": lambda lease: (
        "POST",
        "/effects",
        {
            "lease_id": lease["lease_id"],
            "epoch": lease["epoch"],
            "effect_key": "1",
            "action": {"tool": "deploy"},
        },
    ),
}


def _under(claim: Any) -> dict[str, Any]:
    return {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}


def _verb(claim: Any, verb: str, **more: Any) -> tuple[str, str, Any]:
    return "POST", f"/runs/{claim['run']['id']}/{verb}", {"epoch": claim["lease"]["epoch"], **more}


def unsure(agent: Agent, claim: Any, because: str, path: str, body: Any = None) -> None:
    """Bring a lease into jeopardy: by silence, or by its holder's word."""
    if because == "silence":
        bring_into_jeopardy(claim)
    else:
        agent.post(path, body)


def check(error: Any, because: str, lease: Any) -> None:
    """The refusal says since when and why."""
    details, ttl = error["details"], lease["ttl_seconds"]
    assert (details["because"], details["ttl_seconds"]) == (because, ttl)
    assert details["renewed_at"] == lease["renewed_at"]
    if because == "silence":
        assert details["declared_at"] is None
        assert f"no renewal for {ttl * 0.67:.0f}."[:-2] in error["message"]
        assert f"of a TTL of {ttl} s" in error["message"]
    else:
        assert f"its holder declared it at {details['declared_at']}" in error["message"]


def test_the_tables_name_every_verb_here() -> None:
    assert {*OF_A_RUN.allowed, *OF_A_RUN.refused} == set(OF_RUNS)
    assert {*OF_A_LEASE.allowed, *OF_A_LEASE.refused} == set(OF_LEASES)


@pytest.mark.parametrize("because", BECAUSE)
@pytest.mark.parametrize("verb", OF_RUNS)
def test_what_a_run_may_do_in_jeopardy(
    agent: Agent, other: Agent, claimed: Any, verb: str, because: str
) -> None:
    unsure(agent, claimed, because, f"/runs/{claimed['run']['id']}/jeopardy", {"epoch": 1})
    method, path, body = OF_RUNS[verb](claimed, other)
    if verb in OF_A_RUN.allowed:
        assert agent.send(method, path, body).status_code in (200, 201)
        return
    error = agent.refused("LEASE_IN_JEOPARDY", path, body)
    check(error, because, shown(agent, claimed["lease"]))
    assert error["details"]["allowed"] == list(OF_A_RUN.allowed)
    assert error["details"]["refused"] == list(OF_A_RUN.refused)
    assert (error["details"]["run"], error["details"]["task"]) == ("running", "in_progress")
    assert error["message"].endswith("Send a heartbeat first; when that is accepted, try again.")
    agent.post(*_verb(claimed, "heartbeat")[1:])
    assert _code(agent.send(method, path, body)) != "LEASE_IN_JEOPARDY"


@pytest.mark.parametrize("because", BECAUSE)
@pytest.mark.parametrize("verb", OF_LEASES)
def test_what_a_lease_on_anything_else_allows_in_jeopardy(agent: Agent, verb: str, because: str) -> None:
    lease = acquire(agent)
    unsure(agent, {"lease": lease}, because, f"/leases/{lease['lease_id']}/jeopardy")
    method, path, body = OF_LEASES[verb](lease)
    if verb in OF_A_LEASE.allowed:
        assert agent.send(method, path, body).status_code == 200
        return
    error = agent.refused("LEASE_IN_JEOPARDY", path, body)
    check(error, because, shown(agent, lease))
    assert error["details"]["allowed"] == ["renew", "release"]
    assert error["details"]["refused"] == ["authorize"]
    assert error["message"].endswith("Renew it first; when that is accepted, try again.")


def _code(answer: Any) -> str | None:
    return answer.json()["error"]["code"] if answer.status_code >= 400 else None
