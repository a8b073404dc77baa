"""The terms of rules and of lines of the tool list: what an admin may write, and how it is told apart later."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from coordination.admission import check_capabilities
from coordination.canonical import digest
from coordination.identity import name_key
from coordination.models import Organization, Principal, PrincipalKind, Role
from coordination.times import stamp
from titen.api.ids import read_id
from titen.errors import Refused, invalid

from .models import Decision, Kind, PolicyRule, Risk, ToolEntry
from .models.policy import PATTERN_LENGTH, RANK_LIMIT
from .policy import entry_json, rule_json

# What names are made of (`actions.NAME`), with the two wildcards.
PATTERN = re.compile(r"[A-Za-z0-9_.:/@+*?-]+")
NOTE_LENGTH = 400
EXPIRES_IN = (60, 30 * 86_400)
FLAGS = (
    "require_approval_for_destructive_tools",
    "require_approval_for_outward_actions",
    "forbid_self_approval",
)


@dataclass(frozen=True)
class RuleTerms:
    """What a rule says. `kind`, `agent_id` and an empty `capability`: any. An empty `server`: none at all.

    `required_role`, `risk` and `expires_in_seconds` are what a rule that asks sets for the approval;
    `expires_at` is the end of the rule itself.
    """

    decision: Decision
    rank: int = 0
    tool: str = "*"
    server: str = "*"
    kind: Kind | None = None
    agent_id: UUID | None = None
    capability: str = ""
    required_role: Role = Role.APPROVER
    risk: Risk | None = None
    expires_in_seconds: int | None = None
    note: str = ""
    expires_at: datetime | None = None

    def columns(self) -> dict[str, Any]:
        """As the table keeps them."""
        return {**vars(self), "kind": self.kind or "", "risk": self.risk or ""}


@dataclass(frozen=True)
class ToolTerms:
    """What a line of the tool list says."""

    kind: Kind
    rank: int = 0
    tool: str = "*"
    server: str = "*"

    def columns(self) -> dict[str, Any]:
        """As the table keeps them."""
        return dict(vars(self))


def check_rule(terms: RuleTerms, *, organization_id: UUID, at: datetime) -> None:
    """Refuse, naming the field, what no rule may say at that moment."""
    _check_match(terms)
    if terms.capability:
        check_capabilities([terms.capability], "capability")
    if terms.agent_id is not None and not _agents(organization_id).filter(pk=terms.agent_id).exists():
        raise _no_such_agent()
    if len(terms.note) > NOTE_LENGTH:
        raise invalid("note", f"must be at most {NOTE_LENGTH} characters.")
    if terms.expires_at is not None and terms.expires_at <= at:
        raise invalid("expires_at", "must lie in the future.")
    if terms.required_role not in (Role.APPROVER, Role.ADMIN):
        raise invalid("required_role", "must be approver or admin.")
    shortest, longest = EXPIRES_IN
    if terms.expires_in_seconds is not None and not shortest <= terms.expires_in_seconds <= longest:
        raise invalid("expires_in_seconds", f"must be between {shortest} and {longest} seconds (30 days).")
    if terms.decision != Decision.ASK:
        asks = {
            "required_role": terms.required_role != Role.APPROVER,
            "risk": terms.risk,
            "expires_in_seconds": terms.expires_in_seconds,
        }
        for field in (field for field, given in asks.items() if given):
            raise invalid(field, "is for rules that ask.")


def check_tool(terms: ToolTerms) -> None:
    """Refuse, naming the field, what no line may say."""
    _check_match(terms)


def _check_match(terms: RuleTerms | ToolTerms) -> None:
    if not -RANK_LIMIT <= terms.rank <= RANK_LIMIT:
        raise invalid("rank", f"must be between -{RANK_LIMIT} and {RANK_LIMIT}.")
    if not terms.tool:
        raise invalid("tool", "must be at least 1 character; * is any tool.")
    for field, pattern in (("tool", terms.tool), ("server", terms.server)):
        if len(pattern) > PATTERN_LENGTH or (pattern and not PATTERN.fullmatch(pattern)):
            raise invalid(
                field, f"must be at most {PATTERN_LENGTH} letters, digits and _ . : / @ + - (ASCII), * and ?."
            )


def _agents(organization_id: UUID) -> Any:
    return Principal.objects.filter(organization_id=organization_id).exclude(kind=PrincipalKind.HUMAN)


def _no_such_agent() -> Refused:
    return invalid("agent", "must be an agent of this organization, by id or name.")


def find_agent(organization_id: UUID, text: str) -> Principal:
    """The agent that a person means, by printed id or name."""
    known = read_id("agent", text)
    found = _agents(organization_id)
    agent: Principal | None = found.filter(**{"pk": known} if known else {"name_key": name_key(text)}).first()
    if agent is None:
        raise _no_such_agent()
    return agent


def state(row: PolicyRule | ToolEntry | Organization) -> dict[str, Any]:
    """What an event says of a row: ids, numbers, codes and patterns, never the note."""
    match row:
        case PolicyRule():
            return {**rule_json(row), "expires_at": stamp(row.expires_at)}
        case ToolEntry():
            return entry_json(row)
        case _:
            return {flag: getattr(row, flag) for flag in FLAGS}


def row_digest(row: PolicyRule | ToolEntry | Organization) -> str:
    """Of all that a page shows of a row, for the edit that comes from it: 64 hexadecimal digits."""
    return digest([state(row), getattr(row, "note", "")])
