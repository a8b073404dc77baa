"""What a proxy, a login page or another server answers in Titen's place is no answer: the SDK asks again."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from titen.client import LeaseState, Run, Titen, UnexpectedAnswer
from titen.client.fencing import KeysUnavailable, MemoryEpochs

from .acting import rule
from .cast import Agent, Company
from .deploying import deployed, statuses, working
from .following import log_of, write_events
from .hub import run_hub
from .locking import Work
from .proxy import Proxy
from .recipients import guard_of, issue
from .servers import Server
from .stub_server import KEY, Seen, StubServer

pytestmark = pytest.mark.alone

HTML, JSON = "text/html; charset=utf-8", "application/json"
ENDS = ("/complete", "/fail", "/release")


@dataclass(frozen=True)
class Page:
    status: int
    content_type: str
    body: bytes

    def stands_in(self, proxy: Proxy, path: str, times: int = 1) -> None:
        """For the next requests to `path`, which the server then never sees."""
        proxy.refuse(times, path, status=self.status, body=self.body, content_type=self.content_type)


PAGES = {
    "a missing page": Page(404, HTML, b"<h1>Not found</h1>"),
    "a forbidden page": Page(403, HTML, b"<h1>Forbidden</h1>"),
    "a login page": Page(200, HTML, b"<h1>Log in to the hotel's network</h1>"),
    "a redirect": Page(301, HTML, b""),
    "nothing": Page(200, JSON, b""),
    "no content": Page(204, JSON, b""),
    "JSON of another service": Page(200, JSON, b'{"ok": true}'),
    "JSON data of another service": Page(200, JSON, b'{"data": {"id": 7, "run": null, "lease": null}}'),
    "an error of another service": Page(404, JSON, b'{"error": "no such route"}'),
    "an error that looks like Titen's": Page(
        409, JSON, b'{"error": {"code": "LEASE_EXPIRED", "message": "Over."}}'
    ),
    "a refusal with a status of success": Page(
        200, JSON, b'{"error": {"code": "NOT_FOUND"}, "meta": {"request_id": "req_1"}}'
    ),
    "Titen's words as a page": Page(
        403, HTML, b'{"error": {"code": "FORBIDDEN"}, "meta": {"request_id": "req_1"}}'
    ),
    "bytes": Page(200, JSON, b'{"data": "\xff"}'),
    "brackets": Page(200, JSON, b"[" * 100_000),
}

FEW = [PAGES[name] for name in ("a forbidden page", "a redirect", "an error that looks like Titen's")]


@pytest.fixture(params=PAGES.values(), ids=list(PAGES))
def page(request: pytest.FixtureRequest) -> Page:
    found: Page = request.param
    return found


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer(ttl=30) as stub:
        yield stub


@pytest.fixture
def proxy(server: StubServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def titen(proxy: Proxy) -> Iterator[Titen]:
    """A client that reaches the server through the proxy."""
    with Titen(proxy.url, KEY, timeout=2, retry_for=5) as client:
        yield client


@pytest.fixture
def impatient(proxy: Proxy) -> Iterator[Titen]:
    """The same, which repeats nothing."""
    with Titen(proxy.url, KEY, timeout=2, retry_for=0) as client:
        yield client


def claimed(client: Titen, server: StubServer) -> Run:
    server.add_task()
    run = client.claim()
    assert run is not None
    return run


def ends(server: StubServer) -> list[Seen]:
    return [seen for seen in server.sent() if seen.path.endswith(ENDS)]


def sent(proxy: Proxy, path: str) -> int:
    return sum(path in line for line in proxy.requests)


def test_reads_and_writes_are_repeated_as_after_a_lost_connection(
    titen: Titen, proxy: Proxy, server: StubServer, page: Page
) -> None:
    page.stands_in(proxy, "/principal")
    assert titen.principal()["name"] == "tester"
    page.stands_in(proxy, "/tasks", times=2)
    assert titen.create_task("Tidy up")["title"] == "Tidy up"
    assert (sent(proxy, "/tasks"), len(server.sent("/tasks"))) == (3, 1)


def test_it_is_told_when_patience_is_over(impatient: Titen, proxy: Proxy, page: Page) -> None:
    page.stands_in(proxy, "/principal")
    with pytest.raises(UnexpectedAnswer) as raised:
        impatient.principal()
    assert (raised.value.status, raised.value.request_id) == (page.status, None)


def test_a_heartbeat_answered_by_a_page_does_not_lose_the_lease(
    titen: Titen, proxy: Proxy, server: StubServer, page: Page
) -> None:
    with claimed(titen, server) as run:
        page.stands_in(proxy, "/heartbeat")
        with pytest.raises(UnexpectedAnswer):
            run.heartbeat()
        assert run.state is LeaseState.HELD
        run.complete()


def test_finished_work_is_completed_once_not_failed(
    titen: Titen, proxy: Proxy, server: StubServer, page: Page
) -> None:
    with claimed(titen, server) as run:
        page.stands_in(proxy, "/complete", times=2)
        run.complete("Done.")
    assert run.outcome == "completed"
    assert [seen.path for seen in ends(server)] == ["/v1/runs/run_1/complete"]


def test_a_completion_that_ran_out_of_patience_is_repeated_when_its_block_is_left(
    impatient: Titen, proxy: Proxy, server: StubServer
) -> None:
    def block() -> None:
        with claimed(impatient, server) as run:
            PAGES["a login page"].stands_in(proxy, "/complete")
            run.complete("Done.")

    with pytest.raises(UnexpectedAnswer) as raised:
        block()
    assert "run_1 is completed" in "".join(raised.value.__notes__)
    assert server.runs["run_1"].status == "succeeded"


def test_work_that_cannot_be_reported_is_released_and_no_attempt_is_counted(
    impatient: Titen, proxy: Proxy, server: StubServer, page: Page
) -> None:
    def block() -> None:
        with claimed(impatient, server) as run:
            page.stands_in(proxy, "/complete", times=2)
            run.complete("Done.")

    with pytest.raises(UnexpectedAnswer):
        block()
    assert [seen.path for seen in ends(server)] == ["/v1/runs/run_1/release"]


def test_a_worker_waits_until_the_page_is_gone(
    impatient: Titen, proxy: Proxy, server: StubServer, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("titen.client.worker.PAUSE", 0.01)
    stop = threading.Event()

    def handler(run: Run) -> None:
        run.complete()
        stop.set()

    page.stands_in(proxy, "/claim", times=3)
    server.add_task()
    assert Work(lambda: impatient.work(handler, stop=stop, wait=1)).outcome() == 1
    assert sent(proxy, "/claim") >= 4
    assert [run.status for run in server.runs.values()] == ["succeeded"]


# Against the real server


@pytest.fixture
def far(web: Server) -> Iterator[Proxy]:
    with Proxy(web.port) as proxy:
        yield proxy


def test_an_effect_is_authorized_once_and_no_attempt_is_burnt(
    far: Proxy, agent: Agent, company: Company
) -> None:
    rule(company, "allow", "deploy")
    with Titen(far.url, agent.secret, retry_for=5) as titen, working(titen) as run:
        PAGES["a forbidden page"].stands_in(far, "/effects", times=2)
        far.cut_replies(path="/effects")
        with deployed(run):
            pass
        assert statuses(run) == ["succeeded"]
        run.complete()


def test_a_worker_whose_effects_meet_a_page_releases_and_tries_again(
    far: Proxy, agent: Agent, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("titen.client.worker.PAUSE", 0.01)
    rule(company, "allow", "deploy")
    task = agent.create("Roll out")["id"]

    def handler(run: Run) -> None:
        with deployed(run):
            pass
        run.complete()

    with Titen(far.url, agent.secret, retry_for=0) as titen:
        for page in FEW:
            page.stands_in(far, "/effects")
        titen.work(handler, until_empty=True)
    found: dict[str, Any] = agent.get(f"/tasks/{task}")
    assert (found["status"], found["attempt_count"]) == ("done", 0)


def test_a_recipient_that_fetches_a_page_for_the_keys_calls_no_sequencer_invalid(
    far: Proxy, company: Company, page: Page
) -> None:
    guard = guard_of(company, f"{far.url}/.well-known/jwks.json", epochs=MemoryEpochs())
    page.stands_in(far, "/jwks.json")
    with pytest.raises(KeysUnavailable):
        guard.check(issue(company, 1), resource_type="deploy", resource_id="r")


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub("tests.hub_quick:application") as server:
        yield server
        assert not server.trouble()


def test_a_stream_of_events_is_opened_again_and_misses_nothing(
    hub: Server, agent: Agent, company: Company
) -> None:
    write_events(company, 5)
    before = len(agent.get("/events", params={"limit": 200})["events"])
    with Proxy(hub.port) as proxy, Titen(proxy.url, agent.secret, retry_for=5) as titen:
        seen = []
        pages = iter(FEW)
        for event in islice(titen.events(after="0"), before + len(FEW)):
            seen.append(event["id"])
            if len(seen) >= before and (page := next(pages, None)):
                page.stands_in(proxy, "/events")
                proxy.cut()
                write_events(company, 1)
        assert seen == log_of(company)[: len(seen)]
        assert sent(proxy, "/events") == 1 + 2 * len(FEW)
