"""R13: a decision is exactly one of the options that were offered, and those never change."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cast import Agent, Human
from tests.servers import Server
from tests.sessions import Session

WRONG = [
    "approve",
    "APPROVE",
    "Approve ",
    " Approve",
    "Approve\n",
    "Аpprove",  # its first letter is Cyrillic
    "Approve\u200b",
    "",
    "Maybe",
    "x" * 201,
    None,
    0,
    True,
    ["Approve"],
    {"option": "Approve"},
]
MALFORMED = [
    [],
    ["Approve"],
    ["Approve", "Approve"],
    ["A", "a"],
    ["Straße", "STRASSE"],
    ["Approve", ""],
    ["Approve", "  "],
    ["Approve", " Deny"],
    ["Approve", "Deny\n"],
    ["Approve", 1],
    ["Approve", None],
    ["Approve", ["Deny"]],
    [str(number) for number in range(10_000)],
    ["Approve", "x" * 201],
    ["Approve", "x" * 1_000_000],
    "Approve",
    {"Approve": True},
    None,
]


@pytest.fixture
def session(approver: Human, web: Server) -> Iterator[Session]:
    """An approver, logged in."""
    session = Session(approver, web.url)
    yield session
    session.client.close()


def test_anything_else_is_refused_and_names_the_options(
    agent: Agent, awaiting_approval: Any, session: Session
) -> None:
    for option in WRONG:
        refused = session.decide(awaiting_approval, option)
        assert refused.status_code == 400, (option, refused.text)
        error = refused.json()["error"]
        assert error["code"] == "VALIDATION_ERROR"
        told = " ".join(error["details"]["fields"]["option"])
        assert "'Approve', 'Deny'" in told, (option, told)
    missing = session.post(
        f"/v1/approvals/{awaiting_approval['id']}/decide", {"shown_digest": awaiting_approval["digest"]}
    )
    assert missing.status_code == 400
    assert "option" in missing.json()["error"]["details"]["fields"]
    assert agent.get(f"/approvals/{awaiting_approval['id']}") == awaiting_approval
    decided = session.decide(awaiting_approval, "Approve")
    assert decided.json()["data"]["decision"] == "Approve"


@pytest.mark.parametrize("options", MALFORMED, ids=lambda options: repr(options)[:30])
def test_malformed_options_are_refused_when_asked(
    options: Any, agent: Agent, claimed: Any, ask: Callable[..., Any]
) -> None:
    error = agent.refused(
        "VALIDATION_ERROR",
        "/approvals",
        {
            "run_id": claimed["run"]["id"],
            "epoch": claimed["lease"]["epoch"],
            "question": "Go?",
            "options": options,
        },
    )
    assert list(error["details"]["fields"]) == ["options"]
    assert agent.get("/approvals")["approvals"] == []
    assert agent.get(f"/tasks/{claimed['task']['id']}")["status"] == "in_progress"


def test_a_megabyte_beyond_the_limit_is_too_large(agent: Agent, claimed: Any) -> None:
    body = {"run_id": claimed["run"]["id"], "epoch": 1, "question": "Go?", "options": ["A", "x" * 1_048_576]}
    agent.refused("PAYLOAD_TOO_LARGE", "/approvals", body)


def test_question_and_options_never_change(agent: Agent, awaiting_approval: Any) -> None:
    path = f"/approvals/{awaiting_approval['id']}"
    for method in ("PUT", "PATCH", "POST", "DELETE"):
        agent.refused("METHOD_NOT_ALLOWED", path, {"options": ["A", "B"], "question": "Else?"}, method=method)
    assert agent.get(path) == awaiting_approval
