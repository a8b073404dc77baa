"""What approvals add to the moves of coordination."""

from datetime import datetime
from uuid import UUID

from coordination import events
from coordination.fitting import Part
from coordination.models import Task
from coordination.models.fields import ClockNow
from coordination.participants import Card

from . import cards, context, effect_cards, grants, outcomes, pages_fragments
from .models import Approval, ApprovalStatus


class ApprovalsParticipant:
    """Ends what is pending when its task ends, and tells agents what was decided."""

    def task_ended(self, task: Task, *, because: str, actor_id: UUID) -> None:
        """Cancelled or taken over: nobody waits for these answers any more."""
        for approval in Approval.objects.filter(task=task, status=ApprovalStatus.PENDING).order_by("pk"):
            Approval.objects.filter(pk=approval.pk).update(
                status=ApprovalStatus.CANCELLED, ended_at=ClockNow()
            )
            events.record(
                "approval.cancelled",
                organization_id=approval.organization_id,
                actor_id=actor_id,
                task_id=task.pk,
                run_id=approval.run_id,
                subject_id=approval.pk,
                epoch=approval.epoch,
                approval=ApprovalStatus.CANCELLED,
                because=because,
            )
        grants.void_all(task.pk, because=because, actor_id=actor_id)

    def round_ended(self, task_id: UUID, *, because: str, actor_id: UUID) -> None:
        """Completed or reopened: grants that nobody used end."""
        grants.void_all(task_id, because=because, actor_id=actor_id)

    def run_ended(self, run_ids: list[UUID]) -> None:
        """What the run attempted and nobody reported is unknown."""
        outcomes.run_ended(run_ids)

    def heartbeat(self, task_id: UUID, since: datetime, until: datetime) -> dict[str, Part]:
        """The approvals of the run's task that ended in this time."""
        return {"resolved_approvals": context.resolved(task_id, since, until)}

    def context(self, task: Task) -> dict[str, Part]:
        """Decided approvals and effects, for whoever works on the task next."""
        return {"approvals": context.decided(task.pk), "effects": context.effects(task.pk)}

    def needs_you(self, organization_id: UUID, limit: int) -> tuple[list[Card], int]:
        """The pending approvals."""
        return cards.needs_you(organization_id, limit)

    def task_cards(self, task_id: UUID) -> list[Card]:
        """All approvals of a task."""
        return cards.task_cards(task_id)

    def task_effects(self, task_id: UUID) -> list[Card]:
        """The effects of a task."""
        return effect_cards.task_effects(task_id)

    def notices(self, organization_id: UUID) -> list[Card]:
        """What who decides should know."""
        return cards.notices(organization_id)

    def page(self, address: str, organization_id: UUID, role: str) -> dict[str, str] | None:
        """The list of approvals, and the page of one."""
        return pages_fragments.at(address, organization_id, role)
