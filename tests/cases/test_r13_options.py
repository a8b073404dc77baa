"""R13: a decision is exactly one of the options that were offered, and those never change."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.acting import ABOUT
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
    "Ship it",  # what a button says is not what it decides
    {"value": "Approve"},
    "0",
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
    ["Approve", {}],
    ["Approve", {"label": "No"}],
    ["Approve", {"value": "No", "surprise": 1}],
    ["Approve", {"value": ""}],
    ["Approve", {"value": None}],
    ["Approve", {"value": 1}],
    ["Approve", {"value": ["No"]}],
    ["Approve", {"value": "No\n"}],
    ["Approve", {"value": " No"}],
    ["Approve", {"value": "x" * 201}],
    ["Approve", {"value": "No", "label": ""}],
    ["Approve", {"value": "No", "label": None}],
    ["Approve", {"value": "No", "label": "x" * 201}],
    ["Approve", {"value": "No", "label": "x" * 1_000_000}],
    ["Approve", {"value": "No", "grants": "false"}],
    ["Approve", {"value": "No", "grants": 0}],
    ["Approve", {"value": "No", "grants": None}],
    ["Approve", {"value": "APPROVE"}],
    ["Approve", {"value": "Ap\u00adprove"}],
    ["Approve", {"value": "Ａpprove"}],
    [{"value": "a", "label": "Go"}, {"value": "b", "label": "Go"}],
    [{"value": "a", "label": "Go"}, {"value": "b", "label": "Go\u2060"}],
    [{"value": "a", "label": "Go on"}, {"value": "b", "label": "GO  ON"}],
    [{"value": str(number)} for number in range(10_000)],
]
# What can be chosen from, but not about an action; or about nothing else.
OF_AN_ACTION = [
    ["Approve", "Deny"],  # 'approve' grants, as it is written
    ["yes", "no"],
    ["approve", {"value": "deny", "grants": True}],
    ["approve", {"value": "Deny", "grants": True}],
    [{"value": "approve", "grants": False}, "deny"],
    [{"value": "go", "grants": True}, {"value": "wait", "label": "Deny", "grants": True}, "later"],
    [{"value": "go", "grants": True}, {"value": "go on", "grants": True}],
]
OF_A_QUESTION = [
    ["Yes", {"value": "No", "grants": False}],
    [{"value": "Yes", "grants": True}, "No"],
]


@pytest.fixture
def session(approver: Human, web: Server) -> Iterator[Session]:
    """An approver, logged in."""
    session = Session(approver, web.url)
    yield session
    session.client.close()


@pytest.mark.parametrize("about", ABOUT)
def test_anything_else_is_refused_and_names_the_options(
    about: str, agent: Agent, claimed: Any, ask: Callable[..., Any], session: Session
) -> None:
    asked = ask(claimed, **ABOUT[about])
    for option in WRONG:
        refused = session.decide(asked, option)
        assert refused.status_code == 400, (option, refused.text)
        error = refused.json()["error"]
        assert error["code"] == "VALIDATION_ERROR"
        told = " ".join(error["details"]["fields"]["option"])
        assert "'Approve', 'Deny'" in told, (option, told)
        if isinstance(option, str):
            assert session.click(asked, option).status_code == 400, option
    missing = session.post(f"/v1/approvals/{asked['id']}/decide", {"shown_digest": asked["digest"]})
    assert missing.status_code == 400
    assert "option" in missing.json()["error"]["details"]["fields"]
    assert agent.get(f"/approvals/{asked['id']}") == asked
    decided = session.decide(asked, "Approve")
    assert decided.json()["data"]["decision"] == "Approve"


CASES = [
    *(("a question", options) for options in [*MALFORMED, *OF_A_QUESTION]),
    *(("an action", options) for options in [*MALFORMED, *OF_AN_ACTION]),
]


@pytest.mark.parametrize(("about", "options"), CASES, ids=lambda part: repr(part)[:30])
def test_malformed_options_are_refused_when_asked(
    about: str, options: Any, agent: Agent, claimed: Any
) -> None:
    error = agent.refused(
        "VALIDATION_ERROR",
        "/approvals",
        {
            "run_id": claimed["run"]["id"],
            "epoch": claimed["lease"]["epoch"],
            "question": "Go?",
            **ABOUT[about],
            "options": options,
        },
    )
    assert list(error["details"]["fields"]) == ["options"]
    assert agent.get("/approvals")["approvals"] == []
    assert agent.get(f"/tasks/{claimed['task']['id']}")["status"] == "in_progress"


def test_a_megabyte_beyond_the_limit_is_too_large(agent: Agent, claimed: Any) -> None:
    body = {"run_id": claimed["run"]["id"], "epoch": 1, "question": "Go?", "options": ["A", "x" * 1_048_576]}
    agent.refused("PAYLOAD_TOO_LARGE", "/approvals", body)


@pytest.mark.parametrize("about", ABOUT)
def test_question_options_and_action_never_change(
    about: str, agent: Agent, claimed: Any, ask: Callable[..., Any], session: Session
) -> None:
    asked = ask(claimed, **ABOUT[about])
    path = f"/approvals/{asked['id']}"
    change = {"options": ["A", "B"], "question": "Else?", "action": {"tool": "else"}}
    for method in ("PUT", "PATCH", "POST", "DELETE"):
        agent.refused("METHOD_NOT_ALLOWED", path, change, method=method)
    assert session.decide(asked, "Approve", options=["Approve", "A"]).status_code == 400
    assert agent.get(path) == asked
    assert session.decide(asked, "Approve").status_code == 200
    words = ("question", "context", "options", "action", "digest", "action_digest")
    assert [agent.get(path)[name] for name in words] == [asked[name] for name in words]
