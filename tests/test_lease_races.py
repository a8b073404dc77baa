"""Leases under contention: one holder at every instant, and no answer that is undone later."""

import random
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from coordination import leasing
from titen.api.ids import public_id

from .cases.tools import at_once
from .cast import Agent, Company
from .clockwork import sql, uuid_of
from .leasing import acquire, batch, gone, history, lease_events, let_run_out, named, release, renew
from .locking import LOCK_LEASE, Connection, Work, second_connection, together, until, wait_until_blocked

pytestmark = pytest.mark.alone

ROUNDS = 50


def post(agent: Agent, path: str, body: Any, **options: Any) -> Any:
    """The answer, whatever it is."""
    return agent.client.post(f"/v1{path}", json=body, **options)


def test_of_many_who_acquire_at_once_exactly_one_has_it_fifty_times(company: Company) -> None:
    """Four server processes answer them."""
    agents = [company.agent() for _ in range(12)]
    for number in range(ROUNDS):
        answers = at_once(agents, lambda agent: post(agent, "/leases", named("checkout")))
        won = [place for place, answer in enumerate(answers) if answer.status_code == 201]
        assert len(won) == 1
        assert {answer.status_code for answer in answers} == {201, 409}
        lease = answers[won[0]].json()["data"]
        assert lease["epoch"] == number + 1
        release(agents[won[0]], lease)
    assert history(agents[0]) == [(number + 1, "released") for number in range(ROUNDS)]


def test_batches_in_opposite_orders_by_many_never_deadlock(company: Company) -> None:
    """Old and new resources mixed, each name wanted by several, in any order of rows and of names."""
    agents = [company.agent() for _ in range(8)]
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = sql(deadlocks)

    def grab(number: int, agent: Agent) -> int:
        # Some names of this round, which nobody has leased yet, and some of earlier ones.
        names = [f"r{number}-{place}" for place in range(6)] + [
            f"r{number // 2}-{place}" for place in range(6)
        ]
        wanted = random.sample(sorted(set(names)), 4)
        answer = post(agent, "/leases/batch", batch(*wanted))
        if answer.status_code == 201:
            for lease in answer.json()["data"]["leases"]:
                release(agent, lease)
        return int(answer.status_code)

    seen = []
    for number in range(40):
        seen += at_once(agents, lambda agent, number=number: grab(number, agent))  # type: ignore[misc]
    assert set(seen) == {201, 409}
    sql("SELECT pg_stat_clear_snapshot()")
    assert sql(deadlocks) == before


def test_who_makes_a_resource_holds_none_that_others_want(agent: Agent) -> None:
    """Making a row waits for whoever else makes it; who holds another row meanwhile can deadlock with them."""
    organization = agent.principal.organization_id
    release(agent, acquire(agent, "old"))
    with second_connection() as maker:
        maker.run(
            "INSERT INTO coordination_resource (organization_id, resource_type, resource_id, epoch)"
            " VALUES (%s, 'deploy', 'new', 0)",
            organization,
        )
        both = Work(lambda: agent.post("/leases/batch", batch("old", "new")))
        wait_until_blocked(maker)
        maker.run(
            "SELECT FROM coordination_resource WHERE organization_id = %s AND resource_id = 'old'"
            " FOR NO KEY UPDATE NOWAIT",
            organization,
        )
        maker.commit()
        assert [lease["epoch"] for lease in both.outcome()["leases"]] == [2, 1]


# One waits for another's locks


@pytest.fixture
def lease(agent: Agent) -> Any:
    """A lease that `agent` holds."""
    return acquire(agent, ttl_seconds=600)


def lock_lease(connection: Connection, lease: Any) -> None:
    assert connection.run(LOCK_LEASE, uuid_of(lease["lease_id"]))


def in_line(lock: Connection, *works: Callable[[], Any]) -> list[Any]:
    """Have each wait, in this order, for what `lock` holds; let go; what each of them answered."""
    begun = []
    for count, work in enumerate(works, start=1):
        begun.append(Work(work))
        wait_until_blocked(lock, count=count)
    lock.commit()
    return [work.outcome() for work in begun]


def asking(agent: Agent, method: str, lease: Any) -> Callable[[], Any]:
    body: dict[str, Any] | None = None if method == "DELETE" else {}
    return lambda: agent.send(method, f"/leases/{lease['lease_id']}", body)


