"""The SDK's leases against a real server: held for certain, in jeopardy, lost or given back (R10)."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import jwt
import pytest

from titen.client import Conflict, HeldLease, LeaseInJeopardy, LeaseLost, LeaseState, Titen, TitenError
from titen.client.lease_clock import now

from .cast import Agent
from .leasing import acquire, history, named, release
from .locking import until
from .proxy import Proxy
from .servers import REPOSITORY, Server

pytestmark = pytest.mark.alone

TTL = 2
"""Seconds of a lease here: renewals each 0.67 s, jeopardy at 1.33 s."""


@pytest.fixture
def titen(agent: Agent) -> Iterator[Titen]:
    with Titen(agent.url, agent.secret, retry_for=5) as client:
        yield client


@pytest.fixture
def proxy(web: Server) -> Iterator[Proxy]:
    with Proxy(web.port) as proxy:
        yield proxy


@pytest.fixture
def far(agent: Agent, proxy: Proxy) -> Iterator[Titen]:
    """`agent`, reaching the server through the proxy."""
    with Titen(proxy.url, agent.secret, timeout=2, retry_for=5) as client:
        yield client


def renewals(agent: Agent, lease: HeldLease) -> int:
    count: int = agent.get(f"/leases/{lease.lease_id}")["renewal_count"]
    return count


def sent(proxy: Proxy, method: str) -> int:
    return sum(line.startswith(method) for line in proxy.requests)


def lost_in(block: Callable[[], None]) -> LeaseLost:
    """What leaving a block whose lease was lost raises."""
    with pytest.raises(LeaseLost) as raised:
        block()
    return raised.value


def test_a_lease_is_renewed_while_its_block_runs_and_released_at_its_end(
    titen: Titen, agent: Agent, other: Agent
) -> None:
    with titen.lease("deploy", "checkout", ttl_seconds=TTL, purpose="smoke") as lease:
        assert lease.epoch == 1
        until(lambda: renewals(agent, lease) >= 2, "two renewals")
        lease.guard()
        assert str(lease.state) == "held"
        other.refused("CONFLICT", "/leases", named("checkout"))
        signed = jwt.decode(lease.sequencer(), options={"verify_signature": False})
        assert (signed["resource_id"], signed["epoch"]) == ("checkout", 1)
    assert str(lease.state) == "ended"
    assert history(agent) == [(1, "released")]
    with pytest.raises(LeaseLost, match="released already"):
        lease.guard()


def test_an_exception_in_the_block_releases_too_and_is_not_replaced(titen: Titen, agent: Agent) -> None:
    with pytest.raises(ValueError, match="mine"), titen.lease("deploy", "checkout"):
        raise ValueError("mine")
    assert history(agent) == [(1, "released")]


def test_a_busy_resource_is_a_conflict_or_waited_for(titen: Titen, agent: Agent, other: Agent) -> None:
    held = acquire(other)
    with pytest.raises(Conflict) as raised:
        titen.lease("deploy", "checkout")
    assert raised.value.details["expires_at"] == held["expires_at"]
    began = now()
    with pytest.raises(Conflict):
        titen.lease("deploy", "checkout", wait=1)
    assert now() - began >= 0.5
    free = threading.Timer(0.5, lambda: release(other, held))
    free.start()
    with titen.lease("deploy", "checkout", wait=20) as lease:
        assert lease.epoch == 2
    free.join()


def test_several_resources_are_held_together(titen: Titen, agent: Agent, other: Agent) -> None:
    held = acquire(other, "blue")
    with pytest.raises(Conflict):
        titen.lease_all([("deploy", "red"), ("deploy", "blue")])
    release(other, held)
    with titen.lease_all([("deploy", "red"), ("deploy", "blue")], ttl_seconds=TTL) as leases:
        assert [(lease.resource_id, lease.epoch) for lease in leases] == [("red", 1), ("blue", 2)]
        until(lambda: all(renewals(agent, lease) for lease in leases), "renewals of both")
        leases.guard()
    assert history(agent, "red") == [(1, "released")]

    def block() -> None:
        with titen.lease_all([("deploy", "red"), ("deploy", "blue")], ttl_seconds=TTL) as leases:
            other.post(f"/leases/{leases[0].lease_id}/revoke", {"reason": "Enough"})
            until(lambda: leases[0].state is LeaseState.LOST, "the loss")
            with pytest.raises(LeaseLost):
                leases.guard()

    lost_in(block)
    # What was still held is given back all the same.
    assert history(agent, "blue")[-1] == (3, "released")


def test_a_release_whose_answer_was_lost_is_a_release(far: Titen, proxy: Proxy, agent: Agent) -> None:
    with far.lease("deploy", "checkout", ttl_seconds=60) as lease:
        proxy.cut_replies(path="DELETE")
        lease.release()
    assert lease.state is LeaseState.ENDED
    assert proxy.cuts == 1
    assert history(agent) == [(1, "released")]


def test_a_lost_answer_to_acquire_is_repeated_and_gives_one_lease(
    far: Titen, proxy: Proxy, agent: Agent
) -> None:
    proxy.cut_replies(path="POST")
    with far.lease("deploy", "checkout", ttl_seconds=60) as lease:
        lease.guard()
        assert history(agent) == [(1, None)]


def test_a_server_that_is_away_at_the_end_costs_nothing_but_the_rest_of_the_lease(
    far: Titen, proxy: Proxy, agent: Agent
) -> None:
    with far.lease("deploy", "checkout", ttl_seconds=TTL):
        proxy.refuse(times=1000)
    proxy.restore()
    assert history(agent) == [(1, None)]


# R10


def test_one_renewal_that_fails_is_repeated_inside_the_lease(far: Titen, proxy: Proxy, agent: Agent) -> None:
    with far.lease("deploy", "checkout", ttl_seconds=TTL) as lease:
        proxy.refuse(path="PATCH")
        until(lambda: sent(proxy, "PATCH") >= 1, "the refused renewal")
        until(lambda: renewals(agent, lease) >= 1, "the next one")
        assert lease.state is LeaseState.HELD
        lease.guard()


def test_a_partition_is_jeopardy_then_loss_and_nothing_is_acquired_again(
    far: Titen, proxy: Proxy, agent: Agent, other: Agent
) -> None:
    def block() -> None:
        with far.lease("deploy", "checkout", ttl_seconds=TTL) as lease:
            proxy.drop()
            cut = now()
            until(lambda: lease.state is LeaseState.JEOPARDY, "jeopardy")
            with pytest.raises(LeaseInJeopardy):
                lease.guard()
            until(lambda: lease.state is LeaseState.LOST, "loss")
            assert now() - cut <= TTL + 0.5
            with pytest.raises(LeaseLost):
                lease.guard()
            with pytest.raises(LeaseLost):
                lease.renew()
            proxy.restore()
            # By then the server lets others have it too, whatever of ours arrives late.
            until(lambda: other.client.post("/v1/leases", json=named("checkout")).status_code == 201, "B")

    lost_in(block)
    assert sent(proxy, "POST") == 1
    assert history(agent)[-1] == (2, None)


def test_a_refused_renewal_is_a_loss_at_once_and_renewals_stop(
    far: Titen, proxy: Proxy, agent: Agent, other: Agent
) -> None:
    def block() -> None:
        with far.lease("deploy", "checkout", ttl_seconds=TTL) as lease:
            other.post(f"/leases/{lease.lease_id}/revoke", {"reason": "Enough"})
            until(lambda: lease.state is LeaseState.LOST, "loss")
            assert lease.remaining_seconds == 0
            before = sent(proxy, "PATCH")
            time.sleep(TTL)
            assert sent(proxy, "PATCH") == before

    refusal = lost_in(block)
    assert refusal.details == {"reason": "revoked"}
    assert sent(proxy, "DELETE") == 0


SLEEPER = """
import sys
from titen.client import LeaseLost, Titen
with Titen(sys.argv[1], sys.argv[2]) as titen:
    try:
        with titen.lease("deploy", "checkout", ttl_seconds=2) as lease:
            print("held", flush=True)
            sys.stdin.readline()
            lease.guard()
            print("acted", flush=True)
    except LeaseLost:
        print("lost", flush=True)
"""


def test_who_wakes_after_two_ttls_is_stopped_before_it_acts(agent: Agent) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER, agent.url, agent.secret],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2 * TTL)
        # The order to act lies there already when it wakes.
        process.stdin.write("\n")
        process.stdin.flush()
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == "lost\n"


def test_closing_the_client_stops_renewing_and_the_lease_runs_out(agent: Agent) -> None:
    client = Titen(agent.url, agent.secret)
    lease = client.lease("deploy", "checkout", ttl_seconds=TTL).__enter__()
    client.close()
    until(lambda: lease.state is LeaseState.LOST, "loss")
    with pytest.raises((TitenError, RuntimeError)):
        lease.__exit__(None, None, None)


def test_acquiring_twice_in_one_process_loses_the_first(titen: Titen, agent: Agent) -> None:
    def block() -> None:
        first = titen.lease("deploy", "checkout", ttl_seconds=TTL)
        with first, titen.lease("deploy", "checkout", ttl_seconds=TTL) as second:
            assert second.epoch == first.epoch + 1
            until(lambda: first.state is LeaseState.LOST, "loss")
            second.guard()

    assert lost_in(block).details == {"reason": "superseded"}
