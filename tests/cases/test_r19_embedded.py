"""R19: the stack as the first command starts it, under more agents than it was tried with."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.cast import Agent
from tests.stack import Stack

from .tools import LONG, at_once, spread

pytestmark = pytest.mark.alone

AGENTS = 16
TASKS = 5000 if LONG else 500
READERS = 4
LONGEST = 600 if LONG else 60


def patiently(send: Callable[[], httpx.Response], shed: list[httpx.Response]) -> httpx.Response:
    """Send again while the server says that it is too busy, as it must: with Retry-After."""
    while (answer := send()).status_code == 503:
        shed.append(answer)
        time.sleep(float(answer.headers["Retry-After"]))
    return answer


def test_16_agents_with_a_board_and_an_admin_beside_them(stack: Stack) -> None:
    firm = stack.found(AGENTS, "viewer", "admin")
    made = {
        task["id"] for task in spread(range(TASKS), lambda n: firm.agents[n % AGENTS].create(f"Task {n}"))
    }
    shed: list[httpx.Response] = []
    over = threading.Event()
    began = time.monotonic()

    def work(agent: Agent) -> list[tuple[str, int]]:
        done: list[tuple[str, int]] = []

        def post(path: str, body: Any) -> httpx.Response:
            return patiently(lambda: agent.client.post(f"/v1{path}", json=body), shed)

        try:
            while time.monotonic() < began + LONGEST:
                answer = post("/tasks/claim", {})
                if answer.status_code == 204:
                    return done
                assert answer.status_code == 200, answer.text
                claim = answer.json()["data"]
                run, epoch = f"/runs/{claim['run']['id']}", {"epoch": claim["lease"]["epoch"]}
                for path, body in (("heartbeat", {"progress": 50, "status": "Half"}), ("complete", {})):
                    answer = post(f"{run}/{path}", {**epoch, **body})
                    assert answer.status_code == 200, answer.text
                done.append((claim["task"]["id"], claim["lease"]["epoch"]))
            return done
        finally:
            over.set()

    def look(session: Any) -> Counter[int]:
        seen: Counter[int] = Counter()
        while not over.is_set():
            seen[session.client.get("/").status_code] += 1
        return seen

    def export(session: Any) -> Counter[int]:
        seen: Counter[int] = Counter()
        paths = re.findall(r'href="(/admin/\w+/\w+/)"', session.client.get("/admin/").text)
        assert len(paths) > 5
        while not over.is_set():
            for path in paths:
                seen[session.client.get(path).status_code] += 1
        return seen

    sessions = [firm.session(0) for _ in range(READERS)] + [firm.session(1)]
    beside: list[Counter[int]] = []
    threads = [
        threading.Thread(target=lambda one=one, do=do: beside.append(do(one)))
        for one, do in zip(sessions, [look] * READERS + [export], strict=True)
    ]
    for thread in threads:
        thread.start()
    done = [pair for pairs in at_once(firm.agents, work) for pair in pairs]
    seconds = time.monotonic() - began
    for thread in threads:
        thread.join(60)
    for session in sessions:
        session.client.close()

    assert Counter(task for task, _ in done) == dict.fromkeys(made, 1)
    assert {epoch for _, epoch in done} == {1}
    pages: Counter[int] = sum(beside, Counter())
    assert set(pages) <= {200, 503}, pages
    assert len(beside) == READERS + 1
    assert pages[200] > READERS
    for answer in shed:
        assert answer.json()["error"]["code"] in ("OVERLOADED", "NOT_READY")
    statuses = stack.query(
        "SELECT t.status, count(*) FROM coordination_task t JOIN coordination_organization o"
        " ON o.id = t.organization_id WHERE o.slug = %s GROUP BY t.status",
        firm.slug,
    )
    assert statuses == [("done", TASKS)]
    print(f"{TASKS} tasks in {seconds:.1f} s, {pages[200]} pages, {len(shed)} requests shed")
    assert stack.broken() == {}
    firm.close()
