"""A crowd of anonymous logins costs a few threads and one processor, whatever else is asked meanwhile."""

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest

from coordination.passwords import FAILURES_A_MINUTE, ROOM, Gate
from titen.errors import Refused

from .locking import Work, together, until
from .stack import Founded, Stack
from .visitors import TOKEN

CROWD = 80


@pytest.fixture
def firm(stack: Stack) -> Iterator[Founded]:
    firm = stack.found(2, "viewer")
    yield firm
    firm.close()


def anonymous(stack: Stack) -> tuple[httpx.Client, str]:
    client = httpx.Client(base_url=stack.address, timeout=60)
    found = TOKEN.search(client.get("/login").text)
    assert found
    return client, found[1] or found[2]


@pytest.mark.alone
@pytest.mark.parametrize("query", ["", "?wait=1"])
def test_eighty_logins_stall_neither_the_api_nor_who_waits(stack: Stack, firm: Founded, query: str) -> None:
    agent, waiter = firm.agents
    client, token = anonymous(stack)

    def log_in(number: int) -> int:
        fields = {
            "csrfmiddlewaretoken": token,
            "username": f"n{number}{query}@example.org",
            "password": "wrong",
        }
        return client.post(f"/login{query}", data=fields).status_code

    agent.get("/principal")
    with closing(client), ThreadPoolExecutor(CROWD + 1) as pool:
        crowd = [pool.submit(log_in, number) for number in range(CROWD)]
        waiting = pool.submit(waiter.post, "/tasks/claim?wait=20", {})
        took = list[float]()
        while not all(login.done() for login in crowd) or len(took) < 20:
            began = time.monotonic()
            agent.get("/principal")
            took.append(time.monotonic() - began)
        began = time.monotonic()
        made = agent.create()
        assert waiting.result(20)["task"]["id"] == made["id"]
        assert time.monotonic() - began < 2
        answers = Counter(login.result() for login in crowd)
    assert statistics.quantiles(took, n=20)[-1] < 0.6, sorted(took)
    # Each was looked at, or told at once when to come again.
    assert set(answers) <= {200, 429, 503}
    assert answers[200] <= 2 * FAILURES_A_MINUTE


def test_the_room_is_small_and_full_is_full() -> None:
    gate = Gate()
    entered: list[int] = []
    release: list[bool] = []

    def authenticate() -> Any:
        entered.append(1)
        until(lambda: release, "a release")
        return "somebody"

    inside = [Work(lambda: gate.attempt("a", authenticate)) for _ in range(ROOM)]
    until(lambda: gate._inside == ROOM, "a full room")
    with pytest.raises(Refused) as refused:
        gate.attempt("b", authenticate)
    assert (refused.value.code, refused.value.retry_after) == ("OVERLOADED", 2)
    assert len(entered) == 1  # One at a time.
    release.append(True)
    assert [work.outcome() for work in inside] == ["somebody"] * ROOM
    assert gate.attempt("b", lambda: "again") == "again"


def test_an_address_with_many_failures_pauses_before_anything_is_hashed() -> None:
    gate = Gate()
    for _ in range(FAILURES_A_MINUTE):
        assert gate.attempt("a", lambda: None) is None
    hashed: list[int] = []
    for outcome in together(*[lambda: gate.attempt("a", lambda: hashed.append(1))] * 3):
        assert isinstance(outcome, Refused)
        assert (outcome.code, outcome.retry_after) == ("RATE_LIMITED", 60)
    assert not hashed
    assert gate.attempt("b", lambda: "somebody else") == "somebody else"
    gate._minute -= 1
    assert gate.attempt("a", lambda: "a minute later") == "a minute later"
