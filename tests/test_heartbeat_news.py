"""A heartbeat tells what is new since the one before: once, by id, without arguments, and bounded."""

from typing import Any

import pytest

from approvals.jobs import expire
from titen.client import Titen

from .acting import deploy, request
from .cast import Agent, Company, Human
from .clockwork import let_approval_run_out, uuid_of
from .effecting import ask, decide
from .locking import Work, second_connection, until, wait_until_blocked, waiting
from .test_hot_statements import Door, sent_by

LONG = "x" * 300_000


@pytest.fixture
def approver(company: Company) -> Human:
    return company.human("approver")


def beat(agent: Agent, claim: Any, **more: Any) -> Any:
    return agent.post(f"/runs/{claim['run']['id']}/heartbeat", {"epoch": claim["lease"]["epoch"], **more})


def told(answer: Any) -> list[str]:
    return [each["id"] for each in answer["resolved_approvals"]]


def question(agent: Agent, claim: Any, text: str = "Which branch?") -> Any:
    body = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"], "blocking": True, "body": text}
    return agent.post(f"/tasks/{claim['task']['id']}/comments", body)


def answer(other: Agent, claim: Any, asked: Any, text: str = "main") -> None:
    other.post(f"/tasks/{claim['task']['id']}/comments/{asked['id']}/answer", {"body": text})


def test_each_decision_is_told_once(agent: Agent, approver: Human, claimed: Any) -> None:
    first, second = ask(agent, claimed, deploy()), ask(agent, claimed, deploy())
    assert told(beat(agent, claimed)) == []
    decide(approver, first, "deny", "Not today.")
    (heard,) = beat(agent, claimed)["resolved_approvals"]
    assert heard == {
        "id": first["id"],
        "status": "decided",
        "action_digest": first["action_digest"],
        "decision": "deny",
        "granted": False,
        "final": True,
        "fallback": None,
        "reason": "Not today.",
        "ended_at": heard["ended_at"],
        "href": f"/v1/approvals/{first['id']}",
    }
    decide(approver, second)
    assert told(beat(agent, claimed)) == [second["id"]]
    assert told(beat(agent, claimed)) == []
    # Each can be read by its id at any time.
    assert agent.get(heard["href"].removeprefix("/v1"))["action"] == first["action"]


def test_each_answer_is_told_once(agent: Agent, other: Agent, claimed: Any) -> None:
    asked = question(agent, claimed)
    assert beat(agent, claimed)["answers"] == []
    answer(other, claimed, asked)
    (heard,) = beat(agent, claimed)["answers"]
    assert (heard["id"], heard["answer"]["body"], heard["answer"]["answered_by"]) == (
        asked["id"],
        "main",
        "bert",
    )
    assert beat(agent, claimed)["answers"] == []


def test_a_lost_answer_is_told_again_since_the_last_one_that_came(
    agent: Agent, other: Agent, approver: Human, claimed: Any
) -> None:
    approval, asked = ask(agent, claimed), question(agent, claimed)
    heard = beat(agent, claimed)["server_time"]
    decide(approver, approval)
    answer(other, claimed, asked)
    lost = beat(agent, claimed)
    assert told(beat(agent, claimed)) == []
    again = beat(agent, claimed, since=heard)
    assert (again["resolved_approvals"], again["answers"]) == (lost["resolved_approvals"], lost["answers"])
    assert told(beat(agent, claimed, since=again["server_time"])) == []
    for wild in ("yesterday", "2026-01-01T00:00:00", 7, None):
        error = agent.refused(
            "VALIDATION_ERROR",
            f"/runs/{claimed['run']['id']}/heartbeat",
            {"epoch": claimed["lease"]["epoch"], "since": wild},
        )
        assert list(error["details"]["fields"]) == ["since"], wild


