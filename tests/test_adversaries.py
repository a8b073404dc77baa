"""An agent that wants past the gate: each of its ways is refused as designed, or leads to a human."""

import copy
from typing import Any

import pytest

from coordination.models import Role, User

from . import acting
from .acting import DEPLOY
from .cast import Agent, Company, Human
from .clockwork import let_approval_run_out
from .effecting import (
    READ,
    WIPE,
    ask,
    authorize,
    counters,
    decide,
    deny,
    grant,
    hold,
    list_tools,
    new_person,
    refusals,
    refused,
    seat,
)


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def approver(company: Company, person: User) -> Human:
    return seat(company, person)


@pytest.fixture
def listed(company: Company, approver: Human) -> Company:
    """A company whose tool list knows `READ` as other and `WIPE` as destructive."""
    list_tools(company)
    return company


# It says that what it does is harmless


@pytest.mark.parametrize(
    ("action", "claimed_kind", "kind"),
    [
        (DEPLOY, "other", "outward"),
        (DEPLOY, "destructive", "destructive"),
        (WIPE, "other", "destructive"),
        (WIPE, "outward", "destructive"),
        (READ, "other", "other"),
        (READ, "outward", "outward"),
        (READ, "destructive", "destructive"),
    ],
)
def test_its_word_only_makes_the_kind_stricter(
    listed: Company, agent: Agent, claimed: Any, action: Any, claimed_kind: str, kind: str
) -> None:
    body = {**action, "kind": claimed_kind}
    if kind == "other":
        assert authorize(agent, claimed, body)["kind"] == kind
        return
    refused(agent, "APPROVAL_REQUIRED", claimed, body)
    (kept,) = acting.effects_of(agent)
    assert (kept["kind"], kept["verdict"]["decision"]) == (kind, "ask")
    assert ask(agent, claimed, body)["kind"] == kind


@pytest.mark.parametrize("tool", ["WIPE_VOLUME", "Wipe_Volume", "wipe_volume"])
def test_upper_case_is_no_way_around_what_restricts(
    listed: Company, agent: Agent, claimed: Any, tool: str
) -> None:
    assert ask(agent, claimed, {**WIPE, "tool": tool})["kind"] == "destructive"
    acting.rule(listed, "deny", "wipe*")
    agent.refused("POLICY_DENIED", "/approvals", acting.request(claimed, {**WIPE, "tool": tool}))


@pytest.mark.parametrize("tool", ["READ_FILE", "read_file2", "xread_file", "read_fil"])
def test_what_permits_means_exactly_what_it_says(
    listed: Company, agent: Agent, claimed: Any, tool: str
) -> None:
    acting.rule(listed, "allow", READ["tool"])
    refused(agent, "APPROVAL_REQUIRED", claimed, {**READ, "tool": tool})


@pytest.mark.parametrize("field", ["tool", "server"])
@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "read_file ",
        "read_\u200bfile",
        "re\u0430d_file",
        "ｒead_file",
        "read file",
        "read_file\n",
        "*",
        "-x",
    ],
)
def test_no_tool_or_server_looks_like_another(agent: Agent, claimed: Any, field: str, name: str) -> None:
    body = {**READ, field: name}
    for path, sent in (
        ("/effects", acting.effect(claimed, body)),
        ("/approvals", acting.request(claimed, body)),
    ):
        error = agent.refused("VALIDATION_ERROR", path, sent)
        assert list(error["details"]["fields"]) == ["action"]


@pytest.mark.parametrize(
    ("action", "wished", "risk"),
    [
        (DEPLOY, "low", "medium"),
        (DEPLOY, None, "medium"),
        (DEPLOY, "critical", "critical"),
        (WIPE, "low", "high"),
        (WIPE, "medium", "high"),
        (READ, "low", "low"),
        (READ, "high", "high"),
    ],
)
def test_its_word_only_raises_the_risk(
    listed: Company, agent: Agent, claimed: Any, action: Any, wished: str | None, risk: str
) -> None:
    assert ask(agent, claimed, action, **({"risk": wished} if wished else {}))["risk"] == risk


def test_it_does_not_lower_the_risk_of_a_rule(listed: Company, agent: Agent, claimed: Any) -> None:
    acting.rule(listed, "ask", READ["tool"], risk="critical", required_role=Role.ADMIN)
    asked = ask(agent, claimed, READ, risk="low")
    assert (asked["risk"], asked["required_role"]) == ("critical", "admin")


# It changes what was decided


def _changed(path: str, value: Any) -> dict[str, Any]:
    action = copy.deepcopy({**DEPLOY, "arguments": {"build": 41, "to": {"region": "eu"}, "dry": True}})
    found: Any = action
    *names, last = path.split(".")
    for name in names:
        found = found[name]
    found[last] = value
    return action


