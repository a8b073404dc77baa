"""Effects as cards for the task page."""

from typing import Any
from uuid import UUID

from django.db.models import Prefetch

from coordination.models import Role
from coordination.participants import Card
from titen.api.ids import maybe_id, public_id

from .cards import call, with_action
from .models import Effect, EffectReport, Kind
from .outcomes import FOUND_OUT, OPEN
from .transitions import EFFECT

TEMPLATE = "approvals/effect.html"
SHOWN = 50

# Why an attempt was refused, as people say it.
REFUSALS = {
    "NOT_HOLDER": "somebody else held the run",
    "LEASE_EXPIRED": "its lease had run out",
    "LEASE_SUPERSEDED": "its lease had been ended",
    "LEASE_IN_JEOPARDY": "its lease was in jeopardy",
    "STALE_EPOCH": "it came with an epoch that is not current",
    "ALREADY_COMPLETED": "the run was over",
    "TASK_CANCELLED": "the task was cancelled",
    "CONFLICT": "the run waited for an answer, or the key was used before",
    "POLICY_DENIED": "policy denies it",
    "APPROVAL_REQUIRED": "nobody had approved it",
    "APPROVAL_PENDING": "the approval was not decided yet",
    "APPROVAL_DENIED": "a human had denied it",
    "APPROVAL_EXPIRED": "the approval had expired",
    "APPROVAL_VOID": "the approval was void",
    "ALREADY_CONSUMED": "the approval was used up",
    "DIGEST_MISMATCH": "the approval was for another action",
    "NOT_FOUND": "the approval that it named does not exist here",
}


def task_effects(task_id: UUID) -> list[Card]:
    """The newest effects of a task, those without an outcome first."""
    reports = EffectReport.objects.select_related("reported_by__user")
    found = (
        Effect.objects.filter(task_id=task_id)
        .select_related("principal")
        .prefetch_related(Prefetch("reports", reports))
    )
    rows = list(with_action(found).order_by("-id")[:SHOWN])
    missing = found.filter(status__in=OPEN).exclude(pk__in=[row.pk for row in rows])
    rows += with_action(missing).order_by("-id")[:SHOWN]
    return [_card(row) for row in sorted(rows, key=lambda row: row.status not in OPEN)]


def _report(report: EffectReport) -> dict[str, Any]:
    who = report.reported_by
    return {
        "outcome": report.outcome,
        "note": report.note,
        "late": report.late,
        "by": who.user.email if who.user else who.name,
        "at": report.created_at,
    }


def _card(effect: Any) -> Card:
    open_now = effect.status in OPEN
    return Card(
        key=public_id("eff", effect.pk),
        template=TEMPLATE,
        context={
            "effect_id": public_id("eff", effect.pk),
            "agent": effect.principal.name,
            "epoch": effect.epoch,
            "effect_key": effect.effect_key,
            "call": call(effect),
            "status": effect.status,
            "code": effect.code,
            "refusal": REFUSALS.get(effect.code, effect.code),
            "because": effect.verdict["because"],
            "holds_up": open_now and Kind(effect.kind).holds_up,
            "reports": [_report(report) for report in effect.reports.all()],
            "approval_id": maybe_id("appr", effect.approval_id),
            "outcomes": [each for each in FOUND_OUT if EFFECT[each].allows(effect.status)],
            "since": effect.created_at,
            "outcome_at": effect.outcome_at,
        },
        since=effect.created_at,
        role=Role.OPERATOR,
        open=open_now,
    )
