"""A script that starts again does not act again: its effect_key says what an earlier attempt has done."""

from collections.abc import Iterator
from typing import Any

import pytest

from titen.client import Conflict, DoneAlready, Titen

from .acting import DEPLOY, PUBLISH, effect, effects_of, rule
from .cast import Agent, Company, Human
from .clockwork import let_lease_run_out, pass_time
from .deploying import DEPLOY as ARGUMENTS
from .deploying import deployed, deploying, statuses, working
from .effecting import ask as asked
from .effecting import counters, decide, reconcile, report

KEY = {"effect_key": "deploy build 41"}


@pytest.fixture
def titen(agent: Agent) -> Iterator[Titen]:
    with Titen(agent.url, agent.secret, retry_for=5) as client:
        yield client


@pytest.fixture
def approver(company: Company) -> Human:
    return company.human("approver")


@pytest.fixture
def done(agent: Agent, approver: Human, claimed: Any) -> Any:
    """A deployment that a human approved and that succeeded; its attempt crashed after that."""
    decide(approver, asked(agent, claimed))
    made = agent.post("/effects", effect(claimed, **KEY))
    report(agent, made, note="Build 41 runs.")
    let_lease_run_out(claimed)
    return agent.get(f"/effects/{made['id']}")


def test_the_next_attempt_is_told_that_it_is_done(
    agent: Agent, other: Agent, claimed: Any, done: Any
) -> None:
    """Whoever makes it: nothing is recorded, no grant is needed, and the task can be completed."""
    for worker in (agent, other):
        again = worker.claim(task_id=claimed["task"]["id"])
        answer = worker.send("POST", "/effects", effect(again, **KEY))
        assert (answer.status_code, answer.json()["data"]) == (200, done)
        assert counters(again) == (0, 0)
        let_lease_run_out(again)
    assert [each["id"] for each in effects_of(agent)] == [done["id"]]


def test_an_approval_that_is_named_is_not_used(
    agent: Agent, approver: Human, claimed: Any, done: Any
) -> None:
    again = agent.claim(task_id=claimed["task"]["id"])
    decide(approver, asked(agent, again))
    (unused,) = [each for each in agent.get("/approvals")["approvals"] if each["status"] == "decided"]
    assert agent.post("/effects", effect(again, approval_id=unused["id"], **KEY)) == done
    assert agent.get(f"/approvals/{unused['id']}")["status"] == "decided"
    # Another key is another act, and uses it.
    assert agent.post("/effects", effect(again))["approval_id"] == unused["id"]


def test_who_has_no_standing_is_not_told(agent: Agent, other: Agent, claimed: Any, done: Any) -> None:
    agent.refused("LEASE_EXPIRED", "/effects", effect(claimed, **KEY))
    again = other.claim(task_id=claimed["task"]["id"])
    agent.refused("NOT_HOLDER", "/effects", effect(again, **KEY))
    other.post(f"/runs/{again['run']['id']}/jeopardy", {"epoch": 2})
    other.refused("LEASE_IN_JEOPARDY", "/effects", effect(again, **KEY))


def test_the_same_key_for_another_action_says_so(agent: Agent, claimed: Any, done: Any) -> None:
    again = agent.claim(task_id=claimed["task"]["id"])
    another = {**DEPLOY, "arguments": {"build": 42}}
    error = agent.refused("CONFLICT", "/effects", effect(again, another, **KEY))
    assert "another action" in error["message"]
    assert "new effect_key" in error["message"]
    sent = error["details"].pop("sent")
    assert error["details"] == {
        "effect_id": done["id"],
        "state": "succeeded",
        "used_for": done["action_digest"],
    }
    assert sent not in (done["action_digest"], None)


# What came of the effect that used the key -> what the refusal tells to do, which is then possible.
NEXT_STEPS = {
    "authorized": "Report its outcome",
    "unknown": "reconciles it",
    "failed": "new effect_key",
    "compensated": "new effect_key",
}


@pytest.mark.parametrize("state", NEXT_STEPS)
def test_a_key_that_is_not_done_says_what_to_do(
    company: Company, agent: Agent, approver: Human, claimed: Any, state: str
) -> None:
    rule(company, "allow", PUBLISH["tool"])
    made = agent.post("/effects", effect(claimed, PUBLISH, **KEY))
    for outcome in {"compensated": ["succeeded", "compensated"], "authorized": []}.get(state, [state]):
        report(agent, made, outcome)
    error = agent.refused("CONFLICT", "/effects", effect(claimed, PUBLISH, **KEY))
    assert error["details"] == {"effect_id": made["id"], "state": state}
    assert NEXT_STEPS[state] in error["message"]
    assert ("Report" in error["message"]) == (state == "authorized")
    match state:
        case "authorized":
            report(agent, made)
        case "unknown":
            reconcile(approver, made)
        case _:
            assert agent.post("/effects", effect(claimed, PUBLISH))["status"] == "authorized"
            return
    assert agent.post("/effects", effect(claimed, PUBLISH, **KEY))["status"] == "succeeded"


# The SDK


def _crashed_after(run: Any) -> None:
    """The process ended after the deed was done; its lease ran out."""
    run.stop()
    let_lease_run_out({"lease": run.lease})
    pass_time(run.task["id"], "backoff_until")


def test_act_calls_nothing_and_asks_nobody_again(company: Company, titen: Titen) -> None:
    rule(company, "allow", "deploy")
    acts: list[str] = []
    run = working(titen)
    assert deploying(run, acts)() == "done"
    _crashed_after(run)
    with titen.claim(task_id=run.task["id"]) as again:  # type: ignore[union-attr]
        (found,) = again.context["effects"]
        assert (found["status"], found["effect_key"]) == ("succeeded", "deploy 41")
        acted = deploying(again, acts)()
        assert isinstance(acted, DoneAlready)
        assert (acted.id, acted.outcome, acted.record["run_id"]) == (acts[0], "succeeded", run.id)
        again.complete()
    assert len(acts) == 1
    assert statuses(run) == ["succeeded"]


def test_a_block_of_what_is_done_does_not_run(company: Company, titen: Titen) -> None:
    rule(company, "allow", "deploy")
    with working(titen) as run:
        with deployed(run) as first:
            pass
        again = deployed(run)
        assert isinstance(again, DoneAlready)
        assert not isinstance(first, DoneAlready)
        with pytest.raises(Conflict, match="succeeded already") as refused, again:
            pytest.fail("the block ran")
        assert refused.value.details == {"effect_id": first.id, "state": "succeeded"}
        assert again.report("compensated", note="Rolled back.")["status"] == "compensated"
        run.complete()


def test_under_a_lease_on_anything_else_too(company: Company, titen: Titen) -> None:
    rule(company, "allow", "deploy")
    for attempt in range(2):
        with titen.lease("deploy", "checkout") as lease:
            made = lease.authorize("deploy", ARGUMENTS, effect_key="deploy 41")
            assert isinstance(made, DoneAlready) == (attempt == 1)
            if attempt == 0:
                made.succeeded()
