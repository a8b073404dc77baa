"""The SDK's promises, kept against a stub server over real sockets; R02 and R10 of the cases."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.proxy import Proxy
from tests.stub_server import KEY, Seen, StubServer
from titen.client import (
    Conflict,
    Internal,
    LeaseExpired,
    LeaseInJeopardy,
    LeaseLost,
    LeaseState,
    LeaseSuperseded,
    NotClaimable,
    NotFound,
    Run,
    RunEnded,
    Titen,
    TitenError,
    Unauthenticated,
    Unreachable,
)
from titen.client.errors import for_code
from titen.client.lease_clock import LeaseClock, now
from titen.errors import CODES

pytestmark = pytest.mark.alone

TTL = 1.0
"""Seconds of a lease here: heartbeats each 0.33 s, jeopardy at 0.67 s."""
ENDS = ("/complete", "/fail", "/release")


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer(ttl=TTL) as stub:
        yield stub


@pytest.fixture
def proxy(server: StubServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def titen(server: StubServer) -> Iterator[Titen]:
    with Titen(server.url, KEY, retry_for=5) as client:
        yield client


@pytest.fixture
def far(proxy: Proxy) -> Iterator[Titen]:
    """A client that reaches the server through the proxy."""
    with Titen(proxy.url, KEY, timeout=2, retry_for=5) as client:
        yield client


def until(condition: Callable[[], Any], timeout: float = 10) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.005)


@contextmanager
def leaving_raises(kind: type[BaseException]) -> Iterator[pytest.ExceptionInfo[Any]]:
    """`pytest.raises` around a whole `with run:` block: it is the leaving that raises."""
    with pytest.raises(kind) as info:
        yield info


def claimed(client: Titen, server: StubServer) -> Run:
    server.add_task()
    run = client.claim()
    assert run is not None
    return run


def ends(server: StubServer) -> list[Seen]:
    return [seen for seen in server.sent() if seen.path.endswith(ENDS)]


def in_background(work: Callable[[], Any]) -> "Background":
    return Background(work)


class Background(threading.Thread):
    """`work()` in a thread; `result()` returns what it returned or raises what it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.value: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.value = self.work()
        except BaseException as error:
            self.error = error

    def result(self) -> Any:
        # Longer than the server holds one request: what it says of a wish may come at the end of that.
        self.join(40)
        assert not self.is_alive(), "it is still waiting"
        if self.error is not None:
            raise self.error
        return self.value


# The local clock


def test_jeopardy_begins_at_two_thirds_of_the_ttl_and_loss_at_its_end() -> None:
    at = [0.0]
    clock = LeaseClock(30, sent_at=0, clock=lambda: at[0])
    states = []
    for at[0] in (0, 19.9, 20, 29.9, 30):
        states.append(str(clock.state))
    assert states == ["held", "held", "jeopardy", "jeopardy", "lost"]


def test_an_acknowledgement_counts_from_before_its_heartbeat_was_sent() -> None:
    at = [0.0]
    clock = LeaseClock(30, sent_at=0, clock=lambda: at[0])
    at[0] = 28
    clock.acknowledged(sent_at=10, ttl_seconds=30)
    assert clock.remaining_seconds == 12
    clock.acknowledged(sent_at=5, ttl_seconds=30)
    assert clock.remaining_seconds == 12, "an older heartbeat's answer takes nothing back"


def test_what_was_lost_stays_lost_when_an_acknowledgement_arrives_late() -> None:
    at = [31.0]
    clock = LeaseClock(30, sent_at=0, clock=lambda: at[0])
    clock.acknowledged(sent_at=29, ttl_seconds=30)
    assert clock.state is LeaseState.LOST
    assert clock.remaining_seconds == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the clock that counts suspend is Linux's")
def test_the_time_a_machine_was_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LeaseClock(30, sent_at=now())
    assert clock.remaining_seconds > 29
    awake = time.clock_gettime

    def after_an_hour_asleep(which: int) -> float:
        return awake(which) + (3600 if which == time.CLOCK_BOOTTIME else 0)

    monkeypatch.setattr(time, "clock_gettime", after_an_hour_asleep)
    assert clock.state is LeaseState.LOST


