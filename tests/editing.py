"""Agents at the sections of documents: how they send, and what the documents' logs say."""

import json
from typing import Any
from urllib.parse import quote

import httpx

from coordination import events

from .cast import Agent, Company
from .clockwork import sql

SLUG, SID = "handbook", "intro"
METHODS = ("GET", "POST", "PATCH", "DELETE")


def lease_path(slug: str = SLUG, sid: str = SID) -> str:
    """As a client writes it: each name is encoded whole."""
    return f"/api/v1/documents/{quote(slug, safe='')}/sections/{quote(sid, safe='')}/lease"


def send(
    agent: Agent, method: str, body: Any = None, *, slug: str = SLUG, sid: str = SID, **options: Any
) -> httpx.Response:
    """One request to a section's lease."""
    if body is not None:
        options["json"] = body
    return agent.client.request(method, lease_path(slug, sid), **options)


def acquire(agent: Agent, seconds: int = 60, **where: str) -> Any:
    """A lease that must be granted."""
    answer = send(agent, "POST", {"leaseDurationSeconds": seconds}, **where)
    assert answer.status_code == 200, answer.text
    return answer.json()


def release(agent: Agent, **where: str) -> None:
    """Give it back."""
    answer = send(agent, "DELETE", **where)
    assert (answer.status_code, answer.json()) == (200, {"released": True})


def delete_document(agent: Agent, slug: str = SLUG) -> httpx.Response:
    """End a document."""
    return agent.client.request("DELETE", f"/api/v1/documents/{quote(slug, safe='')}")


def expire(lease: Any) -> None:
    """The lease ends now; nobody has written it down."""
    changed = sql(
        "UPDATE coordination_lease SET expires_at = clock_timestamp() WHERE id = %s AND ended_at IS NULL RETURNING 1",
        lease["leaseId"],
    )
    assert changed, "there is no live lease to run out"


def epoch_of(lease: Any) -> int:
    """The epoch of a lease, which this door does not print."""
    return int(sql("SELECT epoch FROM coordination_lease WHERE id = %s", lease["leaseId"])[0][0])


def log_of(company: Company, slug: str = SLUG) -> list[tuple[int, dict[str, Any]]]:
    """A document's log: positions and payloads."""
    events.number()
    found = sql(
        "SELECT p.position, e.data::text FROM coordination_document_position p"
        " JOIN coordination_document d ON d.id = p.document_id JOIN coordination_event e ON e.id = p.event_id"
        " WHERE d.organization_id = %s AND d.slug = %s ORDER BY p.position",
        company.organization.pk,
        slug,
    )
    return [(position, json.loads(payload)) for position, payload in found]
