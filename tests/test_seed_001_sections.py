"""Every line of `seeds/001` that states a behaviour, as a test of the doors that it describes."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.conf import settings

from coordination import leasing
from titen.live import chores

from .cast import Agent, Company
from .clockwork import sql
from .editing import METHODS, acquire, delete_document, expire, lease_path, log_of, release, send
from .locking import together
from .servers import Server

PRINTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
BODY = {"leaseDurationSeconds": 60, "reason": "Rewriting intro paragraph"}
OUT_OF_RANGE: list[Any] = [0, -1, 301, 2**31, 2**63, 10**30, 1.5, 60.0, "60", "", True, False, None, [], {}]


@pytest.fixture
def leased(agent: Agent) -> Any:
    """A lease on the section that `agent` holds."""
    return acquire(agent)


def now() -> datetime:
    """The database's clock."""
    found: datetime = sql("SELECT clock_timestamp()")[0][0]
    return found.astimezone(UTC)


def seconds_left(lease: Any) -> float:
    """From now, by the database's clock."""
    return (datetime.fromisoformat(lease["expiresAt"]) - now()).total_seconds()


# The soft lease model.


def test_leases_are_a_cooperative_signal_and_block_nobody(agent: Agent, other: Agent, leased: Any) -> None:
    """What somebody leases of a document hinders no write of anybody: work goes on as if there were none."""
    other.create("Rewrite the introduction", payload={"document": "handbook", "section": "intro"})
    claim = other.claim()
    run = f"/runs/{claim['run']['id']}"
    assert other.post(f"{run}/complete", {"epoch": claim["lease"]["epoch"]})["run"]["status"] == "succeeded"
    assert send(agent, "GET").json() == leased


def test_agent_a_acquires_and_agent_b_checks_for_it(agent: Agent, other: Agent) -> None:
    assert send(other, "GET").status_code == 404
    lease = acquire(agent)
    assert send(other, "GET").json() == lease
    release(agent)
    assert send(other, "GET").status_code == 404


def test_a_409_says_that_another_agent_is_editing_here_right_now(
    agent: Agent, other: Agent, leased: Any
) -> None:
    assert send(other, "POST", BODY).status_code == 409
    # It is the other's to decide: it can turn to another section, or come again.
    acquire(other, sid="outro")
    release(agent)
    acquire(other)


# REST.


