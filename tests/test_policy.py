"""Policy as a table: rule x kind x flag x rank, a row each. What time and the database decide stands at the end."""

import itertools
from typing import Any
from uuid import UUID

import pytest

from approvals import policy
from approvals.actions import Action
from approvals.models import Decision, Kind, PolicyRule, Risk, ToolEntry
from approvals.policy import Policy
from coordination.models import Organization, Role

from . import acting
from .cast import Agent, Company
from .clockwork import sql, uuid_of
from .effecting import ask, flag

ADA, BERT = UUID(int=1), UUID(int=2)
_ids = itertools.count(10)
ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
DESTRUCTIVE, OUTWARD, OTHER = Kind.DESTRUCTIVE, Kind.OUTWARD, Kind.OTHER


def rule(decision: Decision, tool: str = "*", **more: Any) -> PolicyRule:
    """A rule as it was read."""
    return PolicyRule(id=UUID(int=next(_ids)), decision=decision, tool=tool, **more)


def listed(tool: str, kind: Kind, **more: Any) -> ToolEntry:
    """A line of the tool list as it was read."""
    return ToolEntry(id=UUID(int=next(_ids)), tool=tool, kind=kind, **more)


def having(*lines: PolicyRule | ToolEntry, destructive: bool = True, outward: bool = True) -> Policy:
    """The policy of an organization with these lines and flags."""
    organization = Organization(
        require_approval_for_destructive_tools=destructive, require_approval_for_outward_actions=outward
    )
    return Policy(
        organization,
        tuple(line for line in lines if isinstance(line, ToolEntry)),
        tuple(line for line in lines if isinstance(line, PolicyRule)),
    )


def judged(held: Policy, tool: str = "deploy", server: str | None = None, **more: Any) -> policy.Verdict:
    """What it says of an action of Ada, who can `ship`."""
    action = Action(tool, server, claimed=more.pop("claimed", None))
    return held.judge(action, agent_id=ADA, capabilities=("ship",), **more)


# --- nothing matched: the flags decide, by kind

FLAGS = [
    # kind, destructive asks, outward asks -> decision
    (DESTRUCTIVE, True, True, ASK),
    (DESTRUCTIVE, True, False, ASK),
    (DESTRUCTIVE, False, True, ALLOW),
    (DESTRUCTIVE, False, False, ALLOW),
    (OUTWARD, True, True, ASK),
    (OUTWARD, True, False, ALLOW),
    (OUTWARD, False, True, ASK),
    (OUTWARD, False, False, ALLOW),
    (OTHER, True, True, ALLOW),
    (OTHER, True, False, ALLOW),
    (OTHER, False, True, ALLOW),
    (OTHER, False, False, ALLOW),
]


@pytest.mark.parametrize(("kind", "destructive", "outward", "expected"), FLAGS)
def test_without_a_rule_the_flags_decide_by_kind(
    kind: Kind, destructive: bool, outward: bool, expected: Decision
) -> None:
    found = judged(having(listed("deploy", kind), destructive=destructive, outward=outward))
    assert (found.decision, found.kind, found.rule) == (expected, kind, None)
    assert (found.risk, found.required_role) == (policy.DEFAULT_RISK[kind], Role.APPROVER)


@pytest.mark.parametrize(("decision", "kind"), list(itertools.product(Decision, Kind)))
@pytest.mark.parametrize("flags", [True, False])
def test_a_rule_decides_whatever_the_flags_say(decision: Decision, kind: Kind, flags: bool) -> None:
    lines = listed("deploy", kind), rule(decision)
    found = judged(having(*lines, destructive=flags, outward=flags))
    assert (found.decision, found.kind, found.rule) == (decision, kind, lines[1])


@pytest.mark.parametrize(("of", "kind"), list(itertools.product(Kind, Kind)))
def test_a_rule_for_a_kind_is_for_no_other(of: Kind, kind: Kind) -> None:
    deny = rule(DENY, kind=of)
    found = judged(having(listed("deploy", kind), deny, destructive=False, outward=False))
    assert found.decision == (DENY if of == kind else ALLOW)


# --- ranks