CHANGES = {
    "a tool": _changed("tool", "deploy2"),
    "a server": _changed("server", "cluster2"),
    "no server": _changed("server", None),
    "a number": _changed("arguments.build", 42),
    "a text for a number": _changed("arguments.build", "41"),
    "a flag": _changed("arguments.dry", False),
    "something inside": _changed("arguments.to.region", "us"),
    "one more argument": _changed("arguments.force", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_grant_is_for_nothing_else(agent: Agent, approver: Human, claimed: Any, change: str) -> None:
    approved = grant(agent, approver, claimed, _changed("arguments.build", 41))
    error = refused(agent, "DIGEST_MISMATCH", claimed, CHANGES[change], approval_id=approved["id"])
    assert error["details"]["approved"] == approved["action_digest"] != error["details"]["sent"]
    refused(agent, "APPROVAL_REQUIRED", claimed, CHANGES[change])
    authorize(agent, claimed, _changed("arguments.build", 41))


def test_one_character_changed_after_a_denial_is_asked_anew(
    agent: Agent, approver: Human, claimed: Any
) -> None:
    deny(agent, approver, claimed, _changed("arguments.build", 41))
    refused(agent, "APPROVAL_REQUIRED", claimed, CHANGES["a number"])
    # A human sees it again: that is all that the change brings.
    assert ask(agent, claimed, CHANGES["a number"])["status"] == "pending"
    agent.refused("APPROVAL_DENIED", "/approvals", acting.request(claimed, _changed("arguments.build", 41)))


def test_the_same_is_not_asked_twice(agent: Agent, approver: Human, claimed: Any) -> None:
    pending = ask(agent, claimed)
    again = acting.request(claimed, question="Really, may I?", options=["approve", "never"])
    error = agent.refused("APPROVAL_PENDING", "/approvals", again)
    assert error["details"]["approval_id"] == pending["id"]
    decide(approver, pending)
    error = agent.refused("CONFLICT", "/approvals", again)
    assert error["details"]["approval_id"] == pending["id"]


def test_what_policy_denies_is_not_asked(company: Company, agent: Agent, claimed: Any) -> None:
    acting.rule(company, "deny", DEPLOY["tool"])
    error = agent.refused("POLICY_DENIED", "/approvals", acting.request(claimed))
    assert error["details"]["final"] is True
    assert agent.get("/approvals")["approvals"] == []
    assert agent.get(f"/tasks/{claimed['task']['id']}")["status"] == "in_progress"


@pytest.mark.parametrize("verb", ["decide", "lift"])
def test_no_key_decides_anything(agent: Agent, claimed: Any, verb: str) -> None:
    pending = ask(agent, claimed)
    body = {"option": "approve", "shown_digest": pending["digest"]} if verb == "decide" else {}
    agent.refused("FORBIDDEN", f"/approvals/{pending['id']}/{verb}", body)
    assert agent.get(f"/approvals/{pending['id']}")["status"] == "pending"


def test_no_key_reconciles(listed: Company, agent: Agent, claimed: Any) -> None:
    effect = authorize(agent, claimed, READ)
    path = f"/effects/{effect['id']}/reconcile"
    agent.refused("FORBIDDEN", path, {"outcome": "succeeded", "note": "Trust me."})


def test_what_a_human_saw_is_what_was_asked(agent: Agent, approver: Human, claimed: Any) -> None:
    """Whatever cannot be seen is part of the digest, and comes back as it was sent."""
    texts = ["May I?", "May\u200b I?", "May \u202eI?", "May I?\u2066"]
    digests = set()
    for text in texts:
        asked = ask(agent, claimed, acting.DEPLOY, question=text, context=text)
        assert (asked["question"], asked["context"]) == (text, text)
        digests.add(asked["digest"])
        agent.post(f"/approvals/{asked['id']}/cancel")
    assert len(digests) == len(texts)


# It names what is not its own


def test_another_s_run_is_no_ground(agent: Agent, other: Agent, approver: Human, claimed: Any) -> None:
    other.refused("NOT_HOLDER", "/approvals", acting.request(claimed))
    grant(agent, approver, claimed)
    refused(other, "NOT_HOLDER", claimed)
    assert refusals(claimed) == ["NOT_HOLDER"]
    (kept,) = acting.effects_of(agent)
    assert kept["principal_id"] == other.get("/principal")["principal_id"]
    assert counters(claimed) == (0, 0)
    authorize(agent, claimed)


@pytest.mark.parametrize("by", ["itself", "a colleague"])
def test_a_grant_is_not_replayed_on_another_task(
    agent: Agent, other: Agent, approver: Human, claimed: Any, by: str
) -> None:
    granted = grant(agent, approver, claimed)
    who = agent if by == "itself" else other
    claim = hold(who)
    refused(who, "NOT_FOUND", claim, approval_id=granted["id"])
    refused(who, "APPROVAL_REQUIRED", claim)
    assert agent.get(f"/approvals/{granted['id']}")["status"] == "decided"


def test_another_organization_is_answered_like_nobody(
    agent: Agent, elsewhere: Company, approver: Human, claimed: Any
) -> None:
    stranger = elsewhere.agent()
    granted = grant(agent, approver, claimed)
    mine = hold(stranger)
    nobody = f"appr_{'0' * 32}"
    assert refused(stranger, "NOT_FOUND", mine, approval_id=granted["id"]) == refused(
        stranger, "NOT_FOUND", mine, approval_id=nobody
    )
    for path, body in (("/effects", acting.effect(claimed)), ("/approvals", acting.request(claimed))):
        assert stranger.refused("NOT_FOUND", path, body) == stranger.refused(
            "NOT_FOUND", path, {**body, "run_id": f"run_{'0' * 32}"}
        )


# It does not wait


def test_while_it_is_asked_about_nothing_happens(agent: Agent, claimed: Any) -> None:
    """Also once the time for an answer is over and nobody has written that down."""
    pending = ask(agent, claimed)
    for _ in range(2):
        error = refused(agent, "CONFLICT", claimed, approval_id=pending["id"])
        assert error["details"]["state"] == "blocked"
        let_approval_run_out(pending["id"])
