"""A grant that nobody has used can be withdrawn by who may decide it, with a reason; against a use one of both wins."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from approvals import decisions, effects
from approvals.actions import Action
from coordination import tasks
from coordination.models import Task
from titen.api.doors import transact
from titen.errors import Refused

from . import acting
from .cases.tools import at_once
from .cast import Agent, Company
from .clockwork import uuid_of
from .effecting import age, authorize, counters, effect_events, refused
from .locking import Work, wait_until_blocked
from .passing import end
from .scenes import Scene, Stage, make_scene, set_stage
from .servers import Server
from .sessions import People
from .test_deadlocks import deadlocks

REASON = "The freeze began."


@pytest.fixture(scope="module")
def stage(web: Server) -> Iterator[Stage]:
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


@pytest.fixture
def granted(claimed: Any, decide: Callable[..., Any]) -> Any:
    """What `agent` asked for under `claimed` and was granted."""
    return decide(claimed, acting.DEPLOY)


def _path(approval: Any) -> str:
    return f"/v1/approvals/{approval['id']}/withdraw"


# Who, and what it does


def test_who_may_decide_withdraws_with_a_reason(
    company: Company, agent: Agent, claimed: Any, granted: Any, people: People
) -> None:
    for role in ("viewer", "operator"):
        assert people[role].post(_path(granted), {"reason": REASON}).status_code == 403
    agent.refused("FORBIDDEN", f"/approvals/{granted['id']}/withdraw", {"reason": REASON})
    for bad in ({}, {"reason": ""}, {"reason": REASON, "option": "deny"}):
        assert people["approver"].post(_path(granted), bad).status_code == 400
    assert agent.get(f"/approvals/{granted['id']}") == granted
    answer = people["approver"].post(_path(granted), {"reason": REASON})
    assert answer.status_code == 200, answer.text
    shown = answer.json()["data"]
    assert (shown["status"], shown["granted"], shown["withdrawal_reason"]) == ("void", True, REASON)
    assert shown["withdrawn_by_user_id"] == granted["decided_by_user_id"]
    assert agent.get(f"/approvals/{granted['id']}") == shown
    assert effect_events(claimed) == ["approval.voided"]
    assert Task.objects.get(pk=uuid_of(claimed["task"]["id"])).unused_grants == 0


def test_the_agent_is_told_why_and_may_ask_again(
    agent: Agent, claimed: Any, granted: Any, people: People, decide: Callable[..., Any]
) -> None:
    people["approver"].post(_path(granted), {"reason": REASON})
    for more in ({}, {"approval_id": granted["id"]}):
        details = refused(agent, "APPROVAL_VOID", claimed, **more)["details"]
        assert (details["reason"], details["withdrawal_reason"]) == ("withdrawn", REASON)
    again = decide(claimed, acting.DEPLOY)
    assert authorize(agent, claimed)["approval_id"] == again["id"]


def _pending(agent: Agent, claimed: Any, decide: Callable[..., Any]) -> Any:
    return agent.post("/approvals", acting.request(claimed))


def _denied(agent: Agent, claimed: Any, decide: Callable[..., Any]) -> Any:
    return decide(claimed, acting.deploy(), "deny")


def _used(agent: Agent, claimed: Any, decide: Callable[..., Any]) -> Any:
    granted = decide(claimed, acting.DEPLOY)
    authorize(agent, claimed)
    return granted


def _not_used_in_time(agent: Agent, claimed: Any, decide: Callable[..., Any]) -> Any:
    granted = decide(claimed, acting.DEPLOY)
    age(granted, 3600)
    return granted


def _of_a_done_task(agent: Agent, claimed: Any, decide: Callable[..., Any]) -> Any:
    granted = decide(claimed, acting.DEPLOY)
    end(agent, claimed, "complete")
    return granted


NOTHING_TO_WITHDRAW = {
    "pending": _pending,
    "decided": _denied,
    "consumed": _used,
    "decided, too late": _not_used_in_time,
    "void": _of_a_done_task,
}


@pytest.mark.parametrize("state", NOTHING_TO_WITHDRAW)
def test_only_a_grant_that_can_be_used_is_withdrawn(
    agent: Agent, claimed: Any, decide: Callable[..., Any], people: People, state: str
) -> None:
    approval = NOTHING_TO_WITHDRAW[state](agent, claimed, decide)
    before = agent.get(f"/approvals/{approval['id']}")
    answer = people["approver"].post(_path(approval), {"reason": REASON})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "CONFLICT")
    assert error["details"]["state"] == state.partition(",")[0]
    assert agent.get(f"/approvals/{approval['id']}") == before


@pytest.mark.parametrize("state", ["held_and_blocked_by_hand", "released"])
def test_it_is_withdrawn_while_the_task_is_stopped_or_nobody_holds_it(stage: Stage, state: str) -> None:
    scene = make_scene(stage, "approved")
    if state == "released":
        scene.send("release")
    else:
        scene.by_human(tasks.block, sentence="Stop.")
    assert _withdraw(scene).status == "void"


def test_the_board_offers_it_and_shows_what_became_of_it(
    agent: Agent, claimed: Any, granted: Any, people: People
) -> None:
    page, task = f"/approvals/{granted['id']}", f"/tasks/{claimed['task']['id']}"
    assert "not used yet" in people["approver"].client.get(task).text
    assert "Withdraw this grant" in people["approver"].client.get(page).text
    assert "Withdrawing it needs the role approver" in people["operator"].client.get(page).text
    form = {"reason": REASON}
    assert people["operator"].htmx("POST", f"{page}/withdraw", form, page=page).status_code == 403
    assert people["approver"].htmx("POST", f"{page}/withdraw", {"reason": " "}, page=page).status_code == 400
    answer = people["approver"].htmx("POST", f"{page}/withdraw", form, page=page)
    assert answer.status_code == 200
    assert "Withdrawn." in answer.text
    shown = people["viewer"].client.get(page).text
    assert REASON in shown
    assert "withdrew it before it was used" in shown
    assert "not used yet" not in people["approver"].client.get(task).text
    again = people["approver"].htmx("POST", f"{page}/withdraw", form, page=page)
    assert again.status_code == 409


# Against a use at the same moment


def _withdraw(scene: Scene) -> Any:
    key = uuid_of(scene.approval["id"])
    return transact(lambda: decisions.withdraw(scene.stage.human.caller, key, reason=REASON))


def _use(scene: Scene) -> Any:
    action = scene.action
    return transact(
        lambda: effects.authorize(
            scene.stage.holder.caller,
            run_id=uuid_of(scene.claim["run"]["id"]),
            epoch=scene.claim["lease"]["epoch"],
            action=Action(action["tool"], action["server"], action["arguments"]),
            effect_key="deploy",
        )
    )


WORKS: dict[str, Callable[[Scene], Any]] = {"withdraw": _withdraw, "use": _use}
# first -> the code of the second, how the approval ends, and the counters
WINS = {"withdraw": ("APPROVAL_VOID", "void", (0, 0)), "use": ("CONFLICT", "consumed", (1, 1))}


@pytest.mark.parametrize("first", WORKS)
def test_the_first_of_a_use_and_a_withdrawal_wins(
    stage: Stage, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, status, after = WINS[first]
    scene, before = make_scene(stage, "approved"), deadlocks()
    (second,) = set(WORKS) - {first}
    with transaction.atomic():
        _in_this_transaction(first, scene, monkeypatch)
        late = Work(lambda: WORKS[second](scene))
        wait_until_blocked()
    with pytest.raises(Refused) as no:
        late.outcome()
    assert no.value.code == code
    assert stage.holder.get(f"/approvals/{scene.approval['id']}")["status"] == status
    assert counters(scene.claim) == after
    assert Task.objects.get(pk=scene.task).unused_grants == 0
    assert deadlocks() == before


def _in_this_transaction(name: str, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule without the door's transaction."""
    with monkeypatch.context() as patch:
        patch.setattr(f"{__name__}.transact", lambda work: work())
        WORKS[name](scene)


def test_of_many_uses_and_withdrawals_at_once_exactly_one_wins(stage: Stage) -> None:
    before = deadlocks()
    for _ in range(3):
        scene = make_scene(stage, "approved")
        found = at_once(["use", "withdraw"] * 4, lambda name, scene=scene: _code(scene, name))  # type: ignore[misc]
        assert found.count(None) == 1, found
        status = stage.holder.get(f"/approvals/{scene.approval['id']}")["status"]
        assert counters(scene.claim) == ((1, 1) if status == "consumed" else (0, 0))
    assert deadlocks() == before


def _code(scene: Scene, name: str) -> str | None:
    try:
        WORKS[name](scene)
    except Refused as no:
        return no.code
    finally:
        connection.close()
    return None