# Holding a lease


def test_a_run_heartbeats_from_its_own_thread_at_a_third_of_the_ttl(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        server.wait_for_requests("/heartbeat", 4)
        assert run.state is LeaseState.HELD
        run.complete("done")
    beats = [seen.at for seen in server.sent("/heartbeat")]
    gaps = [after - before for before, after in pairwise(beats)]
    assert min(gaps) > TTL / 3 * 0.8
    assert all(seen.body == {"epoch": 1} for seen in server.sent("/heartbeat"))


def test_one_failed_renewal_is_retried_inside_the_ttl_and_the_lease_stays_held(
    far: Titen, server: StubServer, proxy: Proxy
) -> None:
    """R10 (1)."""
    states = set()
    with claimed(far, server) as run:
        proxy.refuse(path="/heartbeat")
        failed_at: list[float] = []

        def recovered() -> bool:
            states.add(run.state)
            if not failed_at and any("heartbeat" in line for line in proxy.requests):
                failed_at.append(time.monotonic())
            return len(server.sent("/heartbeat")) >= 2

        until(recovered)
        run.guard()
        run.complete()
    assert states == {LeaseState.HELD}
    assert server.sent("/heartbeat")[0].at - failed_at[0] < TTL / 3, "retried at once, not a beat later"


def test_without_an_answer_it_is_jeopardy_then_lost_by_the_local_clock(
    far: Titen, server: StubServer, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    """R10 (2)."""
    server.add_task()
    changes: list[tuple[LeaseState, float]] = []
    with leaving_raises(LeaseLost) as left, far.claim() as run:  # type: ignore[union-attr]
        server.wait_for_requests("/heartbeat")
        until(lambda: run.remaining_seconds > TTL * 0.8)
        proxy.drop()
        acknowledged_by = now()
        arrived = len(server.sent())
        while (elapsed := now() - acknowledged_by) < 2 * TTL:
            if not changes or changes[-1][0] is not run.state:
                changes.append((run.state, elapsed))
                if run.state is LeaseState.JEOPARDY:
                    with pytest.raises(LeaseInJeopardy):
                        run.guard()
                    with pytest.raises(LeaseInJeopardy):
                        run.complete()
            time.sleep(0.005)
        for call in (run.guard, run.complete, run.release, run.heartbeat, run.progress):
            with pytest.raises(LeaseLost):
                call()
        with pytest.raises(LeaseLost):
            run.fail("too late")
        with pytest.raises(LeaseLost):
            run.comment("too late")
        with pytest.raises(LeaseLost):
            run.ask("Too late?", ["Yes", "No"])
        proxy.restore()
    assert [state for state, _ in changes] == [LeaseState.HELD, LeaseState.JEOPARDY, LeaseState.LOST]
    assert changes[1][1] <= TTL * 2 / 3 + 0.1
    assert changes[2][1] <= TTL + 0.1
    assert left.value.status is None
    late = server.sent()[arrived:]
    assert all(seen.path.endswith("/heartbeat") for seen in late), "no silent re-acquire, no late end"
    assert capfd.readouterr() == ("", "")


def test_a_refused_renewal_is_lost_at_once_and_renewals_stop(titen: Titen, server: StubServer) -> None:
    """R10 (3)."""
    server.always("/heartbeat", 409, "LEASE_SUPERSEDED", reason="takeover")
    with leaving_raises(LeaseSuperseded) as left, claimed(titen, server) as run:
        until(lambda: run.state is not LeaseState.HELD)
        assert run.state is LeaseState.LOST
        assert time.monotonic() - server.sent("/heartbeat")[0].at < TTL / 3, "at once, not by the clock"
        with pytest.raises(LeaseSuperseded):
            run.guard()
        until(lambda: not heartbeat_threads())
    assert left.value.details == {"reason": "takeover"}
    assert len(server.sent("/heartbeat")) == 1
    assert not ends(server)


SLEEPER = """
import sys
from titen.client import LeaseLost, Titen

with Titen(sys.argv[1], sys.argv[2]) as titen:
    try:
        with titen.claim() as run:
            print("claimed", flush=True)
            sys.stdin.readline()
            for call in (run.guard, run.complete):
                try:
                    call()
                except LeaseLost as error:
                    print("refused here", error.status, flush=True)
    except LeaseLost:
        print("left", flush=True)
"""


def test_the_first_guarded_call_after_a_sleep_raises_before_anything_is_sent(server: StubServer) -> None:
    """R10 (4), and R04's zombie that wakes up."""
    server.add_task()
    child = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, server.url, KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            assert child.stdout.readline() == "claimed\n"
            server.wait_for_requests("/heartbeat")
            time.sleep(0.05)  # its answer has been read by then
            os.kill(child.pid, signal.SIGSTOP)
            child.stdin.write("go\n")
            child.stdin.flush()
            before = len(server.sent())
            time.sleep(2 * TTL)
        finally:
            os.kill(child.pid, signal.SIGCONT)
        assert child.stdout.read() == "refused here None\n" * 2 + "left\n"
    assert len(server.sent()) == before


def test_a_renewal_that_hangs_leaves_time_for_another(far: Titen, server: StubServer, proxy: Proxy) -> None:
    server.add_task()
    run = far.claim(ttl_seconds=2)
    assert run is not None
    proxy.hang(path="/heartbeat")
    with run:
        server.wait_for_requests("/heartbeat")
        until(lambda: run.state is LeaseState.HELD)
        run.complete()


def test_a_front_ends_error_page_is_no_refusal(far: Titen, server: StubServer, proxy: Proxy) -> None:
    with claimed(far, server) as run:
        proxy.refuse(path="/heartbeat", status=404)
        until(lambda: any("heartbeat" in line for line in proxy.requests))
        server.wait_for_requests("/heartbeat")
        until(lambda: run.state is LeaseState.HELD)
        run.complete()


def test_a_slow_answer_counts_from_the_sending(far: Titen, server: StubServer, proxy: Proxy) -> None:
    server.add_task()
    run = far.claim(ttl_seconds=30)
    assert run is not None
    proxy.delay(0.3)
    run.heartbeat()
    assert run.remaining_seconds < 29.75
    proxy.restore()
    run.release()


def test_a_claim_that_waited_longer_than_a_heartbeat_is_confirmed_before_it_counts(
    titen: Titen, server: StubServer
) -> None:
    server.grant_delay = 0.6
    with claimed(titen, server) as run:
        assert [seen.path for seen in server.sent("/heartbeat")] == ["/v1/runs/run_1/heartbeat"]
        assert run.remaining_seconds > TTL * 0.6
        run.complete()


def test_a_claim_whose_lease_was_gone_when_its_answer_came_is_lost(titen: Titen, server: StubServer) -> None:
    server.grant_delay = TTL * 1.1
    server.add_task()
    with pytest.raises(LeaseExpired):
        titen.claim()


def test_in_jeopardy_only_completion_and_effects_are_held_back(titen: Titen, server: StubServer) -> None:
    server.add_task()
    run = titen.claim(ttl_seconds=3)
    assert run is not None
    server.always("/heartbeat", 503, "OVERLOADED")
    with run:
        until(lambda: run.state is LeaseState.JEOPARDY)
        for held_back in (run.guard, run.complete):
            with pytest.raises(LeaseInJeopardy) as error:
                held_back()
            assert error.value.status is None
        run.comment("The network is slow.")
        run.progress(50, "waiting for the network")
        run.release("network")
    assert [seen.path for seen in ends(server)] == ["/v1/runs/run_1/release"]


def test_a_good_heartbeat_ends_jeopardy(titen: Titen, server: StubServer) -> None:
    run = claimed(titen, server)
    until(lambda: run.state is LeaseState.JEOPARDY)
    run.heartbeat()
    assert run.state is LeaseState.HELD
    run.complete()


# Leaving the block


def test_leaving_without_completing_releases_the_task(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        pass
    assert run.outcome == "released"
    assert server.runs["run_1"].status == "released"
    assert server.tasks[0].status == "todo"


def test_an_exception_fails_the_run_with_its_text(titen: Titen, server: StubServer) -> None:
    with leaving_raises(ZeroDivisionError), claimed(titen, server) as run:
        run.progress(40, "dividing")
        raise ZeroDivisionError("by\x00zero \ud800")
    attempt = server.runs["run_1"]
    assert attempt.status == "failed"
    assert attempt.body["error"] == "ZeroDivisionError: by\ufffdzero \ufffd"
    assert attempt.status_line == "dividing", "the next attempt can read how far it was"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_releases_the_task(
    titen: Titen, server: StubServer, interruption: type[BaseException]
) -> None:
    with leaving_raises(interruption), claimed(titen, server):
        raise interruption
    assert server.runs["run_1"].status == "released"


def test_an_error_in_a_lost_run_stays_what_it_is_and_nothing_is_sent(
    titen: Titen, server: StubServer
) -> None:
    server.always("/heartbeat", 409, "TASK_CANCELLED")
    with leaving_raises(ZeroDivisionError) as left, claimed(titen, server) as run:
        until(lambda: run.state is LeaseState.LOST)
        raise ZeroDivisionError
    assert "TASK_CANCELLED" in "".join(left.value.__notes__)
    assert not ends(server)


def test_an_error_that_cannot_be_reported_stays_what_it_is(titen: Titen, server: StubServer) -> None:
    server.script("/fail", 404, "NOT_FOUND")
    with leaving_raises(ZeroDivisionError) as left, claimed(titen, server):
        raise ZeroDivisionError
    assert "NOT_FOUND" in "".join(left.value.__notes__)


def test_a_run_ends_once(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        run.complete("done", result={"n": 1}, evidence=["log"])
        for call in (run.complete, run.guard, run.release, run.heartbeat):
            with pytest.raises(RunEnded):
                call()
        assert run.state is LeaseState.ENDED
    assert [seen.body for seen in ends(server)] == [
        {"epoch": 1, "summary": "done", "result": {"n": 1}, "evidence": ["log"]}
    ]


def test_closing_the_client_stops_its_threads(server: StubServer) -> None:
    server.add_task()
    client = Titen(server.url, KEY)
    run = client.claim()
    assert run is not None
    run.__enter__()
    assert heartbeat_threads()
    client.close()
    assert not heartbeat_threads()
    with pytest.raises(RuntimeError, match="closed"):
        client.principal()


def heartbeat_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("titen ")]


# Lost answers


def test_a_claim_whose_answer_was_lost_is_the_same_claim_when_repeated(
    far: Titen, server: StubServer, proxy: Proxy
) -> None:
    """R02 (a)."""
    for _ in range(3):
        server.add_task()
    proxy.cut_replies(path="/claim")
    run = far.claim()
    assert run is not None
    assert proxy.cuts == 1
    assert (run.id, run.epoch) == ("run_1", 1)
    assert [task.status for task in server.tasks] == ["in_progress", "todo", "todo"]
    keys = {seen.key for seen in server.sent("/claim")}
    assert len(keys) == 1
    assert None not in keys
    run.release()
    assert far.claim() is not None
    assert len({seen.key for seen in server.sent("/claim")}) == 2, "another call has another key"


def test_a_completion_whose_answer_was_lost_is_a_success_not_a_lost_lease(
    far: Titen, server: StubServer, proxy: Proxy
) -> None:
    with claimed(far, server) as run:
        proxy.cut_replies(times=2, path="/complete")
        run.complete("done")
    assert run.outcome == "completed"
    assert proxy.cuts == 2
    assert len({seen.key for seen in server.sent("/complete")}) == 1


def test_a_heartbeat_refused_beside_a_completion_does_not_lose_it(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        server.always("/complete", 503, "OVERLOADED")
        server.always("/heartbeat", 409, "ALREADY_COMPLETED")
        completion = in_background(run.complete)
        server.wait_for_requests("/heartbeat")
        server.no_longer("/complete")
        completion.result()
        assert run.state is LeaseState.ENDED


def test_a_completion_repeated_by_hand_after_no_answer_is_the_same_call(server: StubServer) -> None:
    with Titen(server.url, KEY, retry_for=0) as client, claimed(client, server) as run:
        server.script("/complete", 503, "OVERLOADED")
        with pytest.raises(TitenError, match="OVERLOADED"):
            run.complete("done")
        run.complete("done")
    first, second = server.sent("/complete")
    assert first.key == second.key


# Errors and retries


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_the_server_has_a_class_of_its_own(titen: Titen, server: StubServer, code: str) -> None:
    kind = for_code(code)
    assert kind is not TitenError
    assert kind.code == code
    server.script("/principal", CODES[code].status, code, field="x")
    with Titen(server.url, KEY, retry_for=0) as client, pytest.raises(kind) as error:
        client.principal()
    assert type(error.value) is kind
    assert (error.value.code, error.value.status) == (code, CODES[code].status)
    assert error.value.details == {"field": "x"}
    assert error.value.request_id == "req_1"


def test_a_code_that_is_new_to_the_sdk_is_a_plain_error(titen: Titen, server: StubServer) -> None:
    server.script("/principal", 418, "TEAPOT")
    with pytest.raises(TitenError) as error:
        titen.principal()
    assert type(error.value) is TitenError
    assert str(error.value) == "TEAPOT: Refused as TEAPOT."


def test_what_the_server_refuses_is_not_repeated(titen: Titen, server: StubServer) -> None:
    with pytest.raises(NotFound):
        titen.task("task_9")
    assert len(server.sent("/task_9")) == 1


@pytest.mark.parametrize(
    ("status", "code", "details"),
    [(503, "OVERLOADED", {}), (500, "INTERNAL", {}), (409, "CONFLICT", {"reason": "in_flight"})],
)
def test_what_may_pass_is_repeated_under_one_key(
    titen: Titen, server: StubServer, status: int, code: str, details: dict[str, str]
) -> None:
    server.script("/tasks", status, code, times=2, **details)
    task = titen.create_task("Tidy up", priority=5)
    assert task["priority"] == 5
    assert len(server.sent("/tasks")) == 3
    assert len({seen.key for seen in server.sent("/tasks")}) == 1


def test_another_conflict_is_not_repeated(titen: Titen, server: StubServer) -> None:
    server.script("/tasks", 409, "CONFLICT", state="done")
    with pytest.raises(Conflict):
        titen.create_task("Tidy up")
    assert len(server.sent("/tasks")) == 1


def test_retry_after_is_respected(titen: Titen, server: StubServer) -> None:
    server.script("/principal", 429, "RATE_LIMITED", retry_after=1)
    titen.principal()
    first, second = server.sent("/principal")
    assert second.at - first.at >= 1


def test_a_retry_after_beyond_the_patience_ends_the_call_at_once(titen: Titen, server: StubServer) -> None:
    server.script("/principal", 503, "OVERLOADED", retry_after=600)
    began = time.monotonic()
    with pytest.raises(TitenError) as error:
        titen.principal()
    assert time.monotonic() - began < 1
    assert error.value.retry_after == 600


def test_no_server_is_unreachable(server: StubServer) -> None:
    with Proxy(server.port) as gone:
        url = gone.url
    with Titen(url, KEY, retry_for=0) as client, pytest.raises(Unreachable):
        client.principal()


def test_a_wrong_key_is_told_and_never_shown(server: StubServer) -> None:
    with Titen(server.url, "titen_sk_wrong") as client:
        with pytest.raises(Unauthenticated) as error:
            client.claim()
        assert "titen_sk_wrong" not in repr(client) + str(error.value) + repr(vars(client))


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host", "http://"])
def test_a_base_url_that_cannot_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        Titen(url, KEY)


# Progress and pause


def test_progress_is_sent_at_once_then_at_most_each_second(titen: Titen, server: StubServer) -> None:
    server.add_task()
    run = titen.claim(ttl_seconds=300)
    assert run is not None
    with run:
        for percent in range(50):
            run.progress(percent, f"step {percent}\nof 50")
        server.wait_for(lambda: server.runs["run_1"].progress == 49)
        run.progress(status="x" * 500)
        server.wait_for(lambda: len(server.runs["run_1"].status_line) == 200)
        run.complete()
    beats = server.sent("/heartbeat")
    assert len(beats) <= 3
    assert all(after.at - before.at > 0.9 for before, after in pairwise(beats))
    assert any(seen.body.get("status") == "step 49 of 50" for seen in beats)


def test_progress_never_waits_for_the_server(far: Titen, server: StubServer, proxy: Proxy) -> None:
    server.add_task()
    run = far.claim(ttl_seconds=30)
    assert run is not None
    with run:
        proxy.drop()
        began = time.monotonic()
        for percent in range(100):
            run.progress(percent)
        assert time.monotonic() - began < 0.5
        proxy.restore()
        run.complete()


@pytest.mark.parametrize("percent", [-1, 101, True, 5.5, "5"])
def test_progress_out_of_range_is_told_to_its_caller(titen: Titen, server: StubServer, percent: Any) -> None:
    with claimed(titen, server) as run:
        with pytest.raises(ValueError, match="0 to 100"):
            run.progress(percent)
        run.complete()


def test_a_status_line_that_the_server_refuses_does_not_cost_the_lease(
    titen: Titen, server: StubServer
) -> None:
    with claimed(titen, server) as run:
        server.script("/heartbeat", 400, "VALIDATION_ERROR")
        run.progress(10, "something it does not like")
        server.wait_for_requests("/heartbeat", 2)
        assert run.state is LeaseState.HELD
        assert server.sent("/heartbeat")[1].body == {"epoch": 1}
        run.complete()


def test_a_pause_is_told_and_ends(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        assert not run.paused
        server.directives = ["pause"]
        until(lambda: run.paused)
        server.directives = []
        until(lambda: not run.paused)
        run.complete()


# Asking humans


def test_asking_waits_for_the_decision_and_heartbeats_meanwhile(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        asking = in_background(
            lambda: run.ask("Roll back?", ["Roll back", "Keep"], expires_in_seconds=60, context="Build 7")
        )
        server.wait_for(lambda: server.approvals)
        server.wait_for_requests("/heartbeat", len(server.sent("/heartbeat")) + 4)
        server.decide("appr_1", "Roll back")
        decision = asking.result()
        assert (decision.status, decision.decision) == ("decided", "Roll back")
        assert run.state is LeaseState.HELD
        assert run.epoch == 1
        run.complete()
    assert server.approvals["appr_1"]["context"] == "Build 7"
    assert "wait" in server.sent("/appr_1")[0].query


@pytest.mark.parametrize("status", ["expired", "cancelled"])
def test_an_approval_that_nobody_decided_is_not_a_denial(
    titen: Titen, server: StubServer, status: str
) -> None:
    with claimed(titen, server) as run:
        asking = in_background(lambda: run.ask("Roll back?", ["Yes", "No"]))
        server.wait_for(lambda: server.approvals)
        server.decide("appr_1", None, status)
        decision = asking.result()
        assert (decision.status, decision.decision) == (status, None)


def test_a_run_parked_while_it_asked_is_claimed_again_by_its_task(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        server.add_task()
        asking = in_background(lambda: run.ask("Roll back?", ["Yes", "No"]))
        server.wait_for(lambda: server.approvals)
        server.always("/heartbeat", 503, "OVERLOADED")
        until(lambda: run.state is LeaseState.LOST)
        server.no_longer("/heartbeat")
        server.wait_for_expiry("run_1")
        assert server.runs["run_1"].status == "parked"
        server.decide("appr_1", "No")
        assert asking.result().decision == "No"
        assert (run.id, run.epoch, run.task["id"]) == ("run_2", 2, "task_1")
        assert run.state is LeaseState.HELD
        server.wait_for(lambda: any(seen.path == "/v1/runs/run_2/heartbeat" for seen in server.seen))
        run.complete()
    assert server.sent("/claim")[-1].body == {"task_id": "task_1", "ttl_seconds": 1}
    assert server.tasks[0].status == "done"


def test_a_task_that_cannot_be_claimed_again_is_lost(server: StubServer) -> None:
    with (
        Titen(server.url, KEY, retry_for=0.2) as client,
        leaving_raises(LeaseLost) as left,
        claimed(client, server) as run,
    ):
        asking = in_background(lambda: run.ask("Roll back?", ["Yes", "No"]))
        server.wait_for(lambda: server.approvals)
        server.always("/heartbeat", 409, "LEASE_EXPIRED")
        until(lambda: run.state is LeaseState.LOST)
        server.always("/claim", 409, "NOT_CLAIMABLE")
        server.decide("appr_1", "Yes")
        asking.result()
    assert isinstance(left.value.__cause__, NotClaimable)


def test_a_takeover_while_asking_is_a_lost_lease_and_no_claim(titen: Titen, server: StubServer) -> None:
    with leaving_raises(LeaseSuperseded), claimed(titen, server) as run:
        asking = in_background(lambda: run.ask("Roll back?", ["Yes", "No"]))
        server.wait_for(lambda: server.approvals)
        server.end("run_1", "superseded", "todo")
        server.decide("appr_1", None, "cancelled")
        asking.result()
    assert len(server.sent("/claim")) == 1


def test_a_blocking_question_waits_for_its_answer(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        asking = in_background(lambda: run.ask_question("Which branch?"))
        server.wait_for(lambda: server.comments)
        server.answer("cmt_1", "main")
        answer = asking.result()
        assert (answer.body, answer.answered_by) == ("main", "Ada")
        run.complete()
    sent = server.sent("/comments")[0].body
    assert sent == {"run_id": "run_1", "epoch": 1, "body": "Which branch?", "blocking": True}


def test_a_question_whose_task_was_taken_over_does_not_wait_for_ever(
    titen: Titen, server: StubServer
) -> None:
    with leaving_raises(LeaseLost), claimed(titen, server) as run:
        server.always("/heartbeat", 503, "OVERLOADED")
        asking = in_background(lambda: run.ask_question("Which branch?"))
        until(lambda: run.state is LeaseState.LOST)
        server.end("run_1", "superseded", "in_progress")
        asking.result()


def test_a_question_of_a_run_that_was_ended_is_not_waited_for(titen: Titen, server: StubServer) -> None:
    with leaving_raises(LeaseSuperseded), claimed(titen, server) as run:
        asking = in_background(lambda: run.ask_question("Which branch?"))
        server.wait_for(lambda: server.comments)
        server.end("run_1", "superseded", "blocked")
        asking.result()


def test_a_question_that_was_withdrawn_while_the_run_was_parked_is_lost(
    titen: Titen, server: StubServer
) -> None:
    with leaving_raises(LeaseLost), claimed(titen, server) as run:
        server.always("/heartbeat", 503, "OVERLOADED")
        asking = in_background(lambda: run.ask_question("Which branch?"))
        until(lambda: run.state is LeaseState.LOST)
        server.withdraw("cmt_1")
        asking.result()
    assert len(server.sent("/claim")) == 1


def test_a_front_end_that_ignores_waits_is_polled_not_hammered(titen: Titen, server: StubServer) -> None:
    server.ignores_wait = True
    titen.claim(wait=1)
    with claimed(titen, server) as run:
        asking = in_background(lambda: run.ask("Roll back?", ["Yes", "No"]))
        server.wait_for_requests("/appr_1", 3)
        server.decide("appr_1", "Yes")
        asking.result()
        run.complete()
    for what in ("/claim", "/appr_1"):
        gaps = [after.at - before.at for before, after in pairwise(server.sent(what)[:2])]
        assert min(gaps) > 0.4, what


def test_waiting_for_a_human_outlives_a_restart_of_the_server(server: StubServer, proxy: Proxy) -> None:
    with Titen(proxy.url, KEY, retry_for=0) as client, claimed(client, server) as run:
        proxy.refuse(times=2, path="/appr_1")
        asking = in_background(lambda: run.ask("Roll back?", ["Yes", "No"]))
        server.wait_for(lambda: server.sent("/appr_1"))
        server.decide("appr_1", "Yes")
        assert asking.result().decision == "Yes"
        run.complete()


def test_asking_outside_of_the_block_is_refused(titen: Titen, server: StubServer) -> None:
    run = claimed(titen, server)
    with pytest.raises(RuntimeError, match="Enter the run"):
        run.ask("Roll back?", ["Yes", "No"])
    run.release()


# The worker's loop


def test_a_worker_needs_one_request_for_each_task_after_the_first_claim(
    titen: Titen, server: StubServer
) -> None:
    for _ in range(5):
        server.add_task()
    done: list[str] = []

    def handler(run: Run) -> None:
        done.append(run.task["id"])
        run.complete(f"did {run.task['id']}")

    assert titen.work(handler, capabilities=["python"], ttl_seconds=30, until_empty=True) == 5
    assert done == [f"task_{n}" for n in range(1, 6)]
    paths = [seen.path.rsplit("/", 1)[1] for seen in server.sent()]
    assert paths == ["claim", *["complete"] * 5, "claim"]
    assert server.sent("/complete")[0].body == {
        "epoch": 1,
        "summary": "did task_1",
        "claim_next": True,
        "capabilities": ["python"],
        "ttl_seconds": 30,
    }


def test_a_worker_goes_on_after_a_handler_that_fails(titen: Titen, server: StubServer) -> None:
    for _ in range(2):
        server.add_task()

    def handler(run: Run) -> None:
        if run.epoch == 1:
            raise ZeroDivisionError
        run.complete()

    assert titen.work(handler, until_empty=True) == 2
    assert [run.status for run in server.runs.values()] == ["failed", "succeeded"]


def test_a_worker_that_is_stopped_claims_nothing_more(titen: Titen, server: StubServer) -> None:
    for _ in range(3):
        server.add_task()
    stop = threading.Event()

    def handler(run: Run) -> None:
        stop.set()
        run.complete()

    assert titen.work(handler, stop=stop) == 1
    assert [task.status for task in server.tasks] == ["done", "todo", "todo"]
    assert len(server.runs) == 1


def test_a_worker_gives_back_what_it_has_claimed_ahead(titen: Titen, server: StubServer) -> None:
    for _ in range(2):
        server.add_task()
    stop = threading.Event()

    def handler(run: Run) -> None:
        run.complete()
        stop.set()

    titen.work(handler, stop=stop)
    assert server.runs["run_2"].status == "released"


def test_a_worker_waits_out_an_outage(server: StubServer, proxy: Proxy) -> None:
    stop = threading.Event()

    def handler(run: Run) -> None:
        run.complete()
        stop.set()

    with Titen(proxy.url, KEY, retry_for=0) as client:
        proxy.refuse(times=1)
        server.add_task()
        assert in_background(lambda: client.work(handler, stop=stop, wait=1)).result() == 1


def test_a_worker_with_a_wrong_key_ends(server: StubServer) -> None:
    with Titen(server.url, "titen_sk_wrong") as client, pytest.raises(Unauthenticated):
        client.work(lambda run: None)


def test_a_run_claimed_ahead_that_ran_out_is_not_begun(titen: Titen, server: StubServer) -> None:
    for _ in range(2):
        server.add_task()
    begun: list[str] = []

    def handler(run: Run) -> None:
        begun.append(run.id)
        run.complete()
        if run.epoch == 1:
            assert run.next_run is not None
            following = run.next_run
            until(lambda: following.state is LeaseState.LOST)
            server.wait_for_expiry(following.id)

    titen.work(handler, until_empty=True)
    assert begun == ["run_1", "run_3"]


# The package


def test_the_sdk_imports_neither_django_nor_the_server() -> None:
    code = (
        "import sys, titen.client\n"
        "own = [m for m in sys.modules if m.startswith('titen.') and not m.startswith('titen.client')]\n"
        "assert not own, own\n"
        "assert not any(m.split('.')[0] in ('django', 'rest_framework', 'coordination') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_claiming_waits_for_work_as_long_as_asked(titen: Titen, server: StubServer) -> None:
    assert titen.claim() is None
    assert titen.claim(["python"], wait=1) is None
    assert server.sent("/claim")[-1].query == {"wait": "1"}
    claiming = in_background(lambda: titen.claim(wait=25))
    server.wait_for(lambda: len(server.seen) == 3)
    server.add_task()
    assert claiming.result().id == "run_1"


def test_a_fault_of_the_server_is_told_when_patience_is_over(server: StubServer) -> None:
    server.always("/principal", 500, "INTERNAL")
    with Titen(server.url, KEY, retry_for=0.5) as client, pytest.raises(Internal):
        client.principal()
    assert len(server.sent("/principal")) >= 2
