"""Who cancels an approval: the holder of its task; while nobody holds it, who asked."""

from typing import Any

import pytest

from approvals import requests
from titen.api.doors import transact
from titen.errors import Refused

from .cast import Agent
from .clockwork import let_lease_run_out, uuid_of
from .effecting import ask
from .locking import Work, second_connection, wait_until_blocked
from .passing import accept, end, hand_task


def _cancel(approval: Any) -> str:
    return f"/approvals/{approval['id']}/cancel"


@pytest.fixture
def handed(agent: Agent, other: Agent, claimed: Any) -> tuple[Any, Any]:
    """What `agent` asked, and the claim of `other`, who has accepted the task since."""
    offered = hand_task(claimed, agent, other)
    asked = ask(agent, claimed)
    return asked, accept(other, offered)["claim"]


def test_a_former_holder_does_not_wake_the_run_of_the_new_one(
    agent: Agent, other: Agent, handed: tuple[Any, Any]
) -> None:
    asked, claim = handed
    error = agent.refused("NOT_HOLDER", _cancel(asked))
    assert "holds the task now" in error["message"]
    assert agent.get(f"/approvals/{asked['id']}")["status"] == "pending"
    assert other.get(f"/runs/{claim['run']['id']}")["status"] == "waiting"


def test_the_new_holder_does(other: Agent, handed: tuple[Any, Any]) -> None:
    asked, claim = handed
    assert other.post(_cancel(asked))["status"] == "cancelled"
    assert other.get(f"/runs/{claim['run']['id']}")["status"] == "running"


def test_a_stranger_does_not(third: Agent, handed: tuple[Any, Any]) -> None:
    third.refused("FORBIDDEN", _cancel(handed[0]))


@pytest.mark.parametrize("how", ["holds", "was parked", "released"])
def test_who_asked_does_while_nobody_else_holds_the_task(agent: Agent, claimed: Any, how: str) -> None:
    asked = ask(agent, claimed)
    if how == "was parked":
        let_lease_run_out(claimed)
    elif how == "released":
        end(agent, claimed, "release")
    assert agent.post(_cancel(asked))["status"] == "cancelled"


def test_a_handoff_that_is_under_way_is_waited_for(agent: Agent, other: Agent, claimed: Any) -> None:
    offered, asked = hand_task(claimed, agent, other), ask(agent, claimed)
    with second_connection() as lock:
        lock.lock_task(uuid_of(claimed["task"]["id"]))
        accepting = Work(lambda: accept(other, offered))
        wait_until_blocked(lock)
        caller = agent.caller
        late = Work(lambda: transact(lambda: requests.cancel(caller, uuid_of(asked["id"]))))
        wait_until_blocked(lock, count=2)
        lock.commit()
        accepting.outcome()
        with pytest.raises(Refused) as no:
            late.outcome()
    assert no.value.code == "NOT_HOLDER"
