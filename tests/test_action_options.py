"""An agent writes the choices that a human has: none of them may mislead about what it does."""

from typing import Any

import pytest

from coordination.models import User

from . import acting
from .cast import Agent, Company, Human
from .effecting import (
    ask,
    authorize,
    decide,
    new_person,
    refused,
    seat,
)


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def approver(company: Company, person: User) -> Human:
    return seat(company, person)


def _granting(value: str, label: str | None = None) -> dict[str, Any]:
    return {"value": value, "grants": True, **({"label": label} if label else {})}


NO = {"value": "leave it", "grants": False}
DECEITS: dict[str, list[Any]] = {
    "deny": [_granting("deny"), NO],
    "Deny": [_granting("Deny"), NO],
    "deny and approve": ["approve", _granting("deny")],
    "zero width inside": [_granting("D\u200beny"), NO],
    "full width": [_granting("Ｄｅｎｙ"), NO],
    "a Cyrillic letter": [_granting("D\u0435ny"), NO],
    "Cyrillic throughout": [_granting("\u0405\u0422\u041e\u0420"), NO],
    "Greek throughout": [_granting("\u039d\u039f"), NO],
    "accents": [_granting("De\u0323n\u0301y"), NO],
    "a dotted accent": [_granting("De\u1e47y"), NO],
    "signs around": [_granting("✗ Deny!"), NO],
    "blanks between": [_granting("d e n y"), NO],
    "a digit": [_granting("N0"), NO],
    "a label that denies": [_granting("go", "Deny"), NO],
    "a label that rejects": [_granting("go", "REJECT"), NO],
    "a label that denies by default": [{"value": "approve", "label": "Deny"}, NO],
    "a value that denies": [_granting("deny", "Go"), NO],
    "no way to refuse": [_granting("approve"), _granting("go on")],
    "one option": ["approve"],
    "nothing that grants": ["deny", "reject"],
    "only strings that do not grant": ["Approve", "Deny"],
    "the same to the eye": ["approve", "deny", "d\u200beny"],
    "the same label to the eye": [
        "approve",
        {"value": "a", "label": "Wait"},
        {"value": "b", "label": "wait"},
    ],
    "an invisible one": ["approve", "\u200b"],
    "an invisible letter": ["approve", "\u3164"],
    "an invisible label": ["approve", {"value": "deny", "label": "\u2800"}],
    "a filler inside": [_granting("D\u3164eny"), NO],
    "blanks around": ["approve", " deny"],
    "a line break": ["approve", "de\nny"],
    "a number": ["approve", 0],
    "grants in words": ["approve", {"value": "deny", "grants": "yes"}],
    "another field": ["approve", {"value": "deny", "grants": False, "default": True}],
}


@pytest.mark.parametrize("options", DECEITS.values(), ids=DECEITS)
def test_options_that_would_mislead_are_refused(agent: Agent, claimed: Any, options: list[Any]) -> None:
    error = agent.refused("VALIDATION_ERROR", "/approvals", acting.request(claimed, options=options))
    assert list(error["details"]["fields"]) == ["options"]
    assert agent.get("/approvals")["approvals"] == []


OPTIONS: dict[str, tuple[list[Any], dict[str, bool]]] = {
    "strings": (["approve", "deny", "later"], {"approve": True, "deny": False, "later": False}),
    "objects": ([_granting("ship it", "Ship"), NO], {"ship it": True, "leave it": False}),
    "granting words that only hold a refusal": (
        [_granting("cancel the subscription"), NO, "nothing to stop"],
        {"cancel the subscription": True, "leave it": False, "nothing to stop": False},
    ),
    "another language": (
        [_granting("Да"), {"value": "Нет", "grants": False}],
        {"Да": True, "Нет": False},
    ),
    "an approve that does not grant": (
        [{"value": "approve", "grants": False}, _granting("run it")],
        {"approve": False, "run it": True},
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_what_grants_is_what_was_said_to_grant(
    agent: Agent, approver: Human, claimed: Any, name: str
) -> None:
    options, grants = OPTIONS[name]
    for option, granted in grants.items():
        action = acting.deploy()
        asked = ask(agent, claimed, action, options=options)
        assert asked["options"] == options
        decide(approver, asked, option)
        assert agent.get(f"/approvals/{asked['id']}")["granted"] is granted
        if granted:
            authorize(agent, claimed, action)
        else:
            refused(agent, "APPROVAL_DENIED", claimed, action)


def test_without_options_a_human_approves_or_denies(agent: Agent, claimed: Any) -> None:
    assert [(each["value"], each["grants"]) for each in ask(agent, claimed)["options"]] == [
        ("approve", True),
        ("deny", False),
    ]


def test_a_question_about_no_action_grants_nothing(agent: Agent, approver: Human, claimed: Any) -> None:
    body = {key: value for key, value in acting.request(claimed).items() if key != "action"}
    bad = {**body, "options": [_granting("approve"), "deny"]}
    assert list(agent.refused("VALIDATION_ERROR", "/approvals", bad)["details"]["fields"]) == ["options"]
    asked = agent.post("/approvals", {**body, "options": ["approve", "deny"]})
    decide(approver, asked)
    refused(agent, "APPROVAL_REQUIRED", claimed)
    refused(agent, "DIGEST_MISMATCH", claimed, approval_id=asked["id"])