def wanting(agent: Agent) -> Callable[[], Any]:
    return lambda: agent.send("POST", "/leases", named("checkout"))


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_who_waited_behind_a_takeover_is_refused(agent: Agent, other: Agent, lease: Any, method: str) -> None:
    with second_connection() as lock:
        lock_lease(lock, lease)
        let_go = "UPDATE coordination_lease SET expires_at = clock_timestamp() WHERE id = %s"
        lock.run(let_go, uuid_of(lease["lease_id"]))
        taken, late = in_line(lock, wanting(other), asking(agent, method, lease))
    assert taken.status_code == 201
    assert (late.status_code, late.json()["error"]["details"]) == (404, {"reason": "expired"})
    assert history(agent) == [(1, "expired"), (2, None)]


def test_who_wants_it_behind_a_renewal_hears_of_the_new_end(agent: Agent, other: Agent, lease: Any) -> None:
    with second_connection() as lock:
        lock_lease(lock, lease)
        kept, refused = in_line(lock, asking(agent, "PATCH", lease), wanting(other))
    assert kept.status_code == 200
    assert refused.status_code == 409
    assert refused.json()["error"]["details"]["expires_at"] == kept.json()["data"]["expires_at"]
    assert kept.json()["data"]["expires_at"] > lease["expires_at"]


def test_who_wants_it_behind_a_release_has_it(agent: Agent, other: Agent, lease: Any) -> None:
    with second_connection() as lock:
        lock_lease(lock, lease)
        released, taken = in_line(lock, asking(agent, "DELETE", lease), wanting(other))
    assert (released.status_code, taken.status_code) == (200, 201)
    assert taken.json()["data"]["granted_because"] == "claim"
    assert history(agent) == [(1, "released"), (2, None)]


def test_a_release_behind_ones_own_new_acquire_is_refused(agent: Agent, company: Company, lease: Any) -> None:
    twin = Agent(agent.principal, agent.secret, agent.url)
    company.agents.append(twin)
    with second_connection() as lock:
        lock_lease(lock, lease)
        again, late = in_line(lock, wanting(agent), asking(twin, "DELETE", lease))
    assert again.status_code == 201
    assert (late.status_code, late.json()["error"]["details"]) == (404, {"reason": "superseded"})
    assert history(agent) == [(1, "superseded"), (2, None)]


def past_its_end(lease: Any, work: Callable[[], Any]) -> Any:
    """Have `work` wait for the lease's row until the lease has run out; its answer."""
    with second_connection() as lock:
        lock_lease(lock, lease)
        begun = Work(work)
        wait_until_blocked(lock)
        until(lambda: sql("SELECT clock_timestamp() > %s::timestamptz", lease["expires_at"])[0][0], "its end")
        lock.commit()
        return begun.outcome()


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_holder_that_waited_past_the_end_is_refused(agent: Agent, other: Agent, method: str) -> None:
    lease = acquire(agent, ttl_seconds=2)
    late = past_its_end(lease, asking(agent, method, lease))
    assert late.json()["error"]["details"] == {"reason": "expired"}
    assert acquire(other)["granted_because"] == "after_expiry"


def test_who_wanted_it_and_waited_past_the_end_has_it(agent: Agent, other: Agent) -> None:
    answer = past_its_end(acquire(agent, ttl_seconds=2), wanting(other))
    assert (answer.status_code, answer.json()["data"]["granted_because"]) == (201, "after_expiry")


def test_a_revocation_that_waited_past_the_end_takes_nothing(agent: Agent, other: Agent) -> None:
    lease = acquire(agent, ttl_seconds=2)
    path = f"/leases/{lease['lease_id']}/revoke"
    late = past_its_end(lease, lambda: other.send("POST", path, {"reason": "It hangs"}))
    assert late.json()["error"]["details"] == {"reason": "expired"}
    assert history(agent) == [(1, None)]


def test_who_wants_it_behind_a_sweep_has_it_after_the_expiry(agent: Agent, other: Agent, lease: Any) -> None:
    let_run_out(lease)
    with second_connection() as sweeper:
        sweeper.run(
            "UPDATE coordination_lease SET ended_at = expires_at, end_reason = 'expired' WHERE id = %s",
            uuid_of(lease["lease_id"]),
        )
        (taken,) = in_line(sweeper, wanting(other))
    assert taken.json()["data"]["granted_because"] == "after_expiry"
    assert history(agent) == [(1, "expired"), (2, None)]