def test_a_decision_that_commits_late_is_told_by_the_heartbeat_that_waited_for_it(
    agent: Agent, approver: Human, claimed: Any
) -> None:
    """It holds the lease's row from before it reads the clock: no heartbeat comes between the two."""
    approval = ask(agent, claimed)
    with second_connection() as holder:
        holder.run("SELECT FROM approvals_approval WHERE id = %s FOR UPDATE", uuid_of(approval["id"]))
        deciding = Work(lambda: decide(approver, approval))
        wait_until_blocked(holder)
        beating = Work(lambda: beat(agent, claimed))
        until(lambda: waiting() == 2, "the heartbeat's wait")
        holder.commit()
    deciding.outcome()
    assert told(beating.outcome()) == [approval["id"]]
    assert told(beat(agent, claimed)) == []


def test_what_ran_out_is_told_once_whether_or_not_that_is_written_down(agent: Agent, claimed: Any) -> None:
    approval = ask(agent, claimed)
    beat(agent, claimed)
    let_approval_run_out(approval["id"])
    (heard,) = beat(agent, claimed)["resolved_approvals"]
    assert (heard["id"], heard["status"]) == (approval["id"], "expired")
    expire()
    assert agent.get(f"/approvals/{approval['id']}")["ended_at"] == heard["ended_at"]
    assert told(beat(agent, claimed)) == []


def test_long_arguments_are_not_sent(agent: Agent, approver: Human, claimed: Any) -> None:
    asked = [
        ask(agent, claimed, {"tool": "deploy", "arguments": {"of": number, "text": LONG}}, context="y" * 9000)
        for number in range(5)
    ]
    for approval in asked:
        decide(approver, approval)
    path, body = f"/runs/{claimed['run']['id']}/heartbeat", {"epoch": claimed["lease"]["epoch"]}
    sent = agent.send("POST", path, body)
    assert told(sent.json()["data"]) == [each["id"] for each in asked]
    assert len(sent.content) < 5000
    assert told(agent.post(path, body)) == []


def test_many_answers_are_the_newest_and_a_link(agent: Agent, other: Agent, claimed: Any) -> None:
    asked = [question(agent, claimed, f"{number} {'?' * 7000}") for number in range(55)]
    for each in asked:
        answer(other, claimed, each, "!" * 100)
    heard = beat(agent, claimed)
    assert [each["id"] for each in heard["answers"]] == [each["id"] for each in asked[-50:]]
    assert {each["answer"]["body"] for each in heard["answers"]} == {"!" * 100}
    assert [each["body"] is None for each in heard["answers"]].count(False) < 10
    assert (heard["truncated"], list(heard["more"])) == (["answers"], ["answers"])
    rest = agent.get(heard["more"]["answers"].removeprefix("/v1"))["comments"]
    assert {each["id"] for each in rest} == {each["id"] for each in asked}
    first = heard["answers"][0]
    assert agent.get(first["href"].removeprefix("/v1"))["body"].endswith("?" * 7000)


def test_it_costs_one_statement_and_two_for_who_has_asked(agent: Agent, claimed: Any) -> None:
    door, path = Door(agent), f"/runs/{claimed['run']['id']}/heartbeat"
    body = {"epoch": claimed["lease"]["epoch"]}
    assert sent_by(lambda: door.post(path, body)) == ["Execute"]
    agent.post("/approvals", request(claimed))
    assert len(sent_by(lambda: door.post(path, body))) == 3


def test_the_sdk_tells_what_its_own_heartbeats_heard(agent: Agent, approver: Human) -> None:
    with Titen(agent.url, agent.secret) as titen:
        task = titen.create_task("Roll out")
        with titen.claim(task_id=task["id"], ttl_seconds=60) as run:  # type: ignore[union-attr]
            claim = {"run": {"id": run.id}, "lease": {"epoch": run.epoch}}
            approval = ask(agent, claim)
            decide(approver, approval)
            run._hold.beat()  # as the block's thread does
            assert told(run.heartbeat()) == [approval["id"]]
            assert told(run.heartbeat()) == []
            run.complete()