RANKS = [
    # (rank, decision) of each rule -> decision
    ([(0, ALLOW), (0, ASK), (0, DENY)], DENY),
    ([(0, ALLOW), (0, ASK)], ASK),
    ([(0, ALLOW), (0, DENY)], DENY),
    ([(0, ASK), (0, DENY)], DENY),
    ([(1, ALLOW), (0, DENY)], ALLOW),
    ([(1, ALLOW), (0, ASK)], ALLOW),
    ([(1, ASK), (0, DENY)], ASK),
    ([(0, ALLOW), (-1, DENY)], ALLOW),
    ([(-1000, DENY), (1000, ALLOW)], ALLOW),
    ([(5, ALLOW), (5, ALLOW), (6, DENY)], DENY),
    ([(3, ASK), (2, ALLOW), (1, DENY)], ASK),
    ([(3, ALLOW), (3, ASK), (2, DENY)], ASK),
]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("ranked", "expected"), RANKS)
def test_the_highest_rank_decides_and_within_it_deny_before_ask_before_allow(
    ranked: list[tuple[int, Decision]], expected: Decision, reverse: bool
) -> None:
    rules = [rule(decision, rank=rank) for rank, decision in ranked]
    assert judged(having(*(reversed(rules) if reverse else rules))).decision == expected


def test_of_rules_of_one_rank_that_ask_the_one_that_asks_the_most_decides() -> None:
    mild, high = rule(ASK), rule(ASK, risk=Risk.HIGH, expires_in_seconds=600)
    boss = rule(ASK, required_role=Role.ADMIN)
    assert judged(having(mild, high)).rule == high
    assert judged(having(boss, mild, high)).rule == boss


# --- what a rule matches

MATCHES = [
    # terms of a rule that asks; tool, server -> does it match
    ({}, "deploy", None, True),
    ({}, "deploy", "cluster", True),
    ({"tool": "deploy"}, "deploy", None, True),
    ({"tool": "deploy"}, "deploys", None, False),
    ({"tool": "deploy"}, "redeploy", None, False),
    ({"tool": "deploy*"}, "deploys", None, True),
    ({"tool": "*deploy"}, "redeploy", None, True),
    ({"tool": "db.?"}, "db.x", None, True),
    ({"tool": "db.?"}, "db.xy", None, False),
    ({"tool": "db.?"}, "dbax", None, False),
    ({"tool": "db.*"}, "db.drop/all", None, True),
    ({"tool": "db.*.drop"}, "db.a.b.drop", None, True),
    # What restricts does so whatever the case.
    ({"tool": "deploy"}, "DEPLOY", None, True),
    ({"tool": "DePloy*"}, "deploys", None, True),
    ({"server": "Cluster"}, "deploy", "cluster", True),
    # Servers. Empty: none.
    ({"server": "cluster"}, "deploy", "cluster", True),
    ({"server": "cluster"}, "deploy", "cluster-2", False),
    ({"server": "cluster"}, "deploy", None, False),
    ({"server": "cluster*"}, "deploy", "cluster-2", True),
    ({"server": "?*"}, "deploy", None, False),
    ({"server": ""}, "deploy", None, True),
    ({"server": ""}, "deploy", "cluster", False),
    ({"tool": "deploy", "server": "cluster"}, "drop", "cluster", False),
    # Who.
    ({"agent_id": ADA}, "deploy", None, True),
    ({"agent_id": BERT}, "deploy", None, False),
    ({"capability": "ship"}, "deploy", None, True),
    ({"capability": "shi"}, "deploy", None, False),
    ({"capability": "drop"}, "deploy", None, False),
    ({"agent_id": ADA, "capability": "drop"}, "deploy", None, False),
]


@pytest.mark.parametrize(("terms", "tool", "server", "expected"), MATCHES)
def test_what_a_rule_matches(terms: dict[str, Any], tool: str, server: str | None, expected: bool) -> None:
    found = judged(having(rule(ASK, **terms), outward=False), tool, server)
    assert (found.decision == ASK) == expected


@pytest.mark.parametrize(
    ("terms", "tool", "server"),
    [
        ({"tool": "deploy"}, "Deploy", None),
        ({"tool": "Deploy*"}, "deploy", None),
        ({"server": "cluster"}, "deploy", "Cluster"),
        ({"server": ""}, "deploy", "cluster"),
    ],
)
def test_what_permits_means_exactly_what_it_says(
    terms: dict[str, Any], tool: str, server: str | None
) -> None:
    assert judged(having(rule(ALLOW, **terms)), tool, server).decision == ASK


