"""What agents do to the world in tests, and what their organization's policy says of it."""

import itertools
from typing import Any

from approvals.models import Decision, Effect, EffectStatus, Kind, PolicyRule, ToolEntry
from coordination.models import User

from .cast import Agent, Company
from .clockwork import uuid_of

_numbers = itertools.count(1)
# Both are unlisted, so outward. The organization's flag has a human asked for the one; scenes allow the other.
DEPLOY: dict[str, Any] = {"tool": "deploy", "server": "cluster", "arguments": {"build": 41}}
PUBLISH: dict[str, Any] = {"tool": "publish", "server": None, "arguments": {"page": "status"}}
# What a human can be asked about: the choices have the same names.
ABOUT: dict[str, dict[str, Any]] = {
    "a question": {"options": ["Approve", "Deny"]},
    "an action": {
        "options": [
            {"value": "Approve", "label": "Ship it", "grants": True},
            {"value": "Deny", "grants": False},
        ],
        "action": DEPLOY,
    },
}


def deploy() -> dict[str, Any]:
    """A deployment like no other: what is denied here is denied nowhere else."""
    return {**DEPLOY, "arguments": {"build": next(_numbers)}}


def rule(company: Company, decision: Decision | str, tool: str = "*", **more: Any) -> PolicyRule:
    """A line of the organization's policy, made by one of its people."""
    maker = User.objects.filter(memberships__organization=company.organization).first()
    return PolicyRule.objects.create(
        organization=company.organization,
        decision=decision,
        tool=tool,
        made_by=maker or company.human("admin").user,
        **more,
    )


def listed(company: Company, tool: str, kind: Kind | str, **more: Any) -> ToolEntry:
    """A line of the organization's tool list."""
    return ToolEntry.objects.create(organization=company.organization, tool=tool, kind=kind, **more)


def under(claim: Any) -> dict[str, Any]:
    """The run and the epoch of a claim."""
    return {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}


def effect(claim: Any, action: Any = None, **more: Any) -> dict[str, Any]:
    """The body of an effect under a claim, with a key of its own."""
    return {
        **under(claim),
        "action": action or DEPLOY,
        "effect_key": f"attempt-{next(_numbers)}",
        **more,
    }


def request(claim: Any, action: Any = None, **more: Any) -> dict[str, Any]:
    """The body of a request for an approval of an action."""
    return {**under(claim), "question": "May I?", "action": action or DEPLOY, **more}


def effects_of(agent: Agent, **query: Any) -> list[dict[str, Any]]:
    """The effects that a list shows, newest first."""
    found: list[dict[str, Any]] = agent.get("/effects", params={"limit": 200, **query})["effects"]
    return found


def status_of(effect: Any) -> EffectStatus:
    """How an effect stands in the database."""
    return EffectStatus(Effect.objects.get(pk=uuid_of(effect["id"])).status)
