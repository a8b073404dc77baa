"""Policy's word on an action: what kind it is, and whether it is allowed, asked about or denied."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from uuid import UUID

from django.db.models import Q

from coordination.models import Organization, Principal, Role
from coordination.models.fields import ClockNow
from titen.api.ids import maybe_id, public_id

from .actions import Action, stricter
from .models import Decision, Kind, PolicyRule, Risk, ToolEntry

DEFAULT_RISK = {Kind.DESTRUCTIVE: Risk.HIGH, Kind.OUTWARD: Risk.MEDIUM, Kind.OTHER: Risk.LOW}
_FIRST = list(Decision)


def higher(one: Risk, other: Risk) -> Risk:
    """The higher of two risks."""
    return max(one, other, key=list(Risk).index)


@dataclass(frozen=True)
class Verdict:
    """What policy says about one action of one principal.

    `rule` and `entry` are what decided; without a rule the organization's flags did. `because` is a
    sentence for people. Role, risk and `expires_in_seconds` (None: the usual time) are for the approval.
    """

    decision: Decision
    kind: Kind
    risk: Risk
    required_role: Role
    expires_in_seconds: int | None
    rule: PolicyRule | None
    entry: ToolEntry | None
    because: str

    def record(self) -> dict[str, Any]:
        """The verdict as it is kept with an approval or an effect: the rule may change or end later."""
        return {
            "decision": self.decision,
            "kind": self.kind,
            "risk": self.risk,
            "required_role": self.required_role,
            "rule": rule_json(self.rule) if self.rule else None,
            "tool_entry": entry_json(self.entry) if self.entry else None,
            "because": self.because,
        }


def rule_json(rule: PolicyRule) -> dict[str, Any]:
    """A rule's terms. Empty strings and null: any."""
    return {
        "id": public_id("rule", rule.pk),
        "rank": rule.rank,
        "decision": rule.decision,
        "tool": rule.tool,
        "server": rule.server,
        "kind": rule.kind,
        "agent": maybe_id("agent", rule.agent_id),
        "capability": rule.capability,
        "required_role": rule.required_role,
        "risk": rule.risk,
        "expires_in_seconds": rule.expires_in_seconds,
    }


def entry_json(entry: ToolEntry) -> dict[str, Any]:
    """A line of the tool list."""
    return {
        "id": public_id("tool", entry.pk),
        "rank": entry.rank,
        "tool": entry.tool,
        "server": entry.server,
        "kind": entry.kind,
    }


@dataclass(frozen=True)
class Policy:
    """An organization's policy as it holds at one moment. Judging asks no database."""

    organization: Organization
    entries: tuple[ToolEntry, ...] = ()
    rules: tuple[PolicyRule, ...] = ()

    def judge(self, action: Action, *, agent_id: UUID, capabilities: tuple[str, ...] = ()) -> Verdict:
        """The verdict for an action of an agent. The highest rank that matches decides; within it deny
        comes before ask before allow.

        Where the agent says a stricter kind than the tool list, both kinds are judged and the stricter
        verdict stands: no claim leads out of a rule.
        """
        entry = next(iter(self.entries_for(action)), None)
        kinds = kinds_of(action, entry)
        verdicts = []
        for kind in kinds:
            rules = self.rules_for(action, (kind,), agent_id=agent_id, capabilities=capabilities)
            verdicts.append(self._verdict(kind, entry, rules[0] if rules else None))
        strictest = min(verdicts, key=_strictness)
        risk = max((verdict.risk for verdict in verdicts), key=list(Risk).index)
        return replace(strictest, kind=kinds[0], risk=risk)

    def entries_for(self, action: Action) -> list[ToolEntry]:
        """The lines of the tool list that match, the one that decides first."""
        found = [entry for entry in self.entries if _matches(entry, action, strict=entry.kind != Kind.OTHER)]
        return sorted(found, key=entry_order)

    def rules_for(
        self,
        action: Action,
        kinds: tuple[Kind, ...],
        *,
        agent_id: UUID,
        capabilities: tuple[str, ...] = (),
    ) -> list[PolicyRule]:
        """The rules that match the action as one of these kinds, the one that decides first."""
        found = [
            rule
            for rule in self.rules
            if _matches(rule, action, strict=rule.decision != Decision.ALLOW)
            and rule.kind in ("", *kinds)
            and rule.agent_id in (None, agent_id)
            and (not rule.capability or rule.capability in capabilities)
        ]
        return sorted(found, key=rule_order)

    def _verdict(self, kind: Kind, entry: ToolEntry | None, rule: PolicyRule | None) -> Verdict:
        if rule is not None:
            decision, because = Decision(rule.decision), f"The rule of rank {rule.rank} says so: {rule}."
        else:
            decision, because = self._default(kind)
        return Verdict(
            decision=decision,
            kind=kind,
            risk=Risk(rule.risk) if rule and rule.risk else DEFAULT_RISK[kind],
            required_role=Role(rule.required_role) if rule else Role.APPROVER,
            expires_in_seconds=rule.expires_in_seconds if rule else None,
            rule=rule,
            entry=entry,
            because=because,
        )

    def _default(self, kind: Kind) -> tuple[Decision, str]:
        flags = {
            Kind.DESTRUCTIVE: self.organization.require_approval_for_destructive_tools,
            Kind.OUTWARD: self.organization.require_approval_for_outward_actions,
            Kind.OTHER: False,
        }
        if flags[kind]:
            return Decision.ASK, f"No rule matches, and {kind} actions need an approval here."
        return Decision.ALLOW, f"No rule matches, and {kind} actions need no approval here."


