"""Many followers of one hub: what they cost, measured and printed.

python -m pytest tests/test_followers_load.py -s          # 200
TITEN_LONG=1 python -m pytest tests/test_followers_load.py -s   # 1,000
"""

import json
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from .cases.tools import LONG
from .cast import Agent, Company
from .following import STREAM
from .hub import connections_of, eventually, run_hub
from .servers import Server

pytestmark = pytest.mark.alone

FOLLOWERS = 1000 if LONG else 200
PER_KEY = 50
ROUNDS = 60
MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub() as server:
        yield server
        assert not server.trouble()


def memory_of(hub: Server) -> float:
    """MiB of the hub and its children that are theirs alone."""
    process = psutil.Process(hub.process.pid)
    return sum(one.memory_full_info().uss for one in [process, *process.children(recursive=True)]) / MEBIBYTE


class Crowd:
    """Streams read by one thread. `arrivals`: the task of an event -> when it came, once for each stream."""

    def __init__(self, hub: Server, agents: list[Agent]) -> None:
        self.arrivals: dict[str, list[float]] = {}
        self.begun = 0
        self._selector = selectors.DefaultSelector()
        self._rests: dict[socket.socket, bytes] = {}
        address = urlsplit(hub.url)
        for number in range(FOLLOWERS):
            agent = agents[number // PER_KEY]
            client = socket.create_connection((address.hostname, address.port), timeout=20)
            client.sendall(
                f"GET {STREAM}?kind=task.created HTTP/1.1\r\nHost: {address.netloc}\r\n"
                f"Authorization: Bearer {agent.secret}\r\n\r\n".encode()
            )
            self._rests[client] = b""
            self._selector.register(client, selectors.EVENT_READ)

    def read(self, seconds: float) -> None:
        """Take in what comes for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._take(key.fileobj)  # type: ignore[arg-type]

    def _take(self, client: socket.socket) -> None:
        at = time.time()
        data = client.recv(65536)
        assert data, "a stream has ended"
        *lines, self._rests[client] = (self._rests[client] + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                content: dict[str, Any] = json.loads(line[6:])
                if "task_id" in content:
                    self.arrivals.setdefault(content["task_id"], []).append(at)
                else:
                    self.begun += 1

    def close(self) -> None:
        for client in self._rests:
            client.close()


@contextmanager
def crowd(hub: Server, agents: list[Agent]) -> Iterator[Crowd]:
    gathered = Crowd(hub, agents)
    try:
        yield gathered
    finally:
        gathered.close()


def test_many_followers_cost_little_and_hear_soon(hub: Server, company: Company) -> None:
    agents = [company.agent() for _ in range(FOLLOWERS // PER_KEY)]
    writer = company.agent()
    writer.create()
    eventually(lambda: writer.client.get(f"{hub.url}/healthz").status_code == 200)
    base, began = memory_of(hub), time.monotonic()
    with crowd(hub, agents) as followers:
        while followers.begun < FOLLOWERS:
            followers.read(0.1)
            assert time.monotonic() < began + 60
        opened = time.monotonic() - began
        sent: dict[str, float] = {}
        for _ in range(ROUNDS):
            at = time.time()
            sent[writer.create()["id"]] = at
            followers.read(0.1)
        followers.read(1)
        states, grown = connections_of(hub), memory_of(hub) - base
    delays = sorted(at - sent[task] for task, times in followers.arrivals.items() for at in times)
    assert {len(times) for times in followers.arrivals.values()} == {FOLLOWERS}
    assert set(followers.arrivals) == set(sent)
    median, p95 = delays[len(delays) // 2], delays[len(delays) * 95 // 100]
    print(
        f"\n{FOLLOWERS} followers: opened in {opened:.1f} s, {grown:.1f} MiB above {base:.0f},"
        f" {len(states)} connections, {ROUNDS} events to each: median {median * 1000:.0f} ms,"
        f" p95 {p95 * 1000:.0f} ms, longest {delays[-1] * 1000:.0f} ms"
    )
    assert grown < 100
    assert len(states) <= 9
    assert p95 < 0.5
