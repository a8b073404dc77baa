"""The SDK asks humans about actions, against a real server, and does what they and policy let it do."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from approvals import requests
from approvals.models import Approval, EffectStatus
from coordination import tasks
from coordination.models import Comment
from coordination.sweeping import sweep_batch
from titen.api.doors import transact
from titen.client import (
    AlreadyConsumed,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalRequired,
    ApprovalVoid,
    Conflict,
    DigestMismatch,
    LeaseSuperseded,
    PolicyDenied,
    RateLimited,
    Titen,
)
from titen.client import acting as client_acting

from .acting import rule
from .cast import Agent, Company, Human
from .clockwork import let_lease_run_out, uuid_of
from .deploying import DEPLOY, decide, deployed, deploying, pending, statuses, take_from, working
from .locking import Work, until
from .proxy import Proxy
from .servers import Server

TTL = 2
"""Seconds of a lease here: heartbeats each 0.67 s, jeopardy at 1.33 s."""


@pytest.fixture
def titen(agent: Agent) -> Iterator[Titen]:
    with Titen(agent.url, agent.secret, retry_for=5) as client:
        yield client


@pytest.fixture
def proxy(web: Server) -> Iterator[Proxy]:
    with Proxy(web.port) as proxy:
        yield proxy


@pytest.fixture
def far(agent: Agent, proxy: Proxy) -> Iterator[Titen]:
    """`agent`, reaching the server through the proxy."""
    with Titen(proxy.url, agent.secret, timeout=2, retry_for=5) as client:
        yield client


@pytest.fixture
def allowed(company: Company) -> None:
    """Policy lets deployments happen; they are outward."""
    rule(company, "allow", "deploy")


# Asking about an action


def test_a_grant_lets_exactly_one_thing_happen(titen: Titen, approver: Human) -> None:
    action: Any = {"tool": "deploy", "arguments": DEPLOY}
    with working(titen, TTL) as run:
        with pytest.raises(ApprovalRequired):
            deployed(run)
        asking = Work(lambda: run.ask("Deploy 41?", action=action, risk="high", valid_for_seconds=60))
        approval = pending(run)
        assert (approval.risk, approval.valid_for_seconds) == ("high", 60)
        with pytest.raises(Conflict):
            deployed(run)  # it waits
        decide(approver, approval, "approve", "Go.")
        decision = asking.outcome()
        assert (decision.status, decision.decision, decision.granted) == ("decided", "approve", True)
        with pytest.raises(Conflict, match="approved already"):
            run.ask("Really?", action=action)
        with pytest.raises(DigestMismatch):
            run.authorize("deploy", {**DEPLOY, "build": 42}, effect_key="42", approval=decision)
        with deployed(run, approval=decision) as effect:
            assert effect.record["approval_id"] == decision.approval_id
        for again in (decision, decision.approval_id, None):
            with pytest.raises(AlreadyConsumed):
                deployed(run, effect_key="twice", approval=again)
        run.complete()


def test_a_second_thread_that_asks_the_same_waits_for_the_same(
    far: Titen, proxy: Proxy, approver: Human
) -> None:
    with working(far) as run:
        asking = [Work(lambda: run.ask("Deploy?", action={"tool": "deploy"})) for _ in range(2)]
        approval = pending(run)
        joined = f"GET /v1/approvals/appr_{approval.pk.hex} HTTP"
        until(lambda: any(line.startswith(joined) for line in proxy.requests), "the second one's look")
        decide(approver, approval, "deny")
        assert {work.outcome().approval_id for work in asking} == {f"appr_{approval.pk.hex}"}


@pytest.mark.parametrize("of", ["question", "action"])
def test_what_was_decided_while_nobody_held_the_task_is_the_answer(
    titen: Titen, agent: Agent, approver: Human, of: str
) -> None:
    task = agent.create("Roll out")
    claim = agent.claim(task_id=task["id"])
    fields: Any = {
        "question": {"options": ["Yes", "No"], "context": "Build 40 runs."},
        "action": {"action": {"tool": "deploy", "arguments": {"build": 1}}},
    }[of]
    body = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"], "question": "Deploy?"}
    agent.post("/approvals", {**body, **fields})
    let_lease_run_out(claim)
    sweep_batch(task_id=uuid_of(task["id"]))
    option = {"question": "No", "action": "deny"}[of]
    decide(approver, Approval.objects.get(task_id=uuid_of(task["id"])), option, "Not now.")
    with titen.claim(task_id=task["id"]) as run:  # type: ignore[union-attr]
        other: Any = {
            "question": {**fields, "context": "Build 39 runs."},
            "action": {"action": {"tool": "deploy", "arguments": {"build": True}}},
        }[of]
        another = Work(lambda: run.ask("Deploy?", **other))
        approval = pending(run)  # that was not decided
        decide(approver, approval, option)
        another.outcome()
        decision = run.ask("Deploy?", **fields)
        assert (decision.decision, decision.reason) == (option, "Not now.")
        if of == "question":
            anew = Work(lambda: run.ask("Deploy?", **fields))
            decide(approver, pending(run), "Yes")
            assert anew.outcome().decision == "Yes"
        else:
            with pytest.raises(ApprovalDenied, match="final"):
                run.ask("Deploy?", **fields)
        run.release()
    with titen.claim(task_id=task["id"]) as run:  # type: ignore[union-attr]
        anew = Work(lambda: run.ask("Deploy?", ["Yes", "No"], context="Build 40 runs.", anew=True))
        decide(approver, pending(run), "No")
        anew.outcome()


def test_what_was_answered_while_nobody_held_the_task_is_the_answer(
    titen: Titen, agent: Agent, other: Agent
) -> None:
    task = agent.create("Roll out")
    claim, path = agent.claim(task_id=task["id"]), f"/tasks/{task['id']}/comments"

    def asked(claim: Any) -> str:
        body = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"], "blocking": True}
        return str(agent.post(path, {**body, "body": "Which build?"})["id"])

    question = asked(claim)
    let_lease_run_out(claim)
    sweep_batch(task_id=uuid_of(task["id"]))
    other.post(f"{path}/{question}/answer", {"body": "41"})
    with titen.claim(task_id=task["id"]) as run:  # type: ignore[union-attr]
        answer = run.ask_question("Which build?")
        assert (answer.comment_id, answer.body, answer.answered_by) == (question, "41", "bert")
        for anew in (False, True):
            again = Work(partial(run.ask_question, "Which build?", anew=anew))
            open_one = Comment.objects.filter(task_id=uuid_of(task["id"]), answered_at=None)
            until(open_one.exists, "another question")
            other.post(f"{path}/cmt_{open_one.get().pk.hex}/answer", {"body": "42"})
            assert again.outcome().body == "42"


# Acting as policy wants it


@pytest.mark.usefixtures("allowed")
def test_what_policy_allows_is_done_without_a_question(titen: Titen) -> None:
    done: list[str] = []
    with working(titen) as run:
        assert deploying(run, done)() == "done"
        run.complete()
    assert len(done) == 1
    assert statuses(run) == ["succeeded"]
    assert not Approval.objects.filter(task_id=uuid_of(run.task["id"])).exists()


def test_what_policy_asks_about_is_done_after_a_humans_word(titen: Titen, approver: Human) -> None:
    done: list[str] = []
    with working(titen, TTL) as run:
        acting = Work(deploying(run, done, context="Build 40 runs.", on_expiry="deny"))
        approval = pending(run)
        assert (approval.question, approval.context) == ("Deploy 41?", "Build 40 runs.")
        assert not done
        decide(approver, approval, "approve")
        assert acting.outcome() == "done"
        approval.refresh_from_db()
        assert approval.status == "consumed"
        # It was used: another time is asked about anew.
        acting = Work(
            lambda: run.act("deploy", DEPLOY, lambda effect: 2, effect_key="2", question="Deploy again?")
        )
        decide(approver, pending(run), "approve")
        assert acting.outcome() == 2
        run.complete()
    assert statuses(run)[-1] == EffectStatus.SUCCEEDED


def test_a_denial_is_final_and_says_why(titen: Titen, approver: Human) -> None:
    done: list[str] = []
    with working(titen) as run:
        acting = Work(deploying(run, done))
        decide(approver, pending(run), "deny", "Not on a Friday.")
        with pytest.raises(ApprovalDenied, match="Not on a Friday") as denied:
            acting.outcome()
        assert denied.value.details["reason"] == "Not on a Friday."
        assert denied.value.details["final"] is True
        with pytest.raises(ApprovalDenied) as denied:
            deploying(run, done)()
        assert (denied.value.details["reason"], denied.value.status) == ("Not on a Friday.", 409)
        run.complete("Not done.")
    assert not done
    assert Approval.objects.filter(task_id=uuid_of(run.task["id"])).count() == 1


def test_when_nobody_decides_in_time_the_fallback_is_named(titen: Titen) -> None:
    with working(titen) as run:
        acting = Work(deploying(run, [], expires_in_seconds=1, on_expiry="deny"))
        with pytest.raises(ApprovalExpired, match="Fall back to “deny”") as expired:
            acting.outcome()
        assert expired.value.details["fallback"] == "deny"


def test_a_question_that_was_taken_back_is_neither(titen: Titen, agent: Agent) -> None:
    with working(titen) as run:
        acting = Work(deploying(run, []))
        approval = pending(run)
        transact(lambda: requests.cancel(agent.caller, approval.pk))
        with pytest.raises(ApprovalVoid):
            acting.outcome()


def test_a_grant_that_was_not_used_in_time_is_asked_for_anew(titen: Titen, approver: Human) -> None:
    with working(titen) as run:
        asking = Work(lambda: run.ask("Deploy?", action={"tool": "deploy", "arguments": DEPLOY}))
        decide(approver, pending(run), "approve")
        asking.outcome()
        Approval.objects.filter(task_id=uuid_of(run.task["id"])).update(valid_for_seconds=0)
        with pytest.raises(ApprovalExpired):
            deployed(run)
    with titen.claim(task_id=run.task["id"]) as run:  # type: ignore[union-attr]
        acting = Work(deploying(run, []))
        decide(approver, pending(run), "approve")
        assert acting.outcome() == "done"


def test_policys_no_is_nobodys_to_overrule(titen: Titen, company: Company) -> None:
    denies = rule(company, "deny", "deploy")
    with working(titen) as run:
        for call in (deploying(run, []), lambda: run.ask("Deploy?", action={"tool": "deploy"})):
            with pytest.raises(PolicyDenied) as denied:
                call()
            assert denied.value.details["rule"]["id"] == f"rule_{denies.pk.hex}"


def test_too_many_questions_are_refused_with_those_that_stand(titen: Titen, claimed: Any, ask: Any) -> None:
    asked = [ask(claimed, question=f"Deploy {n}?")["id"] for n in range(5)]
    body = {"run_id": claimed["run"]["id"], "epoch": 1, "question": "6?", "options": ["Yes", "No"]}
    with pytest.raises(RateLimited) as refused:
        titen.post("/v1/approvals", body)
    assert refused.value.details["pending"] == asked


# A pause


@pytest.mark.usefixtures("allowed")
def test_a_paused_task_is_waited_for(titen: Titen, admin: Human, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_acting, "PAUSED_LOOK", 0.05)
    with working(titen) as run:
        run.wait_while_paused()
        task = uuid_of(run.task["id"])
        transact(lambda: tasks.block(admin.caller, task, sentence="Look at this first.", epoch=run.epoch))
        # No heartbeat has told it; the refusal makes it look.
        acting = Work(deploying(run, []))
        until(lambda: run.paused, "the pause")
        waiting = Work(run.wait_while_paused)
        assert not acting.over
        transact(lambda: tasks.unblock(admin.caller, task))
        assert acting.outcome() == "done"
        waiting.outcome()
        run.complete()
    assert statuses(run)[-1] == "succeeded"


def test_a_pause_that_ends_in_a_takeover_is_a_loss(
    titen: Titen, admin: Human, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_acting, "PAUSED_LOOK", 0.05)

    def taken() -> None:
        with working(titen) as run:
            task = uuid_of(run.task["id"])
            transact(lambda: tasks.block(admin.caller, task, sentence="Look at this.", epoch=run.epoch))
            run.heartbeat()
            assert run.paused
            waiting = Work(run.wait_while_paused)
            take_from(run, admin)
            waiting.outcome()

    with pytest.raises(LeaseSuperseded):
        taken()
