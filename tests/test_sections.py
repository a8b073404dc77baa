"""The doors of section leases: errors, organizations, documents, and other doors to the same lease."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from coordination import identity, sections
from coordination.models import Document
from titen.api.doors import transact

from .cast import Agent, Company, found_company
from .clockwork import sql
from .editing import acquire, delete_document, epoch_of, expire, lease_path, log_of, release, send
from .servers import REPOSITORY, Server

BODY = {"leaseDurationSeconds": 60}
JSON = {"Content-Type": "application/json"}

ODD_BODIES = [
    (b"{", {}, 400, "VALIDATION_ERROR", "body"),
    (b"[]", {}, 400, "VALIDATION_ERROR", "body"),
    (b'{"leaseDurationSeconds":5,"leaseDurationSeconds":6}', {}, 400, "VALIDATION_ERROR", "body"),
    (b'{"leaseDurationSeconds":5,"ttl":6}', {}, 400, "VALIDATION_ERROR", "ttl"),
    (b'{"leaseDurationSeconds":5,"reason":7}', {}, 400, "VALIDATION_ERROR", "reason"),
    (b'{"leaseDurationSeconds":5,"reason":null}', {}, 400, "VALIDATION_ERROR", "reason"),
    (b'{"leaseDurationSeconds":5,"reason":"\\u0000"}', {}, 400, "VALIDATION_ERROR", "reason"),
    (b'{"leaseDurationSeconds":5,"reason":"%s"}' % (b"x" * 401), {}, 400, "VALIDATION_ERROR", "reason"),
    (b'{"leaseDurationSeconds":5}', {"Content-Type": "text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE", None),
    (b"x" * 1_100_000, {}, 413, "PAYLOAD_TOO_LARGE", None),
]


@pytest.mark.parametrize(("content", "headers", "status", "code", "field"), ODD_BODIES)
def test_every_refusal_is_a_code_and_a_sentence(
    agent: Agent, content: bytes, headers: dict[str, str], status: int, code: str, field: str | None
) -> None:
    answer = send(agent, "POST", content=content, headers={**JSON, **headers})
    assert (answer.status_code, answer.json()["error"], answer.json().get("field")) == (status, code, field)
    assert answer.json().keys() == {"error", "message"} | ({"field"} if field else set())
    assert answer.json()["message"].endswith(".")
    assert send(agent, "GET").status_code == 404


def test_what_is_not_offered_is_405_and_what_is_not_there_404(agent: Agent) -> None:
    for method, path, allowed in (
        ("PUT", lease_path(), "GET, POST, PATCH, DELETE, HEAD, OPTIONS"),
        ("GET", "/api/v1/documents/handbook", "DELETE, OPTIONS"),
    ):
        answer = agent.client.request(method, path)
        assert (answer.status_code, answer.json()["error"]) == (405, "METHOD_NOT_ALLOWED")
        assert answer.headers["allow"] == allowed
    for path in (f"{lease_path()}/", "/api/v1/documents/handbook/sections/intro", "/api/v1/nothing"):
        answer = agent.client.get(path)
        assert (answer.status_code, answer.json()["error"]) == (404, "NOT_FOUND")
        assert answer.json().keys() == {"error", "message"}


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [(RuntimeError("a fault"), 500, "INTERNAL"), (OperationalError("the server is away"), 503, "NOT_READY")],
)
def test_a_fault_is_said_in_this_doors_shape(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, problem: Exception, status: int, code: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise problem

    monkeypatch.setattr(sections, "read", fail)
    answer = Client(raise_request_exception=False).get(
        lease_path(), HTTP_AUTHORIZATION=f"Bearer {agent.secret}"
    )
    assert (answer.status_code, answer.json()["error"]) == (status, code)
    assert answer.json().keys() == {"error", "message"}
    assert answer.headers.get("Retry-After") == ("1" if status == 503 else None)


def test_an_idempotency_key_has_no_say(agent: Agent) -> None:
    """A repeat by the holder has the same lease anyway; a kept answer would tell an old end."""
    key = {"Idempotency-Key": "again"}
    first, again = (send(agent, "POST", {"leaseDurationSeconds": n}, headers=key).json() for n in (5, 50))
    assert again["leaseId"] == first["leaseId"]
    assert again["expiresAt"] > first["expiresAt"]


# Organizations (R18).


@pytest.fixture
def stranger(web: Server) -> Iterator[Agent]:
    """An agent of another organization that may do everything there."""
    company = found_company(web.url)
    agent = company.agent("ada")
    yield agent
    agent.close()


def test_another_organizations_document_of_the_same_slug_is_another_one(
    agent: Agent, company: Company, stranger: Agent
) -> None:
    lease = acquire(agent)
    for method in ("GET", "PATCH", "DELETE"):
        answer = send(stranger, method, BODY if method == "PATCH" else None)
        assert (answer.status_code, answer.json()) == (404, {"error": "NO_ACTIVE_LEASE"})
    assert delete_document(stranger).status_code == 404
    theirs = acquire(stranger)
    assert theirs["leaseId"] != lease["leaseId"]
    assert delete_document(stranger).json() == {"deleted": True}
    assert send(agent, "GET").json() == lease
    assert [payload["leaseId"] for _, payload in log_of(company)] == [lease["leaseId"]]
    assert {event["data"]["leaseId"] for event in stranger.get("/events?kind=section.edited")["events"]} == {
        theirs["leaseId"]
    }


# Documents.


def test_a_document_appears_on_first_use(agent: Agent, company: Company) -> None:
    for sid in ("intro", "outro"):
        acquire(agent, sid=sid)
    (document,) = Document.objects.filter(organization=company.organization)
    assert (document.slug, document.deleted_at) == ("handbook", None)


def test_deleting_a_document_ends_its_leases_and_no_others(
    agent: Agent, other: Agent, company: Company
) -> None:
    lease, kept = acquire(agent), acquire(agent, slug="handbook-2")
    admin = company.agent("manager", scopes="leases:admin")
    assert delete_document(company.agent(scopes="leases:read leases:write")).status_code == 403
    assert (delete_document(admin).status_code, delete_document(admin).status_code) == (200, 404)
    assert send(agent, "PATCH", BODY).json() == {"error": "NO_ACTIVE_LEASE"}
    assert send(agent, "GET", slug="handbook-2").json() == kept
    ended = "SELECT end_reason FROM coordination_lease WHERE id = %s"
    assert sql(ended, lease["leaseId"]) == [("revoked",)]
    assert log_of(company)[1:] == [
        (
            2,
            {
                "event": "SECTION_LEASE_RELEASED",
                "leaseId": lease["leaseId"],
                "sectionId": "intro",
                "releasedBy": "manager",
                "code": "revoked",
            },
        )
    ]
    assert len(agent.get("/events?kind=document.deleted")["events"]) == 1


def test_the_next_use_revives_a_document_with_its_epochs_and_positions(
    agent: Agent, company: Company
) -> None:
    first = acquire(agent)
    delete_document(agent)
    again = acquire(agent)
    assert (epoch_of(first), epoch_of(again)) == (1, 2)
    assert [position for position, _ in log_of(company)] == [1, 2, 3]
    assert Document.objects.get(organization=company.organization).deleted_at is None
    assert delete_document(agent).status_code == 200


# The same lease by other doors.


def test_epochs_rise_over_every_end(agent: Agent, other: Agent) -> None:
    lease = acquire(agent)
    epochs = [epoch_of(lease)]
    release(agent)
    lease = acquire(other)
    epochs.append(epoch_of(lease))
    expire(lease)
    lease = acquire(other)
    epochs.append(epoch_of(lease))
    agent.post(f"/leases/lease_{lease['leaseId'].replace('-', '')}/revoke", {"reason": "Enough"})
    assert send(other, "PATCH", BODY).status_code == 404
    lease = acquire(agent)
    epochs.append(epoch_of(lease))
    delete_document(other)
    epochs.append(epoch_of(acquire(other)))
    assert epochs == [1, 2, 3, 4, 5]


def test_a_recipient_can_verify_the_epoch_of_a_section(agent: Agent) -> None:
    acquire(agent, sid="a/b")
    asked = {"resource_type": "section", "resource_id": "handbook/a/b", "epoch": 1}
    assert agent.post("/fencing/verify", asked) == {"valid": True, "current_epoch": 1}
    release(agent, sid="a/b")
    assert agent.post("/fencing/verify", asked) == {"valid": False, "current_epoch": 1}


def test_v1_leaves_section_leases_to_this_door(agent: Agent) -> None:
    lease = acquire(agent)
    printed = f"lease_{lease['leaseId'].replace('-', '')}"
    agent.refused("NOT_FOUND", f"/leases/{printed}", {}, method="PATCH")
    agent.refused("NOT_FOUND", f"/leases/{printed}", method="DELETE")
    wanted = {"resource_type": "section", "resource_id": "handbook/intro"}
    agent.refused("VALIDATION_ERROR", "/leases", wanted)
    assert send(agent, "GET").json() == lease


def test_a_disabled_principal_loses_its_sections_at_once(
    agent: Agent, other: Agent, company: Company
) -> None:
    acquire(agent)
    transact(lambda: identity.disable_principal(agent.principal))
    assert send(other, "GET").status_code == 404
    assert log_of(company)[-1][1]["event"] == "SECTION_LEASE_RELEASED"
    assert acquire(other)["holder"] == "bert"


def test_the_readmes_curl_works_as_pasted(company: Company) -> None:
    agent = company.agent(scopes="leases:read leases:write")
    readme = (REPOSITORY / "README.md").read_text().partition("## Section leases")[2]
    script = readme.partition("```sh\n")[2].partition("```")[0]
    environment = {**os.environ, "TITEN_URL": agent.url, "TITEN_API_KEY": agent.secret}
    told = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == send(agent, "GET").json()