def test_a_sweep_passes_over_what_is_being_acquired(agent: Agent, other: Agent, lease: Any) -> None:
    let_run_out(lease)
    stale = acquire(agent, "stale")
    let_run_out(stale)
    with second_connection() as lock:
        lock_lease(lock, lease)
        taking = Work(wanting(other))
        wait_until_blocked(lock)
        leasing.sweep()
        assert history(agent, "stale") == [(1, "expired")]
        assert history(agent) == [(1, None)]
        lock.commit()
        assert taking.outcome().status_code == 201
    assert leasing.sweep() == 0
    assert lease_events(lease) == ["lease.acquired", "lease.expired"]


# At the edge of the time


def test_at_the_edge_there_is_one_holder_and_no_answer_is_undone(company: Company) -> None:
    """Short leases renewed too late or just in time, by four who all want it, on a database that stalls."""
    agents = [company.agent() for _ in range(4)]
    promised: dict[str, str] = {}
    stopped = threading.Event()

    def hold(agent: Agent) -> None:
        while not stopped.is_set():
            answer = post(agent, "/leases", named("checkout", ttl_seconds=1))
            if answer.status_code == 409:
                stopped.wait(0.02)
                continue
            lease = answer.json()["data"]
            while answer.is_success and not stopped.is_set():
                promised[lease["lease_id"]] = answer.json()["data"]["expires_at"]
                stopped.wait(random.choice([0.3, 0.9, 0.97, 1.0, 1.05]))
                answer = agent.client.patch(f"/v1/leases/{lease['lease_id']}", json={})
            assert answer.status_code in (200, 201, 404), answer.text

    def stall() -> None:
        """Hold the row of whoever holds the lease, now and then, over its end."""
        while not stopped.is_set():
            with second_connection() as lock:
                lock.run(
                    "SELECT l.id FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id"
                    " WHERE r.organization_id = %s AND l.ended_at IS NULL FOR NO KEY UPDATE OF l",
                    company.organization.pk,
                )
                stopped.wait(random.uniform(0.05, 0.4))
            stopped.wait(random.uniform(0.2, 0.6))

    def end() -> None:
        time.sleep(9)
        stopped.set()

    work = [*(lambda agent=agent: hold(agent) for agent in agents), stall, end]
    assert together(*work) == [None] * len(work)
    rows = sql(
        "SELECT l.id, l.granted_at, l.expires_at, coalesce(l.ended_at, l.expires_at) FROM coordination_lease l"
        " JOIN coordination_resource r ON r.id = l.resource_id WHERE r.organization_id = %s ORDER BY l.epoch",
        company.organization.pk,
    )
    assert len(rows) > 2, "the lease was never passed on"
    for (ident, _, expires_at, ended_at), (_, following, _, _) in pairwise(rows):
        assert following >= ended_at, "two holders at once"
        # Nobody was cut short of the last end that it was told.
        assert ended_at == expires_at
        told = expires_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert promised[public_id("lease", ident)] == told
    # Each ended by a renewal that came too late; some were renewed in time before that.
    assert sql(
        "SELECT id FROM coordination_lease WHERE renewal_count > 0 AND id = ANY (%s)", [r[0] for r in rows]
    )


def test_epochs_rise_over_every_way_a_lease_can_end(agent: Agent, other: Agent) -> None:
    release(agent, acquire(agent))
    let_run_out(acquire(other))
    leasing.sweep()
    let_run_out(acquire(agent))
    other.post(f"/leases/{acquire(other)['lease_id']}/revoke", {"reason": "Enough"})
    acquire(agent)
    acquire(agent)
    last = agent.post("/leases/batch", batch("search", "checkout"))["leases"][1]
    assert history(agent) == [
        (1, "released"),
        (2, "expired"),
        (3, "expired"),
        (4, "revoked"),
        (5, "superseded"),
        (6, "superseded"),
        (7, None),
    ]
    assert renew(agent, last)["epoch"] == 7
    assert gone(other, last) is None
