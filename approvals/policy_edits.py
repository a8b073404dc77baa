"""Editing policy: one change, one event with what was and what is. Only admins of the organization do.

Every change of a row carries the digest of what the page showed of it (`policy_terms.row_digest`). The
organization is locked after who acts (and after an approval), before the row.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from coordination import events, identity
from coordination.callers import Caller
from coordination.locks import clock, hold_able
from coordination.models import Organization, Role
from titen.api.ids import public_id
from titen.errors import Refused, invalid, not_found

from . import options, policy
from .actions import Action
from .decisions import decide, require_human
from .models import Approval, Decision, Kind, PolicyRule, ToolEntry
from .models.policy import RANK_LIMIT
from .policy_terms import RuleTerms, ToolTerms, check_rule, check_tool, row_digest, state

RULES_MAXIMUM = 200
LINES_MAXIMUM = 500
HOUR, DAY = 3600, 86_400
# How long "always" is.
ALWAYS_FOR = (HOUR, DAY, 7 * DAY, 30 * DAY)


def require_admin(caller: Caller) -> None:
    """Refuse everybody but an admin in a browser session, and lock that they are one."""
    require_human(caller)
    if caller.role != Role.ADMIN:
        raise Refused(
            "FORBIDDEN",
            f"Policy is made by admins; you are {caller.role}.",
            details={"role": Role.ADMIN},
        )
    hold_able(caller)


def hold_policy(organization_id: UUID) -> datetime:
    """Lock an organization's policy: its edits come one after the other. What has run out is written down."""
    Organization.objects.select_for_update(no_key=True).get(pk=organization_id)
    at = clock()
    over = PolicyRule.objects.filter(organization_id=organization_id, ended_at=None, expires_at__lte=at)
    for rule in over.order_by("pk"):
        PolicyRule.objects.filter(pk=rule.pk, ended_at=None).update(ended_at=rule.expires_at)
        _record("policy.rule_ended", rule, None, was=state(rule), because="expired")
    return at


def add_rule(caller: Caller, terms: RuleTerms) -> PolicyRule:
    """A new rule. It holds for whatever is asked from now on."""
    require_admin(caller)
    return _write_rule(caller, terms, at=hold_policy(caller.organization_id))


def change_rule(caller: Caller, rule_id: UUID, terms: RuleTerms, *, shown: str) -> PolicyRule:
    """Give a rule other terms; it stands under the name of who did so last.

    `DIGEST_MISMATCH` with the rule as it stands when it is not what was `shown`, `CONFLICT` when it has ended.
    """
    rule, at = _hold_row(PolicyRule, caller, rule_id, shown)
    check_rule(terms, organization_id=rule.organization_id, at=at)
    was = rule.note, state(rule)
    _move(rule, **terms.columns(), made_by_id=caller.user_id)
    if (rule.note, state(rule)) != was:
        changes = {"note_changed": True} if rule.note != was[0] else {}
        _record("policy.rule_changed", rule, caller, was=was[1], now=state(rule), **changes)
    return rule


def end_rule(caller: Caller, rule_id: UUID, *, shown: str) -> PolicyRule:
    """The rule holds no more. What it decided stands."""
    rule, at = _hold_row(PolicyRule, caller, rule_id, shown)
    _move(rule, ended_at=at)
    _record("policy.rule_ended", rule, caller, was=state(rule))
    return rule


def add_tool(caller: Caller, terms: ToolTerms) -> ToolEntry:
    """A new line of the tool list. `CONFLICT` for patterns that are listed with this rank already."""
    require_admin(caller)
    hold_policy(caller.organization_id)
    check_tool(terms)
    _refuse_over(ToolEntry, caller, LINES_MAXIMUM)
    entry = ToolEntry.objects.create(organization_id=caller.organization_id, **terms.columns())
    _record("policy.tool_added", entry, caller, now=state(entry))
    return entry


def change_tool(caller: Caller, entry_id: UUID, terms: ToolTerms, *, shown: str) -> ToolEntry:
    """Give a line of the tool list other terms. Refused as `change_rule`."""
    entry, _ = _hold_row(ToolEntry, caller, entry_id, shown)
    check_tool(terms)
    was = state(entry)
    _move(entry, **terms.columns())
    if state(entry) != was:
        _record("policy.tool_changed", entry, caller, was=was, now=state(entry))
    return entry


def end_tool(caller: Caller, entry_id: UUID, *, shown: str) -> ToolEntry:
    """The line holds no more: without another that matches, its tools are outward."""
    entry, at = _hold_row(ToolEntry, caller, entry_id, shown)
    _move(entry, ended_at=at)
    _record("policy.tool_ended", entry, caller, was=state(entry))
    return entry


def set_flags(caller: Caller, flags: dict[str, bool], *, shown: str) -> Organization:
    """Set the organization's flags (`policy_terms.FLAGS`). Refused as `change_rule`."""
    require_admin(caller)
    hold_policy(caller.organization_id)
    organization = Organization.objects.get(pk=caller.organization_id)
    _refuse_stale(organization, shown)
    return identity.configure(organization, flags, actor_id=caller.principal_id, kind="policy.flags_changed")


