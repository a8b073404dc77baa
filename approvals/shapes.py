"""An approval as agents and the board's API see it."""

from typing import Any

from coordination.times import stamp
from titen.api.ids import maybe_id, public_id

from .models import Approval, ApprovalStatus


def approval_json(approval: Approval, *, expired: bool = False) -> dict[str, Any]:
    """The public fields. `expired` shows a pending one whose time is over as what it is."""
    status = (
        ApprovalStatus.EXPIRED if expired and approval.status == ApprovalStatus.PENDING else approval.status
    )
    return {
        "id": public_id("appr", approval.pk),
        "task_id": maybe_id("task", approval.task_id),
        "run_id": maybe_id("run", approval.run_id),
        "epoch": approval.epoch,
        "requested_by": public_id("agent", approval.requested_by_id),
        "question": approval.question,
        "context": approval.context,
        "options": approval.options,
        "digest": approval.digest,
        "required_role": approval.required_role,
        "status": str(status),
        "decision": approval.decision,
        "reason": approval.reason,
        "decided_by_user_id": maybe_id("user", approval.decided_by_user_id),
        "created_at": stamp(approval.created_at),
        "expires_at": stamp(approval.expires_at),
        "ended_at": stamp(approval.expires_at if expired else approval.ended_at),
    }
