"""Approvals as cards for the board and the task page."""

from uuid import UUID

from coordination.participants import Card
from titen.api.ids import maybe_id, public_id

from .models import Approval, ApprovalStatus

TEMPLATE = "approvals/card.html"


def needs_you(organization_id: UUID, limit: int) -> tuple[list[Card], int]:
    """The pending approvals, oldest first: at most `limit` cards, and how many there are."""
    found = Approval.objects.filter(organization_id=organization_id, status=ApprovalStatus.PENDING).order_by(
        "id"
    )
    cards = [card(approval) for approval in found.select_related("task", "requested_by")[:limit]]
    return cards, len(cards) if len(cards) < limit else found.count()


def task_cards(task_id: UUID) -> list[Card]:
    """All approvals of a task, oldest first."""
    found = Approval.objects.filter(task_id=task_id).order_by("created_at", "id")
    return [card(each) for each in found.select_related("task", "requested_by", "decided_by_user")]


def card(approval: Approval) -> Card:
    """One approval; with its options as buttons while it is pending."""
    pending = approval.status == ApprovalStatus.PENDING
    decider = approval.decided_by_user if not pending else None
    return Card(
        key=public_id("appr", approval.pk),
        template=TEMPLATE,
        context={
            "approval_id": public_id("appr", approval.pk),
            "task_id": maybe_id("task", approval.task_id),
            "title": approval.task.title if approval.task else "",
            "agent": approval.requested_by.name,
            "epoch": approval.epoch,
            "question": approval.question,
            "about": approval.context,
            "options": list(approval.options),
            "digest": approval.digest,
            "status": approval.status,
            "decision": approval.decision,
            "decided_by": decider.email if decider else "",
            "reason": approval.reason,
            "since": approval.created_at,
            "until": approval.expires_at,
            "ended_at": approval.ended_at,
        },
        since=approval.created_at,
        role=approval.required_role,
        until=approval.expires_at if pending else None,
        open=pending,
    )