# --- the tool list

LISTS = [
    # lines, tool -> kind
    ([], "deploy", OUTWARD),
    ([("deploy", OTHER, {})], "deploy", OTHER),
    ([("deploy", DESTRUCTIVE, {})], "deploy", DESTRUCTIVE),
    ([("deploy", OTHER, {})], "redeploy", OUTWARD),
    ([("*", OTHER, {}), ("deploy", DESTRUCTIVE, {})], "deploy", DESTRUCTIVE),
    ([("deploy", OTHER, {}), ("*", DESTRUCTIVE, {})], "deploy", DESTRUCTIVE),
    ([("deploy", OTHER, {"rank": 1}), ("*", DESTRUCTIVE, {})], "deploy", OTHER),
    ([("deploy", OTHER, {}), ("*", OUTWARD, {"rank": 1})], "deploy", OUTWARD),
    ([("deploy", OUTWARD, {}), ("*", OTHER, {})], "deploy", OUTWARD),
    ([("deploy", OTHER, {})], "Deploy", OUTWARD),
    ([("deploy", DESTRUCTIVE, {})], "Deploy", DESTRUCTIVE),
    ([("deploy", OTHER, {"server": "cluster"})], "deploy", OUTWARD),
    ([("deploy", OTHER, {"server": ""})], "deploy", OTHER),
]


@pytest.mark.parametrize(("lines", "tool", "expected"), LISTS)
def test_the_tool_list_says_what_an_action_is(lines: list[Any], tool: str, expected: Kind) -> None:
    held = having(*(listed(pattern, kind, **more) for pattern, kind, more in lines))
    assert judged(held, tool).kind == expected


@pytest.mark.parametrize(("own", "claimed"), list(itertools.product(Kind, Kind)))
def test_an_agent_can_only_make_the_kind_stricter(own: Kind, claimed: Kind) -> None:
    found = judged(having(listed("deploy", own)), claimed=claimed)
    assert found.kind == min(own, claimed, key=list(Kind).index)
    assert found.risk == policy.DEFAULT_RISK[found.kind]


CLAIMS = [
    # an action that is outward, and that the agent calls destructive; rules, flags -> decision
    ([rule(DENY, kind=OUTWARD)], {}, DENY),
    ([rule(DENY, kind=OUTWARD), rule(ALLOW, kind=DESTRUCTIVE, rank=9)], {}, DENY),
    ([rule(ASK, kind=OUTWARD), rule(ALLOW, kind=DESTRUCTIVE, rank=9)], {}, ASK),
    ([rule(ALLOW, kind=DESTRUCTIVE)], {}, ASK),
    ([rule(ALLOW, kind=OUTWARD)], {}, ASK),
    ([rule(ALLOW, kind=OUTWARD)], {"destructive": False}, ALLOW),
    ([rule(DENY, kind=DESTRUCTIVE), rule(ALLOW, kind=OUTWARD, rank=9)], {}, DENY),
    ([rule(ALLOW)], {}, ALLOW),
    ([], {"destructive": False}, ASK),
    ([], {"outward": False}, ASK),
    ([], {"outward": False, "destructive": False}, ALLOW),
]


@pytest.mark.parametrize(("rules", "flags", "expected"), CLAIMS)
def test_no_claim_leads_out_of_a_rule(
    rules: list[PolicyRule], flags: dict[str, bool], expected: Decision
) -> None:
    found = judged(having(*rules, **flags), claimed=DESTRUCTIVE)
    assert (found.decision, found.kind) == (expected, DESTRUCTIVE)


def test_a_dangerous_tool_that_is_called_harmless_stays_dangerous() -> None:
    held = having(listed("drop_*", DESTRUCTIVE), rule(ALLOW, kind=OTHER, rank=1000), outward=False)
    found = judged(held, "drop_table", claimed=OTHER)
    assert (found.decision, found.kind, found.risk) == (ASK, DESTRUCTIVE, Risk.HIGH)


