"""`seeds/000` on leases, line by line. Where this product goes beyond the page, the test's name says so."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .cast import Agent, found_company
from .clockwork import sql, uuid_of
from .leasing import acquire, gone, history, lease_events, let_run_out, named, release, renew, swept
from .servers import REPOSITORY, Server

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
PAGE = {
    "resource_type": "deploy",
    "resource_id": "checkout-service",
    "purpose": "run rollback smoke",
    "ttl_seconds": 600,
}


@pytest.fixture
def held(agent: Agent) -> Any:
    """The page's lease, which `agent` holds."""
    return agent.post("/leases", PAGE)


def test_acquire_answers_201_with_lease_id_and_expires_at(agent: Agent) -> None:
    before = datetime.now(UTC)
    answer = agent.send("POST", "/leases", PAGE)
    assert answer.status_code == 201
    envelope = answer.json()
    assert set(envelope) == {"data", "meta"}
    lease = envelope["data"]
    assert re.fullmatch(r"lease_[0-9a-f]{32}", lease["lease_id"])
    assert MOMENT.fullmatch(lease["expires_at"])
    lasts = datetime.fromisoformat(lease["expires_at"]) - before
    assert timedelta(seconds=590) < lasts < timedelta(seconds=610)


def test_beyond_the_page_a_grant_tells_epoch_certainty_and_sequencer(held: Any) -> None:
    assert (held["epoch"], held["certainty"], held["ttl_seconds"]) == (1, "held", 600)
    assert held["sequencer"].count(".") == 2


