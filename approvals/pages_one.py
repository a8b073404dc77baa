"""Reading one approval's page: what can change on it, apart from what never does."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from coordination.locks import clock
from coordination.models import Role, Run
from coordination.shapes import certainty
from titen.api.ids import public_id

from . import cards, deciders, grants
from .legible import Difference, difference, pretty_html
from .models import Approval, Effect, EffectStatus

EARLIER_SHOWN = 20


@dataclass(frozen=True)
class Standing:
    """Who holds the task now. `asked` is true while it is the very run that asked."""

    agent: str
    number: int
    epoch: int
    asked: bool
    certainty: str
    renewed_at: datetime
    expires_at: datetime
    declared_at: datetime | None


@dataclass(frozen=True)
class Earlier:
    """Another approval: of the very same action, or asked by the same agent on the same task."""

    approval_id: str
    question: str
    same_action: bool
    status: str
    mark: str
    decision: str
    granted: bool | None
    decided_by: str
    at: datetime


@dataclass(frozen=True)
class Use:
    """The effect that a grant was used for."""

    effect_key: str
    agent: str
    status: str
    at: datetime


@dataclass(frozen=True)
class Rule:
    """A rule that somebody made from the approval."""

    words: str
    made_by: str
    until: datetime | None
    holds: bool


@dataclass(frozen=True)
class ApprovalState:
    """What can change on the page; `due` is when time alone changes it next.

    `words` are those of the cards. `usable_until` is set while a grant can be used, `denied_until` while a
    denial holds. `earlier_round`: the task was reopened since. `alone`: self-approval is forbidden, and off
    because one person alone can decide this.
    """

    words: Mapping[str, Any]
    role: str
    alone: bool
    task_status: str
    standing: Standing | None
    usable_until: datetime | None
    denied_until: datetime | None
    lifted_at: datetime | None
    lifted_by: str
    closed_at: datetime | None
    withdrawn_by: str
    withdrawal_reason: str
    earlier_round: bool
    use: Use | None
    rules: tuple[Rule, ...]
    earlier: tuple[Earlier, ...]
    due: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Fixed:
    """What never changes: the whole action, what it changes, and what policy said when it was asked."""

    arguments: Any
    lines: int
    difference: Difference | None
    action_digest: str
    because: str
    listed: str


def read(organization_id: UUID, approval_id: UUID) -> ApprovalState | None:
    """The page of an approval of this organization; None when there is none."""
    known = Approval.objects.select_related(
        "task", "requested_by", "decided_by_user", "organization", "denial_lifted_by", "withdrawn_by"
    )
    found = known.filter(pk=approval_id, organization_id=organization_id)
    approval = cards.with_action(found).first()
    if approval is None:
        return None
    now, barred = clock(), cards.owners_barred([approval])
    role = Role(approval.required_role)
    forbids = approval.organization.forbid_self_approval
    standing = _standing(approval, now)
    rules = _rules(approval, now)
    usable = grants.good_until(approval) if grants.is_usable(approval, now) else None
    denied = _denied_until(approval, now)
    moments = [usable, denied, approval.expires_at, *(rule.until for rule in rules)]
    lifter = approval.denial_lifted_by
    return ApprovalState(
        words=cards.words(approval, now, barred.get(approval.pk, "")),
        role=role,
        alone=forbids and not deciders.self_approval_is_forbidden(approval.organization, role),
        task_status=approval.task.status if approval.task else "",
        standing=standing,
        usable_until=usable,
        denied_until=denied,
        lifted_at=approval.denial_lifted_at,
        lifted_by=lifter.email if lifter else "",
        closed_at=approval.closed_at,
        withdrawn_by=approval.withdrawn_by.email if approval.withdrawn_by else "",
        withdrawal_reason=approval.withdrawal_reason,
        earlier_round=approval.task is not None and approval.round < approval.task.round,
        use=_use(approval),
        rules=rules,
        earlier=_earlier(approval, now),
        due=min((moment for moment in moments if moment is not None and moment > now), default=None),
    )


def refresh(organization_id: UUID, approval_id: UUID, state: ApprovalState) -> ApprovalState:
    """The same page with the lease read anew: heartbeats write no events, and jeopardy comes with time."""
    approval = Approval.objects.only("task_id", "run_id").get(pk=approval_id, organization_id=organization_id)
    return replace(state, standing=_standing(approval, clock()))


def read_fixed(approval_id: UUID) -> Fixed:
    """What never changes of an approval that exists."""
    approval = Approval.objects.get(pk=approval_id)
    action, verdict = approval.action, approval.verdict or {}
    entry = verdict.get("tool_entry")
    listed = f"{entry['kind']} ({entry['tool']} on {entry['server']})" if entry else ""
    html = pretty_html(action["arguments"]) if action else ""
    return Fixed(
        arguments=html,
        lines=html.count("\n") + 1,
        difference=difference(action["arguments"]) if action else None,
        action_digest=approval.action_digest or "",
        because=verdict.get("because", ""),
        listed=listed,
    )


def _standing(approval: Approval, now: datetime) -> Standing | None:
    if approval.task_id is None:
        return None
    open_runs = Run.objects.filter(task_id=approval.task_id, ended_at=None)
    run = open_runs.select_related("lease", "principal").first()
    if run is None:
        return None
    return Standing(
        agent=run.principal.name,
        number=run.number,
        epoch=run.epoch,
        asked=run.pk == approval.run_id,
        certainty=certainty(run.lease, now, settings.JEOPARDY_SHARE),
        renewed_at=run.lease.renewed_at,
        expires_at=run.lease.expires_at,
        declared_at=run.lease.jeopardy_declared_at,
    )


def _denied_until(approval: Approval, now: datetime) -> datetime | None:
    if approval.granted is not False or approval.denial_lifted_at or approval.ended_at is None:
        return None
    until: datetime = approval.ended_at + grants.DENIAL_HOLDS
    return until if until > now else None


def _use(approval: Approval) -> Use | None:
    effect = (
        Effect.objects.filter(approval=approval)
        .exclude(status=EffectStatus.REFUSED)
        .select_related("principal")
        .defer("action")
        .first()
    )
    if effect is None:
        return None
    return Use(effect.effect_key, effect.principal.name, effect.status, effect.created_at)


def _rules(approval: Approval, now: datetime) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            words=str(rule),
            made_by=rule.made_by.email,
            until=rule.expires_at,
            holds=rule.ended_at is None and (rule.expires_at is None or rule.expires_at > now),
        )
        for rule in approval.rules_made.select_related("made_by").order_by("-id")
    )


def _earlier(approval: Approval, now: datetime) -> tuple[Earlier, ...]:
    """The newest others first."""
    others = Approval.objects.filter(organization_id=approval.organization_id).exclude(pk=approval.pk)
    others = others.defer("action", "context", "options").select_related("decided_by_user")
    same = Q(action_digest=approval.action_digest) if approval.action_digest else None
    by_it = (
        Q(task_id=approval.task_id, requested_by_id=approval.requested_by_id) if approval.task_id else None
    )
    found = {
        each.pk: each
        for which in (same, by_it)
        if which is not None
        for each in others.filter(which).order_by("-id")[:EARLIER_SHOWN]
    }
    newest = sorted(found.values(), key=lambda each: each.pk, reverse=True)[:EARLIER_SHOWN]
    return tuple(
        Earlier(
            approval_id=public_id("appr", each.pk),
            question=each.question,
            same_action=each.action_digest is not None and each.action_digest == approval.action_digest,
            status=str(cards.status_at(each, now)),
            mark=cards.mark(cards.status_at(each, now), each.granted),
            decision=each.decision or "",
            granted=each.granted,
            decided_by=each.decided_by_user.email if each.decided_by_user else "",
            at=each.ended_at or each.created_at,
        )
        for each in newest
    )
