"""Leases on several resources are all held or all given back, wherever acquiring and entering them breaks off."""

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from titen.client import HeldLease, Titen, Unreachable
from titen.client import leases as client_leases

from .cast import Agent
from .leasing import history

NAMES = ("red", "green", "blue")
RESOURCES = [("deploy", name) for name in NAMES]


@pytest.fixture
def titen(agent: Agent) -> Iterator[Titen]:
    with Titen(agent.url, agent.secret, retry_for=5) as client:
        yield client


def raise_at_second(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, error: BaseException) -> None:
    """The second call of `target.name` raises; the others go through."""
    calls, through = count(1), getattr(target, name)

    def call(*arguments: Any, **more: Any) -> Any:
        if next(calls) == 2:
            raise error
        return through(*arguments, **more)

    monkeypatch.setattr(target, name, call)


def ends(agent: Agent) -> list[Any]:
    return [history(agent, name)[-1][1] for name in NAMES]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()], ids=repr)
def test_entering_that_breaks_off_gives_all_of_them_back(
    titen: Titen, agent: Agent, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    leases = titen.lease_all(RESOURCES, ttl_seconds=60)
    raise_at_second(monkeypatch, threading.Thread, "start", error)
    with pytest.raises(type(error)) as raised:
        leases.__enter__()
    assert raised.value is error
    assert ends(agent) == ["released"] * 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("titen lease")]


def test_a_lease_that_cannot_be_confirmed_gives_the_others_back(
    titen: Titen, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_at_second(monkeypatch, client_leases, "confirmed", Unreachable("No answer."))
    with pytest.raises(Unreachable):
        titen.lease_all(RESOURCES, ttl_seconds=60)
    assert ends(agent) == ["released"] * 3


def test_a_single_lease_that_cannot_be_renewed_is_given_back(
    titen: Titen, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = titen.lease("deploy", "checkout", ttl_seconds=60)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            lease.__enter__()
    assert history(agent) == [(1, "released")]


def _no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_leaving_that_breaks_off_gives_the_others_back(
    titen: Titen, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def block() -> None:
        with titen.lease_all(RESOURCES, ttl_seconds=60):
            raise_at_second(monkeypatch, HeldLease, "_leave", KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        block()
    assert ends(agent) == ["released", None, "released"]


def test_entering_a_second_time_is_refused_and_gives_nothing_back(titen: Titen, agent: Agent) -> None:
    with titen.lease_all(RESOURCES, ttl_seconds=60) as leases:
        with pytest.raises(RuntimeError, match="once"):
            leases.__enter__()
        leases.guard()
        assert ends(agent) == [None] * 3
