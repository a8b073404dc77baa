"""`kill -9` of every part of the stack, the database too, while agents work: nothing is lost or done twice."""

import os
import signal
import threading
from collections import Counter
from typing import Any

import pytest

from tests.processes import eventually
from tests.stack import Founded, Stack, retried
from titen.client import LeaseLost, Run, Titen, TitenError

from .tools import LONG

pytestmark = pytest.mark.alone

KILLED = ("web", "express", "hub", "worker", "beat", "postgres")
TIMES = 6 if LONG else 2
AGENTS = 6
QUEUE = 10


class Crew:
    """Agents that work with the SDK, and somebody who gives them work."""

    def __init__(self, firm: Founded) -> None:
        self.clients = [Titen(firm.stack.address, agent.secret, retry_for=90) for agent in firm.agents]
        self.stop = threading.Event()
        self.full = threading.Event()
        self.made: list[str] = []
        self.done: list[tuple[str, int]] = []
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self._work, args=(one,)) for one in self.clients[1:]]
        self.threads.append(threading.Thread(target=self._create))
        for thread in self.threads:
            thread.start()

    def _create(self) -> None:
        try:
            while not self.full.is_set():
                if len(self.made) - len(self.done) < QUEUE:
                    task = self.clients[0].create_task(f"Task {len(self.made)}", max_attempts=100)
                    self.made.append(task["id"])
                else:
                    self.full.wait(0.02)
        except BaseException as error:
            self.errors.append(error)

    def _handle(self, run: Run) -> None:
        run.progress(10, "Begun")
        self.stop.wait(0.1)
        run.progress(90, "Nearly")
        run.complete("Done", result={"epoch": run.epoch})
        self.done.append((run.task["id"], run.epoch))

    def _work(self, titen: Titen) -> None:
        while not self.stop.is_set():
            try:
                titen.work(self._handle, ttl_seconds=10, wait=2, stop=self.stop)
            except (LeaseLost, TitenError):
                continue
            except BaseException as error:
                self.errors.append(error)
                return

    def end(self) -> None:
        """Let the queue run empty, then send everybody home."""
        self.full.set()
        self.threads[-1].join(90)
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        for client in self.clients:
            client.close()
        assert self.errors == []
        assert not any(thread.is_alive() for thread in self.threads)


def statuses(stack: Stack, slug: str) -> dict[str, int]:
    """How many tasks stand in which state."""
    query = (
        "SELECT t.status, count(*) FROM coordination_task t JOIN coordination_organization o"
        " ON o.id = t.organization_id WHERE o.slug = %s GROUP BY t.status"
    )
    return dict(stack.query(query, slug))


def test_agents_finish_everything_once_through_every_kill(stack: Stack) -> None:
    firm = stack.found(AGENTS)
    crew = Crew(firm)
    try:
        for name in KILLED * TIMES:
            before = len(crew.done)
            stack.kill(name)
            eventually(lambda: f"{name} exited with 137" in stack.words)  # noqa: B023
            eventually(stack.answers, within=40)
            # The work goes on before the next one is killed.
            eventually(lambda: len(crew.done) >= before + AGENTS, within=60)  # noqa: B023
        crew.full.set()
        eventually(retried(lambda: statuses(stack, firm.slug) == {"done": len(crew.made)} or None), within=90)
    finally:
        crew.end()
    done_once(stack, firm, crew)


def done_once(stack: Stack, firm: Founded, crew: Crew) -> None:
    """Every task that was made is done, by one run; whoever was told so was told the truth."""
    assert len(crew.made) == len(set(crew.made)) > len(KILLED) * TIMES * AGENTS
    rows: list[Any] = stack.query(
        "SELECT r.task_id, r.epoch FROM coordination_run r JOIN coordination_organization o"
        " ON o.id = r.organization_id WHERE o.slug = %s AND r.status = 'succeeded'",
        firm.slug,
    )
    succeeded = {(f"task_{task.hex}", epoch) for task, epoch in rows}
    assert Counter(task for task, _ in succeeded) == dict.fromkeys(crew.made, 1)
    assert set(crew.done) <= succeeded
    assert len(crew.done) == len(set(crew.done))
    events = stack.query(
        "SELECT e.task_id, count(*) FROM coordination_event e JOIN coordination_organization o"
        " ON o.id = e.organization_id WHERE o.slug = %s AND e.kind = 'task.completed' GROUP BY e.task_id",
        firm.slug,
    )
    assert sorted(f"task_{task.hex}" for task, _ in events) == sorted(crew.made)
    assert {count for _, count in events} == {1}
    assert stack.broken() == {}
    assert stack.trouble() == []


def test_one_web_process_of_several_killed_is_hardly_noticed(stack: Stack) -> None:
    """The worker inside the web server: requests to the others go on, and it comes back by itself."""
    firm = stack.found(1)
    agent = firm.agents[0]
    web = eventually(lambda: stack.pid("web"))
    assert web
    workers = children(web)
    assert len(workers) > 1
    os.kill(workers[0], signal.SIGKILL)
    eventually(lambda: len(set(children(web)) - {workers[0]}) == len(workers))
    eventually(retried(agent.create))
    assert stack.pid("web") == web
    firm.close()


def children(pid: int) -> list[int]:
    """The processes that one has started."""
    import psutil

    return [child.pid for child in psutil.Process(pid).children()]