def always_allow(
    caller: Caller,
    approval_id: UUID,
    *,
    shown_digest: str,
    expires_in_seconds: int = DAY,
    reason: str = "",
) -> PolicyRule:
    """Grant a pending approval, and allow exactly its tool and server to its agent for a while.

    The rule stands just above the one that asked, at 0 where the organization's flags did. `decisions.decide`
    refuses what it refuses; an approval without exactly one option that grants, and an action that would be
    asked about or denied all the same, are a `CONFLICT`.
    """
    if expires_in_seconds not in ALWAYS_FOR:
        raise invalid("expires_in_seconds", f"must be one of {', '.join(map(str, ALWAYS_FOR))}.")
    require_admin(caller)
    known = Approval.objects.filter(pk=approval_id, organization_id=caller.organization_id).first()
    if known is None:
        raise not_found()
    if known.action is None or known.verdict is None:
        raise Refused("CONFLICT", "This is a question, not an action: there is nothing to allow.")
    offered = [each for each in options.read(known.options, for_action=True) if each.grants]
    if len(offered) != 1:
        raise Refused(
            "CONFLICT", f"{len(offered)} of its options grant it. Choose one; policy cannot choose for you."
        )
    approval = decide(caller, approval_id, option=offered[0].value, shown_digest=shown_digest, reason=reason)
    at = hold_policy(caller.organization_id)
    terms = _always(known, until=at.replace(microsecond=0) + timedelta(seconds=expires_in_seconds))
    rule = _write_rule(caller, terms, at=at, made_from=approval)
    action = Action(terms.tool, terms.server or None, known.action["arguments"], claimed=Kind(known.kind))
    verdict = policy.judge(approval.requested_by, action)
    if verdict.decision != Decision.ALLOW:
        raise Refused(
            "CONFLICT",
            f"A rule would change nothing. {verdict.because} Decide this one, or change that rule.",
        )
    return rule


def _always(approval: Approval, *, until: datetime) -> RuleTerms:
    """An allow rule for exactly what was asked. Of any kind, where the agent called it stricter than policy does."""
    action: dict[str, Any] = approval.action or {}
    verdict: dict[str, Any] = approval.verdict or {}
    asked, entry = verdict["rule"], verdict["tool_entry"]
    rank = asked["rank"] + 1 if asked else 0
    if rank > RANK_LIMIT:
        raise Refused(
            "CONFLICT", f"The rule that asked has the highest rank, {RANK_LIMIT}: nothing can stand above it."
        )
    own = entry["kind"] if entry else Kind.OUTWARD
    return RuleTerms(
        Decision.ALLOW,
        rank,
        tool=action["tool"],
        server=action["server"] or "",
        kind=Kind(own) if own == approval.kind else None,
        agent_id=approval.requested_by_id,
        expires_at=until,
    )


def _write_rule(
    caller: Caller, terms: RuleTerms, *, at: datetime, made_from: Approval | None = None
) -> PolicyRule:
    check_rule(terms, organization_id=caller.organization_id, at=at)
    _refuse_over(PolicyRule, caller, RULES_MAXIMUM)
    maker: Any = caller.user_id
    rule = PolicyRule.objects.create(
        organization_id=caller.organization_id,
        made_by_id=maker,
        made_from=made_from,
        **terms.columns(),
    )
    origin = {"made_from": public_id("appr", made_from.pk)} if made_from else {}
    _record("policy.rule_added", rule, caller, now=state(rule), **origin)
    return rule


def _hold_row[R: (PolicyRule, ToolEntry)](
    model: type[R], caller: Caller, key: UUID, shown: str
) -> tuple[R, datetime]:
    """Lock the policy and a row of it that stands as it was shown."""
    require_admin(caller)
    at = hold_policy(caller.organization_id)
    found = model.objects.select_for_update(no_key=True)
    row = found.filter(pk=key, organization_id=caller.organization_id).first()
    if row is None:
        raise not_found()
    if row.ended_at is not None:
        raise Refused(
            "CONFLICT", "This has ended already. Your click changed nothing.", details={"state": "ended"}
        )
    _refuse_stale(row, shown)
    return row, at


def _refuse_stale(row: PolicyRule | ToolEntry | Organization, shown: str) -> None:
    stands = row_digest(row)
    if shown != stands:
        raise Refused("DIGEST_MISMATCH", details={"digest": stands, "now": state(row)})


def _refuse_over(model: type[PolicyRule | ToolEntry], caller: Caller, maximum: int) -> None:
    if (
        model._default_manager.filter(organization_id=caller.organization_id, ended_at=None).count()
        >= maximum
    ):
        raise Refused("CONFLICT", f"There are {maximum} already, which is the most. End one first.")


def _move(row: PolicyRule | ToolEntry, **changes: Any) -> None:
    count = type(row)._default_manager.filter(pk=row.pk, ended_at=None).update(**changes)
    if count != 1:
        raise Refused("CONFLICT", object="line", state="ended")
    row.refresh_from_db()


def _record(kind: str, row: PolicyRule | ToolEntry, caller: Caller | None, **data: Any) -> None:
    events.record(
        kind,
        organization_id=row.organization_id,
        actor_id=caller.principal_id if caller else None,
        subject_id=row.pk,
        **data,
    )
