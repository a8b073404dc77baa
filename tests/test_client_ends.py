"""How the SDK ends a run: with the newest progress, through jeopardy and outages, and as failed only when the
work has failed."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from titen.client import (
    ApprovalDenied,
    LeaseInJeopardy,
    LeaseLost,
    LeaseState,
    NotFound,
    Overloaded,
    RateLimited,
    Run,
    Titen,
    TitenError,
    UnexpectedAnswer,
    Unreachable,
    ValidationError,
)

from .locking import until
from .stub_server import KEY, StubServer

pytestmark = pytest.mark.alone

ENDS = ("/complete", "/fail", "/release")


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer(ttl=30) as stub:
        yield stub


@pytest.fixture
def titen(server: StubServer) -> Iterator[Titen]:
    with Titen(server.url, KEY, retry_for=5) as client:
        yield client


def claimed(client: Titen, server: StubServer, **wish: Any) -> Run:
    server.add_task()
    run = client.claim(**wish)
    assert run is not None
    return run


def ends(server: StubServer) -> list[str]:
    return [seen.path.rsplit("/", 1)[1] for seen in server.sent() if seen.path.endswith(ENDS)]


def leaving_raises(client: Titen, server: StubServer, work: Callable[[Run], object]) -> BaseException:
    """What leaves the block of a run in which `work` raises."""
    with pytest.raises(BaseException) as raised, claimed(client, server) as run:  # noqa: PT011
        work(run)
    return raised.value


def throw(error: BaseException) -> Callable[[Run], object]:
    def work(run: Run) -> object:
        raise error

    return work


# The last progress

LAST_WORDS: dict[str, Callable[[Run], object]] = {
    "complete": lambda run: run.complete("Done."),
    "fail": lambda run: run.fail("No disk."),
    "release": lambda run: run.release("Later."),
    "leaving": lambda run: None,
    "an exception": throw(ZeroDivisionError()),
    "Ctrl-C": throw(KeyboardInterrupt()),
    "SIGTERM": throw(SystemExit()),
    "a lost connection": throw(Unreachable("No answer.")),
}


def in_block(run: Run, work: Callable[[Run], object]) -> None:
    """A second report within the second after one that has arrived, then the end."""
    with run:
        run.progress(10, "begun")
        run.heartbeat()
        run.progress(90, "nearly done")
        work(run)


@pytest.mark.parametrize("last_word", LAST_WORDS.values(), ids=LAST_WORDS)
def test_whatever_ends_a_run_brings_the_newest_progress(
    titen: Titen, server: StubServer, last_word: Callable[[Run], object]
) -> None:
    run = claimed(titen, server)
    with contextlib.suppress(ZeroDivisionError, KeyboardInterrupt, SystemExit, Unreachable):
        in_block(run, last_word)
    attempt = server.runs["run_1"]
    assert (attempt.progress, attempt.status_line) == (90, "nearly done")
    assert attempt.status in ("succeeded", "failed", "released")


def test_the_newest_progress_outlives_a_heartbeat_that_fails(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        run.heartbeat()
        server.script("/heartbeat", 503, "OVERLOADED", times=3)
        run.progress(90)
        run.complete()
    assert server.runs["run_1"].progress == 90


def test_the_newest_progress_goes_before_an_offer_whose_taker_ends_the_run(
    titen: Titen, server: StubServer
) -> None:
    with claimed(titen, server) as run:
        run.heartbeat()
        run.progress(90)
        with pytest.raises(NotFound):  # the stub knows no handoffs
            run.hand_off("somebody")
        assert server.runs["run_1"].progress == 90
        run.complete()


def test_a_status_line_that_is_refused_does_not_hold_up_the_end(titen: Titen, server: StubServer) -> None:
    with claimed(titen, server) as run:
        run.heartbeat()
        server.script("/heartbeat", 400, "VALIDATION_ERROR")
        run.progress(90, "something it does not like")
        run.complete()
    assert server.runs["run_1"].status == "succeeded"


def test_without_news_an_end_is_one_request(titen: Titen, server: StubServer) -> None:
    claimed(titen, server).complete()
    assert [seen.path.rsplit("/", 1)[1] for seen in server.sent()] == ["claim", "complete"]


# Jeopardy


@pytest.fixture
def in_jeopardy(titen: Titen, server: StubServer) -> Run:
    """Inside the block of a run whose heartbeats all fail."""
    server.always("/heartbeat", 503, "OVERLOADED")
    run = claimed(titen, server, ttl_seconds=6)
    run._hold.clock._sent_at -= 4.2  # as if it had begun so much earlier
    assert run.state is LeaseState.JEOPARDY
    return run


def test_a_completion_in_jeopardy_is_confirmed_by_a_heartbeat(in_jeopardy: Run, server: StubServer) -> None:
    with in_jeopardy as run:
        with pytest.raises(Overloaded):
            run.heartbeat()
        server.no_longer("/heartbeat")
        run.complete("Done.")
    assert (run.outcome, ends(server)) == ("completed", ["complete"])


def test_a_completion_that_cannot_be_confirmed_is_a_release_never_a_failure(
    in_jeopardy: Run, server: StubServer
) -> None:
    with pytest.raises(LeaseInJeopardy), in_jeopardy as run:
        run.complete("Done.")
    assert (run.outcome, ends(server)) == ("released", ["release"])
    assert server.runs[run.id].status == "released"


def test_jeopardy_that_only_the_server_knows_of_is_ended_by_a_heartbeat(
    titen: Titen, server: StubServer
) -> None:
    server.script("/complete", 409, "LEASE_IN_JEOPARDY", because="declared")
    with claimed(titen, server) as run:
        run.complete("Done.")
    assert [seen.path.rsplit("/", 1)[1] for seen in server.sent()][1:] == [
        "complete",
        "heartbeat",
        "complete",
    ]
    assert len({seen.key for seen in server.sent("/complete")}) == 1


def test_a_server_that_calls_it_jeopardy_for_ever_is_believed(titen: Titen, server: StubServer) -> None:
    server.always("/complete", 409, "LEASE_IN_JEOPARDY")
    error = leaving_raises(titen, server, lambda run: run.complete("Done."))
    assert isinstance(error, LeaseInJeopardy)
    assert ends(server)[-1] == "release"
    assert len(ends(server)) < 10


def test_three_blips_at_the_end_of_finished_work_do_not_block_its_task(
    titen: Titen, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("titen.client.worker.PAUSE", 0.01)
    server.add_task()
    tries = []

    def handler(run: Run) -> None:
        tries.append(run.id)
        if len(tries) <= 3:
            server.always("/heartbeat", 503, "OVERLOADED")
            run._hold.clock._sent_at -= run._hold.clock.ttl_seconds * 0.8
            try:
                run.complete("Done.")
            finally:
                server.no_longer("/heartbeat")
        run.complete("Done.")

    titen.work(handler, ttl_seconds=2, until_empty=True)
    assert [run.status for run in server.runs.values()] == ["released"] * 3 + ["succeeded"]


# What is a failure of the work

NOT_OF_THE_WORK: dict[str, BaseException] = {
    "no answer": Unreachable("No answer."),
    "a proxy's answer": UnexpectedAnswer("502"),
    "a server that is not ready": TitenError("Not ready.", code="NOT_READY", status=503),
    "a fault of the server": TitenError("A fault.", code="INTERNAL", status=500),
    "a limit": RateLimited("Too many."),
    "jeopardy": LeaseInJeopardy("No renewal."),
    "the loss of a lease beside it": LeaseLost("Gone."),
    "a group of these": ExceptionGroup("both", [Unreachable("No answer."), LeaseInJeopardy("No renewal.")]),
}
OF_THE_WORK: dict[str, BaseException] = {
    "an exception of its own": ZeroDivisionError(),
    "a connection of its own": ConnectionError("no printer"),
    "a human's no": ApprovalDenied("No."),
    "a request that is wrong": ValidationError("title"),
    "a group with one of its own": ExceptionGroup("both", [Unreachable("No answer."), ZeroDivisionError()]),
}


@pytest.mark.parametrize(
    ("error", "end"),
    [
        *(pytest.param(error, "release", id=name) for name, error in NOT_OF_THE_WORK.items()),
        *(pytest.param(error, "fail", id=name) for name, error in OF_THE_WORK.items()),
    ],
)
def test_only_a_failure_of_the_work_is_sent_as_one(
    titen: Titen, server: StubServer, error: BaseException, end: str
) -> None:
    assert leaving_raises(titen, server, throw(error)) is error
    assert ends(server) == [end]


def test_a_run_that_cannot_begin_is_released(
    titen: Titen, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = claimed(titen, server)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            run.__enter__()
    assert ends(server) == ["release"]


def _no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


# Outages


@pytest.mark.parametrize("verb", ["complete", "fail", "release", "comment", "authorize"])
def test_a_server_that_takes_no_writes_is_waited_for_as_long_as_the_lease_lives(
    server: StubServer, verb: str
) -> None:
    with Titen(server.url, KEY, retry_for=0) as client, claimed(client, server) as run:
        calls: dict[str, Callable[[], object]] = {
            "complete": run.complete,
            "fail": lambda: run.fail("No disk."),
            "release": run.release,
            "comment": lambda: run.comment("Still here."),
            "authorize": lambda: run.authorize("deploy", effect_key="1"),
        }
        path = {"comment": "/comments", "authorize": "/effects"}.get(verb, f"/{verb}")
        server.script(path, 503, "NOT_READY", times=3, retry_after=0)
        try:
            calls[verb]()
        except NotFound:
            assert verb == "authorize"  # the stub knows no effects
        assert len(server.sent(path)) == 4
        assert len({seen.key for seen in server.sent(path)}) == 1


def test_a_server_that_takes_no_writes_until_the_lease_is_over_ends_the_wait(server: StubServer) -> None:
    server.always("/complete", 503, "NOT_READY", retry_after=0)
    with Titen(server.url, KEY, retry_for=0) as client:
        run = claimed(client, server, ttl_seconds=1)
        with pytest.raises(LeaseLost):
            run.complete()


def test_ctrl_c_does_not_wait_for_a_server_that_is_not_ready(
    titen: Titen, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("titen.client.ending.INTERRUPTED_BUDGET", 0.3)
    server.always("/release", 503, "NOT_READY", retry_after=0)
    error = leaving_raises(titen, server, throw(KeyboardInterrupt()))
    assert "NOT_READY" in "".join(error.__notes__)


def test_a_worker_waits_for_a_server_that_is_not_ready(
    server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("titen.client.worker.PAUSE", 0.01)
    server.script("/claim", 503, "NOT_READY", times=5, retry_after=0)
    server.add_task()
    with Titen(server.url, KEY, retry_for=0) as client:
        assert client.work(lambda run: run.complete(), until_empty=True) == 1


# A limit


def test_a_worker_waits_for_a_human_when_too_many_approvals_are_pending(
    titen: Titen, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("titen.client.worker.ROOM_PAUSE", 0.01)
    pending = [_asked(server, n) for n in range(3)]
    for _ in range(2):
        server.add_task()
    server.script("/approvals", 429, "RATE_LIMITED", retry_after=60, pending=pending)
    begun: list[str] = []

    def handler(run: Run) -> None:
        begun.append(run.id)
        if len(begun) == 1:
            run.ask("May I?", ["Yes", "No"])
        run.complete()

    working = threading.Thread(target=lambda: titen.work(handler, until_empty=True))
    working.start()
    until(lambda: len(server.sent(pending[2])) >= 2, "looks at each of them")
    assert (begun, ends(server)) == (["run_1"], ["release"])
    assert "claim_next" not in server.sent("/release")[0].body
    server.decide(pending[1], "Yes")
    working.join(10)
    assert [run.status for run in server.runs.values()] == ["released", "succeeded", "succeeded"]


def test_a_worker_that_waits_for_a_human_can_be_stopped(
    titen: Titen, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("titen.client.worker.ROOM_PAUSE", 0.01)
    server.add_task()
    pending = [_asked(server, 1)]
    server.always("/approvals", 429, "RATE_LIMITED", retry_after=60, pending=pending)
    stop = threading.Event()
    working = threading.Thread(
        target=lambda: titen.work(lambda run: run.ask("May I?", ["Yes", "No"]), stop=stop)
    )
    working.start()
    server.wait_for_requests(pending[0], 3)
    stop.set()
    working.join(10)
    assert not working.is_alive()
    assert ends(server) == ["release"]


def _asked(server: StubServer, number: int) -> str:
    """An approval that another run of the agent waits for."""
    approval_id = f"appr_{100 + number}"
    server.approvals[approval_id] = {"id": approval_id, "status": "pending", "decision": None}
    return approval_id
