"""An approval as agents and the board's API see it."""

from typing import Any

from django.db.models import Prefetch, QuerySet

from coordination.times import stamp
from titen.api.ids import maybe_id, public_id

from .models import Approval, ApprovalStatus, Effect, EffectReport


def approval_json(approval: Approval, *, expired: bool = False, private: bool = True) -> dict[str, Any]:
    """The public fields. `expired` shows a pending one whose time is over as what it is.

    Not `private`: without the arguments of its action, whose digest stays.
    """
    ran_out = expired and approval.status == ApprovalStatus.PENDING
    status = ApprovalStatus.EXPIRED if ran_out else approval.status
    return {
        "id": public_id("appr", approval.pk),
        "task_id": maybe_id("task", approval.task_id),
        "run_id": maybe_id("run", approval.run_id),
        "epoch": approval.epoch,
        "round": approval.round,
        "requested_by": public_id("agent", approval.requested_by_id),
        "question": approval.question,
        "context": approval.context,
        "options": approval.options,
        "digest": approval.digest,
        "action": _action_json(approval.action, private),
        "action_digest": approval.action_digest,
        "kind": approval.kind or None,
        "risk": approval.risk,
        "on_expiry": approval.on_expiry,
        "valid_for_seconds": approval.valid_for_seconds,
        "required_role": approval.required_role,
        "status": str(status),
        "decision": approval.decision,
        "granted": approval.granted,
        "final": approval.granted is False and approval.denial_lifted_at is None,
        "fallback": approval.on_expiry if status == ApprovalStatus.EXPIRED else None,
        "reason": approval.reason,
        "decided_by_user_id": maybe_id("user", approval.decided_by_user_id),
        "created_at": stamp(approval.created_at),
        "expires_at": stamp(approval.expires_at),
        "ended_at": stamp(approval.expires_at if ran_out else approval.ended_at),
        "closed_at": stamp(approval.closed_at),
        "withdrawn_by_user_id": maybe_id("user", approval.withdrawn_by_id),
        "withdrawal_reason": approval.withdrawal_reason,
    }


def resolved_json(approval: Approval) -> dict[str, Any]:
    """How an approval ended, for a heartbeat: `href` has the rest."""
    pending = approval.status == ApprovalStatus.PENDING
    status = ApprovalStatus.EXPIRED if pending else ApprovalStatus(approval.status)
    printed = public_id("appr", approval.pk)
    return {
        "id": printed,
        "status": str(status),
        "action_digest": approval.action_digest,
        "decision": approval.decision,
        "granted": approval.granted,
        "final": approval.granted is False and approval.denial_lifted_at is None,
        "fallback": approval.on_expiry if status == ApprovalStatus.EXPIRED else None,
        "reason": approval.reason,
        "ended_at": stamp(approval.expires_at if pending else approval.ended_at),
        "href": f"/v1/approvals/{printed}",
    }


def effect_json(effect: Effect, *, private: bool) -> dict[str, Any]:
    """An effect with its reports, best fetched by `with_reports`. Not `private`: without the action's arguments."""
    reports = list(effect.reports.all())
    last = reports[-1] if reports else None
    return {
        "id": public_id("eff", effect.pk),
        "task_id": maybe_id("task", effect.task_id),
        "run_id": maybe_id("run", effect.run_id),
        "lease_id": public_id("lease", effect.lease_id),
        "principal_id": public_id("agent", effect.principal_id),
        "epoch": effect.epoch,
        "effect_key": effect.effect_key,
        "action": _action_json(effect.action, private),
        "action_digest": effect.action_digest,
        "kind": effect.kind,
        "status": effect.status,
        "code": effect.code or None,
        "verdict": effect.verdict,
        "approval_id": maybe_id("appr", effect.approval_id),
        "late": last.late if last else False,
        "note": last.note if last else "",
        "reconciled_by_user_id": maybe_id("user", last.reported_by.user_id) if last else None,
        "reports": [report_json(report) for report in reports],
        "created_at": stamp(effect.created_at),
        "outcome_at": stamp(effect.outcome_at),
    }


def with_reports[Q: QuerySet[Any]](found: Q) -> Q:
    """Effects with their reports: one query more, however many effects there are."""
    return found.prefetch_related(Prefetch("reports", EffectReport.objects.select_related("reported_by")))


def report_json(report: EffectReport) -> dict[str, Any]:
    """What somebody reported about the outcome of an effect."""
    return {
        "id": public_id("rpt", report.pk),
        "was": report.was,
        "outcome": report.outcome,
        "note": report.note,
        "late": report.late,
        "reported_by": public_id("agent", report.reported_by_id),
        "reconciled_by_user_id": maybe_id("user", report.reported_by.user_id),
        "created_at": stamp(report.created_at),
    }


def _action_json(action: dict[str, Any] | None, private: bool) -> dict[str, Any] | None:
    if action is None or private:
        return action
    return {**action, "arguments": None}
