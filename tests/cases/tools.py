"""What the cases share: a crowd that starts together, people with sessions, processes that obey."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import httpx
import psycopg
from django.conf import settings

from coordination.sweeping import sweep
from tests.cast import Agent
from tests.processes import eventually
from tests.servers import REPOSITORY

LONG = bool(os.environ.get("TITEN_LONG"))


def together[T](works: Sequence[Callable[[], T]]) -> list[T]:
    """Do all of it at the same moment, each in a thread; the results in order. The first error is raised."""
    barrier = threading.Barrier(len(works))
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            barrier.wait(30)
            results[number] = works[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "somebody never came back"
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(works))]


def at_once[S, T](items: Sequence[S], work: Callable[[S], T]) -> list[T]:
    """Do `work` for every item at the same moment."""
    return together([partial(work, item) for item in items])


def spread(items: Iterable[Any], work: Callable[[Any], Any], *, threads: int = 8) -> list[Any]:
    """Do `work` for every item, in a few threads."""
    queue = list(enumerate(items))
    results: dict[int, Any] = {}
    lock = threading.Lock()

    def one() -> None:
        while True:
            with lock:
                if not queue:
                    return
                number, item = queue.pop()
            results[number] = work(item)

    together([one] * threads)
    return [results[number] for number in sorted(results)]


def race(works: Sequence[tuple[Agent, str, Any]]) -> list[httpx.Response]:
    """POST all of it at the same moment, each over its agent's connection. Shapes are not looked at here."""
    return at_once(works, lambda work: work[0].client.post(f"/v1{work[1]}", json=work[2]))


def events_of(agent: Agent, **query: Any) -> list[dict[str, Any]]:
    """All events that match, page by page."""
    found: list[dict[str, Any]] = []
    cursor = "0"
    while True:
        page = agent.get("/events", params={**query, "after": cursor, "limit": 200})
        if page["cursor"] == cursor:
            return found
        found += page["events"]
        cursor = page["cursor"]


def swept(agent: Agent, run_id: str) -> dict[str, Any]:
    """Sweep until a run is over; the run."""

    def over() -> dict[str, Any] | None:
        sweep()
        run: dict[str, Any] = agent.get(f"/runs/{run_id}")
        return run if run["ended_at"] else None

    run = eventually(over)
    assert run
    return run


def waiting_for_locks(text: str) -> int:
    """How many statements that hold `text` wait for somebody's lock now."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND strpos(query, %s) > 0 AND pid <> pg_backend_pid()"
    )
    # As the owner, and anew: within a transaction the view stands still.
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        row = connection.execute(query, [text]).fetchone()
        return int(row[0]) if row else 0


class Obedient:
    """A process of `tests.cases.puppet` that does what its standard input says, line by line."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cases.puppet", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, **what: Any) -> None:
        """Tell it to do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """Its next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait()}"
        return json.loads(line)

    def ask(self, **what: Any) -> Any:
        """Order and answer."""
        self.order(**what)
        return self.hear()

    def send(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Have an agent process send a POST; status and `data` or `error`."""
        answer = self.ask(do="send", path=f"/v1{path}", body=body or {})
        content = answer["content"] or {}
        return answer["status"], content.get("data") or content.get("error")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """Close its standard input and wait; its exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        return status


@contextmanager
def sweepers(count: int = 1, **environment: str) -> Iterator[list[Obedient]]:
    """Processes that can sweep, ready to; `order(do="sweep", every=…)` starts one."""
    processes = [Obedient("sweeper", **environment) for _ in range(count)]
    try:
        for process in processes:
            assert process.hear() == "ready"
        yield processes
    finally:
        for process in processes:
            process.end()


@contextmanager
def sweeping(every: float = 0.2, **environment: str) -> Iterator[Obedient]:
    """One process that sweeps all along."""
    with sweepers(1, **environment) as (sweeper,):
        sweeper.order(do="sweep", every=every)
        yield sweeper


@contextmanager
def agent_process(agent: Agent) -> Iterator[Obedient]:
    """A process that holds `agent`'s key."""
    process = Obedient("agent", PUPPET_URL=agent.url, PUPPET_KEY=agent.secret)
    try:
        assert process.hear() == "ready"
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.signal(signal.SIGCONT)
        process.end()
