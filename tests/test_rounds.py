"""Reopening begins a new round of a task: what was decided, answered, granted or denied before no longer counts."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from coordination import comments
from coordination.models import Task, User
from titen.api.doors import transact
from titen.client import Titen

from . import acting
from .cast import Agent, Company, Human
from .clockwork import uuid_of
from .deploying import decide as decide_pending
from .deploying import pending, working
from .effecting import (
    ask,
    authorize,
    decide,
    deny,
    effect_events,
    grant,
    lift,
    new_person,
    refused,
    reopen,
    seat,
)
from .locking import Work, until
from .passing import end


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def approver(company: Company, person: User) -> Human:
    return seat(company, person)


@pytest.fixture
def titen(agent: Agent) -> Iterator[Titen]:
    with Titen(agent.url, agent.secret, retry_for=5) as client:
        yield client


def _complete(agent: Agent, claim: Any) -> None:
    end(agent, claim, "complete")


def _cancel(agent: Agent, claim: Any) -> None:
    agent.post(f"/tasks/{claim['task']['id']}/cancel")


def _use_up_the_attempts(agent: Agent, claim: Any) -> None:
    end(agent, claim, "fail", error="no network", retryable=False)


ENDS: dict[str, Callable[[Agent, Any], None]] = {
    "completed": _complete,
    "cancelled": _cancel,
    "out of attempts": _use_up_the_attempts,
}


def _again(agent: Agent, human: Human, claim: Any, how: str = "completed") -> Any:
    """The task ends, is reopened and claimed."""
    ENDS[how](agent, claim)
    reopen(human, claim["task"]["id"])
    return agent.claim(task_id=claim["task"]["id"])


# Grants


@pytest.mark.parametrize("how", ENDS)
def test_a_grant_that_nobody_used_ends_with_its_round(
    agent: Agent, approver: Human, claimed: Any, how: str
) -> None:
    granted = grant(agent, approver, claimed)
    claim = _again(agent, approver, claimed, how)
    shown = agent.get(f"/approvals/{granted['id']}")
    assert (shown["status"], shown["round"], shown["decision"]) == ("void", 1, "approve")
    assert effect_events(claimed) == ["approval.voided"]
    refused(agent, "APPROVAL_REQUIRED", claim)
    refused(agent, "APPROVAL_VOID", claim, approval_id=granted["id"])
    assert ask(agent, claim)["round"] == 2


def test_it_ends_with_the_completion_itself(agent: Agent, approver: Human, claimed: Any) -> None:
    used, unused = acting.deploy(), grant(agent, approver, claimed)
    grant(agent, approver, claimed, used)
    done = authorize(agent, claimed, used)
    agent.post(f"/effects/{done['id']}/outcome", {"outcome": "succeeded"})
    end(agent, claimed, "complete")
    assert agent.get(f"/approvals/{unused['id']}")["status"] == "void"
    assert agent.get(f"/approvals/{done['approval_id']}")["status"] == "consumed"
    assert effect_events(claimed)[-1:] == ["approval.voided"]


def test_the_task_counts_its_unused_grants(agent: Agent, approver: Human, claimed: Any) -> None:
    def count() -> int:
        return Task.objects.get(pk=uuid_of(claimed["task"]["id"])).unused_grants

    grant(agent, approver, claimed)
    grant(agent, approver, claimed, acting.deploy())
    deny(agent, approver, claimed, acting.deploy())
    assert count() == 2
    authorize(agent, claimed)
    assert count() == 1


# Decisions and answers


def test_what_was_used_up_in_the_last_round_says_nothing(agent: Agent, approver: Human, claimed: Any) -> None:
    grant(agent, approver, claimed)
    done = authorize(agent, claimed)
    agent.post(f"/effects/{done['id']}/outcome", {"outcome": "succeeded"})
    claim = _again(agent, approver, claimed)
    refused(agent, "APPROVAL_REQUIRED", claim)


@pytest.mark.parametrize("how", ["completed", "out of attempts"])
def test_the_sdk_asks_humans_again_in_a_new_round(
    titen: Titen, agent: Agent, approver: Human, how: str
) -> None:
    with working(titen) as run:
        asking = Work(lambda: run.ask("Go on?", ["Yes", "No"]))
        decide_pending(approver, pending(run), "Yes")
        first = asking.outcome()
        task = run.task["id"]
        if how == "completed":
            run.complete()
        else:
            run.fail("no network", retryable=False)
    reopen(approver, task)
    with titen.claim(task_id=task) as run:  # type: ignore[union-attr]
        # The old one can still be read, with its round.
        (old,) = run.context["approvals"]
        assert (old["id"], old["round"], run.context["round"]) == (first.approval_id, 1, 2)
        asking = Work(lambda: run.ask("Go on?", ["Yes", "No"]))
        decide_pending(approver, pending(run), "No")
        assert asking.outcome().decision == "No"
        run.release()
    # Within the round that decision is the answer to the next attempt.
    with titen.claim(task_id=task) as run:  # type: ignore[union-attr]
        assert run.ask("Go on?", ["Yes", "No"]).decision == "No"


def _answer(human: Human, task_id: str, body: str) -> None:
    def asked() -> Any:
        connection.close_if_unusable_or_obsolete()
        return Task.objects.get(pk=uuid_of(task_id)).comments.filter(blocking=True, answered_at=None).first()

    until(asked, "the question")
    question = asked()
    transact(lambda: comments.answer(human.caller, uuid_of(task_id), question.pk, body=body))


def test_the_sdk_asks_a_question_again_in_a_new_round(titen: Titen, approver: Human) -> None:
    with working(titen) as run:
        asking = Work(lambda: run.ask_question("Which build?"))
        _answer(approver, run.task["id"], "41")
        assert asking.outcome().body == "41"
        task = run.task["id"]
        run.complete()
    reopen(approver, task)
    with titen.claim(task_id=task) as run:  # type: ignore[union-attr]
        assert [(each["answer"], each["round"]) for each in run.context["comments"]] == [("41", 1)]
        asking = Work(lambda: run.ask_question("Which build?"))
        _answer(approver, task, "42")
        assert asking.outcome().body == "42"


def test_a_question_that_was_open_belongs_to_the_round_in_which_it_is_decided(
    agent: Agent, approver: Human, claimed: Any
) -> None:
    asked = ask(agent, claimed)
    end(agent, claimed, "fail", error="no network", retryable=False)
    reopen(approver, claimed["task"]["id"])
    decide(approver, asked)
    claim = agent.claim(task_id=claimed["task"]["id"])
    assert agent.get(f"/approvals/{asked['id']}")["round"] == 2
    assert authorize(agent, claim)["approval_id"] == asked["id"]


# Denials


def test_a_denial_holds_no_longer_on_the_reopened_task(
    agent: Agent, other: Agent, approver: Human, claimed: Any
) -> None:
    denied = deny(agent, approver, claimed)
    claim = _again(agent, approver, claimed)
    refused(agent, "APPROVAL_REQUIRED", claim)
    assert ask(agent, claim)["status"] == "pending"
    # Elsewhere it holds on for who asked, until its day is over or it is lifted.
    agent.create("Another task")
    elsewhere = agent.claim()
    assert refused(agent, "APPROVAL_DENIED", elsewhere)["details"]["approval_id"] == denied["id"]
    lift(approver, denied)
    refused(agent, "APPROVAL_REQUIRED", elsewhere)


def test_a_denial_of_the_new_round_holds(agent: Agent, approver: Human, claimed: Any) -> None:
    deny(agent, approver, claimed)
    claim = _again(agent, approver, claimed)
    second = deny(agent, approver, claim)
    assert refused(agent, "APPROVAL_DENIED", claim)["details"]["approval_id"] == second["id"]