def kinds_of(action: Action, entry: ToolEntry | None) -> tuple[Kind, ...]:
    """The kind of an action, and what the tool list's line says where the agent made it stricter. Unlisted is outward."""
    own = Kind(entry.kind) if entry else Kind.OUTWARD
    return tuple(dict.fromkeys((stricter(own, action.claimed or own), own)))


def entry_order(entry: ToolEntry) -> tuple[int, int, UUID]:
    """What sorts the tool list as it is asked: the highest rank, then the strictest kind."""
    return -entry.rank, list(Kind).index(Kind(entry.kind)), entry.pk


def rule_order(rule: PolicyRule) -> tuple[int, int, int, int, UUID]:
    """What sorts rules as they are asked: rank, decision; of rules that ask, the one that asks the most."""
    risk = list(Risk).index(Risk(rule.risk)) if rule.risk else -1
    role = list(Role).index(Role(rule.required_role))
    return -rule.rank, _FIRST.index(Decision(rule.decision)), -role, -risk, rule.pk


def _strictness(verdict: Verdict) -> tuple[int, int, int]:
    """What sorts verdicts, the strictest first."""
    role = list(Role).index(verdict.required_role)
    return _FIRST.index(verdict.decision), -role, -list(Risk).index(verdict.risk)


def _matches(line: ToolEntry | PolicyRule, action: Action, *, strict: bool) -> bool:
    """Both patterns fit. What restricts does so whatever the case; what permits means exactly what it says."""
    pairs = ((line.tool, action.tool), (line.server, action.server or ""))
    return all(
        fnmatchcase(text, pattern) or (strict and fnmatchcase(text.lower(), pattern.lower()))
        for pattern, text in pairs
    )


def load(organization_id: UUID) -> Policy:
    """The policy that holds now."""
    unended = Q(organization_id=organization_id, ended_at=None)
    rules = PolicyRule.objects.filter(unended, Q(expires_at=None) | Q(expires_at__gt=ClockNow()))
    return Policy(
        Organization.objects.get(pk=organization_id),
        tuple(ToolEntry.objects.filter(unended)),
        tuple(rules),
    )


def judge(principal: Principal, action: Action) -> Verdict:
    """What policy says now about an action of a principal."""
    return load(principal.organization_id).judge(
        action, agent_id=principal.pk, capabilities=tuple(principal.capabilities)
    )


@dataclass(frozen=True)
class Explanation:
    """A verdict with all that matched, in the order in which it was asked."""

    verdict: Verdict
    kinds: tuple[Kind, ...]
    entries: list[ToolEntry]
    rules: list[PolicyRule]


def explain(principal: Principal, action: Action) -> Explanation:
    """What policy says now about an action of a principal, and why."""
    policy, who = load(principal.organization_id), principal.pk
    able = tuple(principal.capabilities)
    entries = policy.entries_for(action)
    kinds = kinds_of(action, entries[0] if entries else None)
    return Explanation(
        policy.judge(action, agent_id=who, capabilities=able),
        kinds,
        entries,
        policy.rules_for(action, kinds, agent_id=who, capabilities=able),
    )