def test_ttl_seconds_runs_from_10_to_86400() -> None:
    """The bounds as they are published; the tests themselves lower the minimum by its setting."""
    environment = {key: value for key, value in os.environ.items() if key != "TITEN_LEASE_TTL_MINIMUM"}
    script = (
        "import django; django.setup(); from coordination.api.bodies import LeaseBody as body;"
        " ttl = body().fields['ttl_seconds']; print(ttl.min_value, ttl.max_value)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        env={**environment, "DJANGO_SETTINGS_MODULE": "titen.settings"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["10", "86400"]


@pytest.mark.parametrize("ttl", [0, 86_401])
def test_a_ttl_out_of_the_range_is_refused(agent: Agent, ttl: int) -> None:
    error = agent.refused("VALIDATION_ERROR", "/leases", {**PAGE, "ttl_seconds": ttl})
    assert list(error["details"]["fields"]) == ["ttl_seconds"]


def test_a_second_principal_gets_409_with_the_expiry(held: Any, other: Agent) -> None:
    answer = other.send("POST", "/leases", PAGE)
    assert answer.status_code == 409
    error = answer.json()["error"]
    assert error["code"] == "CONFLICT"
    assert error["message"] == f"Resource is leased by another principal until {held['expires_at']}."


def test_beyond_the_page_the_409_has_the_expiry_in_details_and_a_retry_after(held: Any, other: Agent) -> None:
    answer = other.send("POST", "/leases", PAGE)
    assert answer.json()["error"]["details"] == {"expires_at": held["expires_at"]}
    assert 590 < int(answer.headers["Retry-After"]) <= 600


def test_the_409_names_no_holder_and_no_purpose(held: Any, agent: Agent, other: Agent) -> None:
    answer = other.send("POST", "/leases", {**PAGE, "purpose": ""})
    told = f"{answer.text} {answer.headers}"
    who = agent.get("/principal")
    for secret in (PAGE["purpose"], who["name"], who["principal_id"], held["lease_id"], held["sequencer"]):
        assert str(secret) not in told


def test_only_a_lease_of_the_same_organization_is_in_the_way(held: Any, web: Server) -> None:
    stranger = found_company(web.url).agent()
    assert acquire(stranger, "checkout-service")["epoch"] == 1
    assert stranger.refused("NOT_FOUND", f"/leases/{held['lease_id']}", method="DELETE")
    stranger.close()


def test_another_resource_id_or_type_is_another_resource(held: Any, other: Agent) -> None:
    assert acquire(other, "deploy/search-service")["epoch"] == 1
    assert acquire(other, "rollback/checkout-service")["epoch"] == 1


def test_a_lease_that_expired_is_in_nobodys_way_and_nothing_has_to_sweep_it(held: Any, other: Agent) -> None:
    let_run_out(held)
    lease = acquire(other, "checkout-service")
    assert (lease["epoch"], lease["granted_because"]) == (2, "after_expiry")
    assert lease_events(held) == ["lease.acquired", "lease.expired"]


def test_beyond_the_page_what_expired_is_swept(held: Any, agent: Agent) -> None:
    let_run_out(held)
    swept()
    assert history(agent, "checkout-service") == [(1, "expired")]
    assert lease_events(held) == ["lease.acquired", "lease.expired"]


def test_acquiring_again_as_the_holder_gives_a_new_id_and_the_old_one_is_404(held: Any, agent: Agent) -> None:
    again = agent.post("/leases", PAGE)
    assert again["lease_id"] != held["lease_id"]
    assert gone(agent, held) == "superseded"
    assert agent.get(f"/leases/{again['lease_id']}")["certainty"] == "held"


def test_acquiring_again_after_the_ttl_gives_a_new_id_and_the_old_one_is_404(held: Any, agent: Agent) -> None:
    let_run_out(held)
    again = agent.post("/leases", PAGE)
    assert again["lease_id"] != held["lease_id"]
    assert gone(agent, held) == "expired"


def test_the_id_of_the_most_recent_acquire_releases(held: Any, agent: Agent, other: Agent) -> None:
    release(agent, agent.post("/leases", PAGE))
    assert acquire(other, "checkout-service")["epoch"] == 3


def test_beyond_the_page_there_is_a_renew_route_that_keeps_the_id(held: Any, agent: Agent) -> None:
    renewed = renew(agent, held, ttl_seconds=3600)
    assert (renewed["lease_id"], renewed["epoch"]) == (held["lease_id"], held["epoch"])
    assert renewed["expires_at"] > held["expires_at"]
    assert lease_events(held) == ["lease.acquired", "lease.renewed"]


def test_delete_releases_and_answers_lease_id_and_released_at(held: Any, agent: Agent, other: Agent) -> None:
    answer = agent.send("DELETE", f"/leases/{held['lease_id']}")
    assert answer.status_code == 200
    data = answer.json()["data"]
    assert data.keys() == {"lease_id", "released_at"}
    assert data["lease_id"] == held["lease_id"]
    assert MOMENT.fullmatch(data["released_at"])
    assert acquire(other, "checkout-service")["epoch"] == 2


def test_delete_is_404_on_a_lease_that_is_released_already(held: Any, agent: Agent) -> None:
    release(agent, held)
    assert gone(agent, held) == "released"


def test_a_crashed_holder_blocks_the_resource_until_its_ttl_is_over(
    held: Any, agent: Agent, other: Agent
) -> None:
    agent.close()
    other.refused("CONFLICT", "/leases", PAGE)
    let_run_out(held)
    assert acquire(other, "checkout-service")


def test_a_lease_blocks_no_write_of_anybody(agent: Agent, other: Agent) -> None:
    task = agent.create("Shared")
    acquire(agent, f"ticket/{task['id']}")
    other.post(f"/tasks/{task['id']}/comments", {"body": "Still open to all"})


def test_lease_acquired_is_emitted_to_the_event_stream(held: Any, agent: Agent) -> None:
    (event,) = agent.get("/events?kind=lease.acquired")["events"]
    assert (event["lease_id"], event["epoch"]) == (held["lease_id"], 1)
    assert event["data"] == {
        "resource_type": "deploy",
        "resource_id": "checkout-service",
        "because": "claim",
    }
    assert event["actor_id"] == agent.get("/principal")["principal_id"]


def test_release_is_recorded_on_the_row_and_beyond_the_page_as_an_event(held: Any, agent: Agent) -> None:
    released = release(agent, held)
    ((ended_at, reason),) = sql(
        "SELECT ended_at, end_reason FROM coordination_lease WHERE id = %s", uuid_of(held["lease_id"])
    )
    assert reason == "released"
    assert ended_at.isoformat(timespec="milliseconds").replace("+00:00", "Z") == released["released_at"]
    assert lease_events(held) == ["lease.acquired", "lease.released"]


def test_beyond_the_page_who_resumes_with_an_old_epoch_can_be_told(held: Any, agent: Agent) -> None:
    asked = {"resource_type": "deploy", "resource_id": "checkout-service", "epoch": held["epoch"]}
    assert agent.post("/fencing/verify", asked)["valid"]
    agent.post("/leases", PAGE)
    assert agent.post("/fencing/verify", asked) == {"valid": False, "current_epoch": 2}


def test_what_is_no_lease_of_ones_own_is_404(held: Any, agent: Agent, other: Agent) -> None:
    agent.create()
    of_a_task = agent.claim()["lease"]
    for lease in (held, of_a_task, {"lease_id": f"lease_{'0' * 32}"}, {"lease_id": "deploy"}):
        who = agent if lease is of_a_task else other
        for method in ("DELETE", "PATCH"):
            assert gone(who, lease, method) is None
        who.refused("NOT_FOUND", f"/leases/{lease['lease_id']}/jeopardy")
    assert other.refused("CONFLICT", "/leases", named("checkout-service"))