def test_an_explanation_holds_all_that_matched_in_the_order_in_which_it_was_asked(agent: Agent) -> None:
    company = Company(agent.principal.organization, agent.url)
    lines = [acting.listed(company, "deploy", OTHER), acting.listed(company, "d*", OUTWARD, rank=1)]
    rules = [acting.rule(company, each, "deploy") for each in (ALLOW, ASK, DENY)]
    top = acting.rule(company, ALLOW, rank=7, kind=DESTRUCTIVE)
    acting.rule(company, DENY, "other_tool", rank=9)
    found = policy.explain(agent.principal, Action("deploy", claimed=DESTRUCTIVE))
    assert found.entries == lines[::-1]
    assert found.rules == [top, *rules[::-1]]
    assert found.kinds == (DESTRUCTIVE, OUTWARD)
    assert (found.verdict.decision, found.verdict.rule) == (DENY, rules[2])


# --- what the database decides


def test_a_rule_holds_until_the_clock_of_the_database_says_otherwise(company: Company, agent: Agent) -> None:
    action = Action("deploy")
    held = acting.rule(company, ALLOW, "deploy")
    sql(
        "UPDATE approvals_policyrule SET expires_at = clock_timestamp() + interval '1 h' WHERE id = %s",
        held.pk,
    )
    assert policy.judge(agent.principal, action).decision == ALLOW
    sql("UPDATE approvals_policyrule SET expires_at = clock_timestamp() WHERE id = %s", held.pk)
    assert policy.judge(agent.principal, action).decision == ASK


@pytest.mark.parametrize("table", ["policyrule", "toolentry"])
def test_what_has_ended_decides_nothing(company: Company, agent: Agent, table: str) -> None:
    action = Action("deploy")
    acting.listed(company, "deploy", OTHER) if table == "toolentry" else acting.rule(company, ALLOW, "deploy")
    assert policy.judge(agent.principal, action).decision == ALLOW
    sql(
        f"UPDATE approvals_{table} SET ended_at = clock_timestamp() WHERE organization_id = %s",
        company.organization.pk,
    )
    assert policy.judge(agent.principal, action).decision == ASK


def test_another_organizations_policy_decides_nothing(
    company: Company, elsewhere: Company, agent: Agent
) -> None:
    acting.rule(elsewhere, DENY)
    acting.listed(elsewhere, "*", DESTRUCTIVE, rank=1000)
    found = policy.judge(agent.principal, Action("deploy"))
    assert (found.decision, found.kind) == (ASK, OUTWARD)


def test_what_a_rule_asks_reaches_the_approval(company: Company, agent: Agent, claimed: Any) -> None:
    acting.listed(company, "deploy", DESTRUCTIVE)
    asking = acting.rule(
        company, ASK, "deploy", required_role="admin", risk="critical", expires_in_seconds=600, rank=3
    )
    made = ask(agent, claimed, acting.deploy())
    assert (made["required_role"], made["risk"], made["kind"]) == ("admin", "critical", "destructive")
    (row,) = sql(
        "SELECT extract(epoch FROM expires_at - created_at)::int, verdict -> 'rule' ->> 'id',"
        " verdict -> 'rule' ->> 'rank' FROM approvals_approval WHERE id = %s",
        uuid_of(made["id"]),
    )
    assert row == (600, f"rule_{asking.pk.hex}", "3")


RISKS = [
    # the rule's risk, the agent's wish -> the approval's
    ("", None, "medium"),
    ("", "low", "medium"),
    ("", "high", "high"),
    ("low", None, "low"),
    ("low", "medium", "medium"),
    ("high", "low", "high"),
    ("high", "critical", "critical"),
    ("critical", "high", "critical"),
]


@pytest.mark.parametrize(("ruled", "wished", "expected"), RISKS)
def test_the_agent_can_only_raise_the_risk(
    company: Company, agent: Agent, claimed: Any, ruled: str, wished: str | None, expected: str
) -> None:
    acting.rule(company, ASK, risk=ruled)
    wish = {"risk": wished} if wished else {}
    assert ask(agent, claimed, acting.deploy(), **wish)["risk"] == expected


def test_an_agent_is_told_which_rule_denies(company: Company, agent: Agent, claimed: Any) -> None:
    flag(company, require_approval_for_outward_actions=False)
    deny = acting.rule(company, DENY, "deploy")
    for path, body in (
        ("/effects", acting.effect(claimed, acting.DEPLOY)),
        ("/approvals", acting.request(claimed, acting.DEPLOY)),
    ):
        error = agent.refused("POLICY_DENIED", path, body)
        assert error["details"]["rule"]["id"] == f"rule_{deny.pk.hex}"
        assert error["details"]["final"] is True
