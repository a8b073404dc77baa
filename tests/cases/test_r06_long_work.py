"""R06: work that lasts many leases and heartbeats is never given to a second agent.

Short: 7 leases long; `TITEN_LONG=1`: 12.
"""

import os
import signal
import threading
import time
from datetime import datetime
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.cast import Agent
from tests.processes import eventually
from tests.servers import run_web

from .tools import LONG, events_of, sweepers

pytestmark = pytest.mark.alone

TTL = 2
LEASES = 12 if LONG else 7


def test_it_is_never_swept_nor_offered_again(agent: Agent, other: Agent) -> None:
    """Through a sweeper each second and its restart, another's steady polling, and a killed web process."""
    task = agent.create()
    stop = threading.Event()
    offered: list[Any] = []

    def poll() -> None:
        while not stop.is_set():
            answer = other.client.post("/v1/tasks/claim", json={})
            if answer.status_code != 204:
                offered.append(answer.text)
            stop.wait(0.1)

    with run_web(workers=2, respawn=True) as server, sweepers(2) as (first, second):
        near = Agent(agent.principal, agent.secret, server.url)
        claim = agent.claim(ttl_seconds=TTL)
        run, epoch = claim["run"]["id"], claim["lease"]["epoch"]
        poller = threading.Thread(target=poll)
        poller.start()
        try:
            expiries = [claim["lease"]["expires_at"]]
            first.order(do="sweep", every=1)
            expiries += heartbeat(near, run, epoch, seconds=TTL * LEASES / 2)
            before = server.workers()
            os.kill(before[0], signal.SIGKILL)
            first.signal(signal.SIGKILL)
            second.order(do="sweep", every=1)
            expiries += heartbeat(near, run, epoch, seconds=TTL * LEASES / 2)
            assert set(server.workers()) != set(before)
            ended = near.post(f"/runs/{run}/complete", {"epoch": epoch})
        finally:
            stop.set()
            poller.join()
            near.close()
    assert offered == []
    assert ended["task"]["status"] == "done"
    assert ended["task"]["attempt_count"] == 0
    moments = [datetime.fromisoformat(text) for text in expiries]
    assert all(earlier < later for earlier, later in pairwise(moments))
    assert (moments[-1] - moments[0]).total_seconds() > TTL * (LEASES - 2)
    assert [found["id"] for found in agent.get("/runs", params={"task": task["id"]})["runs"]] == [run]
    assert [event["kind"] for event in events_of(agent, task_id=task["id"])] == [
        "task.created",
        "task.claimed",
        "task.completed",
    ]


def heartbeat(agent: Agent, run: str, epoch: int, *, seconds: float) -> list[str]:
    """Renew each third of the lease, at once again when a connection breaks; the expiries that were told."""
    expiries: list[str] = []
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:

        def beat() -> str:
            try:
                answer = agent.client.post(f"/v1/runs/{run}/heartbeat", json={"epoch": epoch})
            except httpx.HTTPError:
                return ""
            assert answer.status_code == 200, answer.text
            told: str = answer.json()["data"]["lease"]["expires_at"]
            return told

        expiries.append(eventually(beat, within=TTL))
        time.sleep(max(0.0, TTL / 3 - (time.monotonic() - began)))
    return expiries
