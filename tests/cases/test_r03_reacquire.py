"""R03: a holder that acquires again has the newest lease, and knows that the older ones are dead."""

from typing import Any

import pytest

from tests.cast import Agent
from tests.leasing import acquire, gone, history, lease_events, named, release

from .tools import at_once, events_of


@pytest.fixture
def twins(agent: Agent) -> Any:
    """Ten connections of the same agent."""
    twins = [Agent(agent.principal, agent.secret, agent.url) for _ in range(10)]
    yield twins
    for twin in twins:
        twin.close()


def test_acquiring_twice_gives_a_new_id_and_the_older_one_is_superseded(agent: Agent, other: Agent) -> None:
    first, second = acquire(agent, ttl_seconds=60), acquire(agent, ttl_seconds=60)
    assert second["lease_id"] != first["lease_id"]
    assert second["epoch"] == first["epoch"] + 1
    assert second["granted_because"] == "reacquire"
    for method in ("DELETE", "PATCH"):
        assert gone(agent, first, method) == "superseded"
    # The dead id has ended nothing: the id last told is the one to release with.
    other.refused("CONFLICT", "/leases", named("checkout"))
    release(agent, second)
    assert acquire(other)["epoch"] == second["epoch"] + 1


def test_ten_acquires_at_once_leave_one_live_lease(agent: Agent, other: Agent, twins: Any) -> None:
    leases = at_once(twins, acquire)
    assert sorted(lease["epoch"] for lease in leases) == list(range(1, 11))
    assert len({lease["lease_id"] for lease in leases}) == 10
    *older, newest = sorted(leases, key=lambda lease: lease["epoch"])
    assert [gone(agent, lease) for lease in older] == ["superseded"] * 9
    release(agent, newest)
    assert acquire(other)["epoch"] == 11
    # One `lease.acquired` for each id, in the order of the epochs.
    acquired = [event for event in events_of(agent, kind="lease.acquired") if event["epoch"] <= 10]
    assert [event["epoch"] for event in acquired] == list(range(1, 11))
    assert [event["lease_id"] for event in acquired] == [lease["lease_id"] for lease in [*older, newest]]
    assert lease_events(newest) == ["lease.acquired", "lease.released"]


def test_the_same_idempotency_key_gives_the_same_lease_however_often(agent: Agent, twins: Any) -> None:
    def repeat(twin: Agent) -> Any:
        key = {"Idempotency-Key": "once"}
        answer = twin.send("POST", "/leases", named("checkout"), headers=key)
        return answer.json()["data"] if answer.status_code == 201 else answer.json()["error"]["details"]

    answers = [*at_once(twins, repeat), repeat(agent)]
    told = [answer for answer in answers if "lease_id" in answer]
    assert all(answer == told[0] for answer in told)
    assert all(answer == {"reason": "in_flight"} for answer in answers if "lease_id" not in answer)
    assert answers[-1] == told[0]
    assert history(agent) == [(1, None)]
    # Without the key it is another request.
    assert acquire(agent)["epoch"] == 2
    # And the key still tells of the first, which is dead now.
    assert repeat(agent) == told[0]
    assert gone(agent, told[0]) == "superseded"