@pytest.mark.parametrize("method", METHODS)
def test_all_lease_endpoints_require_authentication(
    web: Server, company: Company, leased: Any, method: str
) -> None:
    ended = company.agent("ended")
    sql(
        "UPDATE coordination_apikey SET revoked_at = clock_timestamp() WHERE principal_id = %s",
        ended.principal.pk,
    )
    strangers: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer llmtxt_myapikey"},
        {"Authorization": "Bearer titen_sk_unknown"},
        {"Authorization": f"Bearer {ended.secret}"},
        {"Authorization": ""},
    ]
    for headers in strangers:
        answer = httpx.request(
            method, f"{web.url}{lease_path()}", headers=headers, json={} if method == "POST" else None
        )
        assert answer.status_code == 401, headers
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json().keys() == {"error", "message"}
        assert answer.json()["error"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("method", METHODS)
def test_each_endpoint_needs_its_scope(company: Company, leased: Any, method: str) -> None:
    needed = "leases:read" if method == "GET" else "leases:write"
    body = BODY if method == "POST" else {"leaseDurationSeconds": 9} if method == "PATCH" else None
    without = company.agent(
        scopes="leases:admin events:read " + ("leases:write" if method == "GET" else "leases:read")
    )
    refused = send(without, method, body)
    assert refused.status_code == 403
    assert refused.json()["error"] == "FORBIDDEN"
    assert f"'{needed}'" in refused.json()["message"]
    allowed = send(company.agent(scopes=needed), method, body)
    assert allowed.status_code in (200, 403, 409)
    assert needed not in allowed.text


def test_acquire_answers_200_with_lease_holder_and_expiry(agent: Agent) -> None:
    answer = send(agent, "POST", BODY)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    lease = answer.json()
    assert lease.keys() == {"leaseId", "holder", "expiresAt"}
    assert str(uuid.UUID(lease["leaseId"])) == lease["leaseId"]
    assert lease["holder"] == "ada"
    assert PRINTED.fullmatch(lease["expiresAt"])
    assert 50 < seconds_left(lease) <= 60


def test_the_reason_is_kept_and_need_not_be_given(agent: Agent) -> None:
    lease = send(agent, "POST", BODY).json()
    acquire(agent)
    kept = "SELECT purpose FROM coordination_lease WHERE id = %s"
    assert sql(kept, lease["leaseId"]) == [("Rewriting intro paragraph",)]
    send(agent, "POST", {**BODY, "reason": "Now the end of it"})
    assert sql(kept, lease["leaseId"]) == [("Now the end of it",)]


def test_acquire_of_a_held_section_answers_409_with_holder_and_expiry(other: Agent, leased: Any) -> None:
    answer = send(other, "POST", BODY)
    assert answer.status_code == 409
    assert answer.json() == {"error": "SECTION_LEASED", "holder": "ada", "expiresAt": leased["expiresAt"]}
    assert 50 <= int(answer.headers["retry-after"]) <= 60


def test_get_answers_200_with_the_current_lease(other: Agent, leased: Any) -> None:
    answer = send(other, "GET")
    assert (answer.status_code, answer.json()) == (200, leased)


@pytest.mark.parametrize("over", ["never", "expired", "released", "deleted"])
def test_get_answers_404_no_active_lease(agent: Agent, other: Agent, over: str) -> None:
    if over != "never":
        lease = acquire(agent)
    if over == "expired":
        expire(lease)  # and nobody sweeps
    elif over == "released":
        release(agent)
    elif over == "deleted":
        assert delete_document(other).status_code == 200
    answer = send(other, "GET")
    assert (answer.status_code, answer.json()) == (404, {"error": "NO_ACTIVE_LEASE"})


def test_get_changes_nothing(agent: Agent, company: Company) -> None:
    assert send(agent, "GET", slug="unheard-of").status_code == 404
    found = "SELECT count(*) FROM coordination_document WHERE organization_id = %s"
    assert sql(found, company.organization.pk) == [(0,)]
    assert agent.client.head(lease_path()).status_code == 404
    acquire(agent)
    head = agent.client.head(lease_path())
    assert (head.status_code, head.content) == (200, b"")


def test_release_answers_200_released(agent: Agent, other: Agent, leased: Any) -> None:
    answer = send(agent, "DELETE")
    assert (answer.status_code, answer.json()) == (200, {"released": True})
    assert acquire(other)["holder"] == "bert"


def test_release_answers_403_if_the_caller_is_not_the_holder(agent: Agent, other: Agent, leased: Any) -> None:
    answer = send(other, "DELETE")
    assert answer.status_code == 403
    assert answer.json().keys() == {"error", "message"}
    assert answer.json()["error"] == "FORBIDDEN"
    assert send(agent, "GET").json() == leased


def test_release_of_what_nobody_holds_answers_404(agent: Agent, leased: Any) -> None:
    expire(leased)
    answer = send(agent, "DELETE")
    assert (answer.status_code, answer.json()) == (404, {"error": "NO_ACTIVE_LEASE"})


@pytest.mark.parametrize("kind", ["application/json", None, "text/plain"])
def test_release_works_without_a_body_whatever_its_content_type(
    agent: Agent, leased: Any, kind: str | None
) -> None:
    answer = send(agent, "DELETE", headers={"Content-Type": kind} if kind else {})
    assert (answer.status_code, answer.json()) == (200, {"released": True})


def test_renew_answers_200_with_updated_expiry(agent: Agent, leased: Any) -> None:
    answer = send(agent, "PATCH", {"leaseDurationSeconds": 120})
    assert answer.status_code == 200
    renewed = answer.json()
    assert renewed == {**leased, "expiresAt": renewed["expiresAt"]}
    assert 110 < seconds_left(renewed) <= 120
    # From now on, also when that is sooner than it was.
    sooner = send(agent, "PATCH", {"leaseDurationSeconds": 20}).json()
    assert 10 < seconds_left(sooner) <= 20
    assert send(agent, "GET").json() == sooner


def test_renew_answers_403_for_anothers_and_404_for_none(agent: Agent, other: Agent, leased: Any) -> None:
    answer = send(other, "PATCH", {"leaseDurationSeconds": 120})
    assert (answer.status_code, answer.json()["error"]) == (403, "FORBIDDEN")
    expire(leased)
    for who in (agent, other):
        answer = send(who, "PATCH", {"leaseDurationSeconds": 120})
        assert (answer.status_code, answer.json()) == (404, {"error": "NO_ACTIVE_LEASE"})


def test_the_same_holders_post_keeps_its_lease_and_renews_it(
    agent: Agent, company: Company, leased: Any
) -> None:
    again = acquire(agent, 5)
    assert again == {**leased, "expiresAt": again["expiresAt"]}
    assert 0 < seconds_left(again) <= 5
    epochs = "SELECT epoch, renewal_count FROM coordination_lease WHERE id = %s"
    assert sql(epochs, leased["leaseId"]) == [(1, 1)]
    assert [payload["event"] for _, payload in log_of(company)] == ["SECTION_LEASED"]


# Conflict handling.


def test_wait_and_retry_after_expires_at(agent: Agent, other: Agent) -> None:
    lease = acquire(agent, 1)
    refused = send(other, "POST", BODY)
    assert refused.json()["expiresAt"] == lease["expiresAt"]
    assert refused.headers["retry-after"] == "1"
    sql("SELECT pg_sleep_until(%s)", lease["expiresAt"])
    # What is printed is cut to milliseconds.
    sql("SELECT pg_sleep(0.001)")
    assert acquire(other)["holder"] == "bert"
    assert send(agent, "PATCH", {"leaseDurationSeconds": 60}).status_code == 403


def test_ask_the_holder_by_a_message_to_the_section(agent: Agent, other: Agent, leased: Any) -> None:
    """The section is a resource like others, under `<slug>/<section id>`."""
    section = {"resource_type": "section", "resource_id": "handbook/intro"}
    other.post("/messages", {**section, "body": "May I have it next?"})
    assert [message["body"] for message in agent.get("/messages")["messages"]] == ["May I have it next?"]


# Events.


def said(event: str, lease: Any, **more: str) -> dict[str, Any]:
    """The payload of an event about a lease of `intro`."""
    return {"event": event, "sectionId": "intro", "leaseId": lease["leaseId"], **more}


def test_lease_changes_emit_events_to_the_document(agent: Agent, other: Agent, company: Company) -> None:
    first = acquire(agent)
    release(agent)
    second = acquire(other)
    expire(second)
    third = acquire(agent)
    release(agent)
    assert log_of(company) == [
        (1, said("SECTION_LEASED", first, holder="ada", expiresAt=first["expiresAt"])),
        (2, said("SECTION_LEASE_RELEASED", first, releasedBy="ada")),
        (3, said("SECTION_LEASED", second, holder="bert", expiresAt=second["expiresAt"])),
        (4, said("SECTION_LEASE_EXPIRED", second, holder="bert")),
        (5, said("SECTION_LEASED", third, holder="ada", expiresAt=third["expiresAt"])),
        (6, said("SECTION_LEASE_RELEASED", third, releasedBy="ada")),
    ]


def test_the_organizations_log_has_them_as_section_edited_of_the_document(agent: Agent, leased: Any) -> None:
    (event,) = agent.get("/events?kind=section.edited")["events"]
    assert event["subject_id"].startswith("doc_")
    assert event["lease_id"] == "lease_" + leased["leaseId"].replace("-", "")
    assert event["data"] == {"event": "SECTION_LEASED", "sectionId": "intro", **leased}
    assert event["epoch"] == 1


def test_renewals_and_refusals_emit_none(agent: Agent, other: Agent, company: Company, leased: Any) -> None:
    send(agent, "PATCH", {"leaseDurationSeconds": 100})
    acquire(agent)
    for method in METHODS:
        send(other, method, BODY if method == "POST" else None)
    assert len(log_of(company)) == 1


def test_expiry_is_a_background_job_at_least_every_15_seconds(
    agent: Agent, company: Company, leased: Any
) -> None:
    expire(leased)
    together(leasing.sweep, leasing.sweep)
    assert log_of(company)[1:] == [(2, said("SECTION_LEASE_EXPIRED", leased, holder="ada"))]
    assert sql("SELECT ended_at = expires_at FROM coordination_lease WHERE id = %s", leased["leaseId"]) == [
        (True,)
    ]
    beat: dict[str, Any] = settings.CELERY_BEAT_SCHEDULE
    assert max(chores.SWEEP_SECONDS, beat["write down what has run out"]["schedule"]) <= 15
    # Nothing is written down twice, whoever comes next.
    acquire(agent)
    assert [payload["event"] for _, payload in log_of(company)] == [
        "SECTION_LEASED",
        "SECTION_LEASE_EXPIRED",
        "SECTION_LEASED",
    ]


def test_the_maximum_duration_is_300_seconds(agent: Agent) -> None:
    assert 290 < seconds_left(acquire(agent, 300)) <= 300
    assert seconds_left(acquire(agent, 1)) <= 1
    acquire(agent)
    for seconds in OUT_OF_RANGE:
        for method in ("POST", "PATCH"):
            answer = send(agent, method, {"leaseDurationSeconds": seconds})
            assert answer.status_code == 400, seconds
            assert answer.json()["error"] == "VALIDATION_ERROR"
            assert answer.json()["field"] == "leaseDurationSeconds"
            assert "leaseDurationSeconds" in answer.json()["message"]
    for method in ("POST", "PATCH"):
        assert send(agent, method, {}).json()["field"] == "leaseDurationSeconds"
    assert 50 < seconds_left(send(agent, "GET").json()) <= 60


def test_times_are_the_databases_in_utc_with_milliseconds(agent: Agent, other: Agent) -> None:
    """R20: nothing depends on the zone or the clock of anybody else."""
    before = now()
    lease = acquire(agent, 60)
    after = now()
    told = datetime.fromisoformat(lease["expiresAt"])
    cut = timedelta(milliseconds=1)
    assert before + timedelta(seconds=60) - cut <= told <= after + timedelta(seconds=60)
    texts = [
        lease["expiresAt"],
        send(other, "POST", BODY).json()["expiresAt"],
        send(other, "GET").json()["expiresAt"],
    ]
    texts.append(send(agent, "PATCH", {"leaseDurationSeconds": 9}).json()["expiresAt"])
    assert [text for text in texts if not PRINTED.fullmatch(text)] == []
