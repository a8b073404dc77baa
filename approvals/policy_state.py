"""Reading an organization's policy for its page: what each line does, in words."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import prefetch_related_objects

from coordination.models import Organization, Principal, PrincipalKind, Role
from titen.api.ids import maybe_id, public_id

from . import policy
from .actions import Action
from .deciders import self_approval_is_forbidden
from .models import Decision, Kind, PolicyRule, Risk, ToolEntry
from .policy_forms import in_words
from .policy_terms import FLAGS, row_digest

AGENTS_SHOWN = 500
# flag -> what it says while it is set, and while it is not
SENTENCES = {
    "require_approval_for_destructive_tools": (
        "Destructive actions ask first, unless a rule decides.",
        "Destructive actions run without asking, unless a rule decides.",
    ),
    "require_approval_for_outward_actions": (
        "Outward actions ask first, unless a rule decides.",
        "Outward actions run without asking, unless a rule decides.",
    ),
    "forbid_self_approval": (
        "Nobody decides what their own agents ask.",
        "People may decide what their own agents ask.",
    ),
}
LABELS = {
    "require_approval_for_destructive_tools": "Destructive actions need an approval",
    "require_approval_for_outward_actions": "Outward actions need an approval",
    "forbid_self_approval": "Nobody approves for their own agents",
}


@dataclass(frozen=True)
class FlagRow:
    """One flag."""

    name: str
    label: str
    on: bool
    says: str


@dataclass(frozen=True)
class RuleRow:
    """A rule that holds: `does` says what it decides."""

    id: str
    row: PolicyRule
    does: str
    made_from: str | None
    digest: str


@dataclass(frozen=True)
class ToolRow:
    """A line of the tool list that holds."""

    id: str
    row: ToolEntry
    digest: str


@dataclass(frozen=True)
class PolicyState:
    """An organization's policy, in the order in which it is asked."""

    organization: Organization
    digest: str
    flags: list[FlagRow]
    banner: str
    rules: list[RuleRow]
    tools: list[ToolRow]


@dataclass(frozen=True)
class Answer:
    """What would happen to an action: in a few words, and all that was asked on the way."""

    decision: Decision
    says: str
    because: str
    agent: str
    entries: list[ToolRow]
    kind: Kind
    own_kind: Kind
    rules: list[RuleRow]
    decides: str | None


def read(organization_id: UUID) -> PolicyState:
    """The policy that holds now."""
    held = policy.load(organization_id)
    rules = sorted(held.rules, key=policy.rule_order)
    prefetch_related_objects(rules, "agent", "made_by")
    tools = sorted(held.entries, key=policy.entry_order)
    return PolicyState(
        held.organization,
        row_digest(held.organization),
        [_flag(held.organization, name) for name in FLAGS],
        _banner(held.organization),
        [_rule(rule) for rule in rules],
        [_tool(entry) for entry in tools],
    )


def agents(organization_id: UUID) -> list[str]:
    """The names of those whom a rule can be about."""
    found = Principal.objects.filter(organization_id=organization_id, disabled_at=None)
    names = found.exclude(kind=PrincipalKind.HUMAN).order_by("name_key").values_list("name", flat=True)
    return list(names[:AGENTS_SHOWN])


def answer(agent: Principal, action: Action) -> Answer:
    """What policy says now of an action, step by step."""
    found = policy.explain(agent, action)
    verdict = found.verdict
    return Answer(
        decision=verdict.decision,
        says={
            Decision.ALLOW: "It runs without asking",
            Decision.ASK: f"It {asks(verdict.required_role, verdict.risk, verdict.expires_in_seconds)}",
            Decision.DENY: "It is refused",
        }[verdict.decision],
        because=verdict.because,
        agent=agent.name,
        entries=[_tool(entry) for entry in found.entries],
        kind=verdict.kind,
        own_kind=found.kinds[-1],
        rules=[_rule(rule) for rule in found.rules],
        decides=maybe_id("rule", verdict.rule.pk) if verdict.rule else None,
    )


def asks(role: Role | str, risk: Risk | str, seconds: int | None) -> str:
    """`asks an admin, risk high, answered within 1 h`."""
    parts = [f"asks an {role}"]
    parts += [f"risk {risk}"] if risk else []
    parts += [f"answered within {in_words(seconds)}"] if seconds else []
    return ", ".join(parts)


def _rule(rule: PolicyRule) -> RuleRow:
    does = {
        Decision.ALLOW: "allows without asking",
        Decision.ASK: asks(rule.required_role, rule.risk, rule.expires_in_seconds),
        Decision.DENY: "denies",
    }[Decision(rule.decision)]
    return RuleRow(
        public_id("rule", rule.pk), rule, does, maybe_id("appr", rule.made_from_id), row_digest(rule)
    )


def _tool(entry: ToolEntry) -> ToolRow:
    return ToolRow(public_id("tool", entry.pk), entry, row_digest(entry))


def _flag(organization: Organization, name: str) -> FlagRow:
    on: Any = getattr(organization, name)
    says, otherwise = SENTENCES[name]
    return FlagRow(name, LABELS[name], on, says if on else otherwise)


def _banner(organization: Organization) -> str:
    """Where the flag against deciding for one's own agents cannot hold."""
    if not organization.forbid_self_approval:
        return ""
    if not self_approval_is_forbidden(organization):
        return (
            "One person alone can decide here, so they may decide for their own agents too,"
            " until somebody else has the role approver."
        )
    if not self_approval_is_forbidden(organization, Role.ADMIN):
        return "There is one admin: what asks an admin may be decided by them for their own agents too."
    return ""
