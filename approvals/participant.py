"""What approvals add to the moves of coordination."""

from typing import Any
from uuid import UUID

from coordination.models import Run, Task
from coordination.models.fields import ClockNow

from .models import DECIDED, Approval, ApprovalStatus
from .shapes import approval_json


class ApprovalsParticipant:
    """Ends what is pending when its task ends, and tells agents what was decided."""

    def task_ended(self, task: Task, *, because: str) -> None:
        """Cancelled or taken over: nobody waits for these answers any more."""
        Approval.objects.filter(task=task, status=ApprovalStatus.PENDING).update(
            status=ApprovalStatus.CANCELLED, ended_at=ClockNow()
        )

    def heartbeat(self, run_id: UUID, task_id: UUID) -> dict[str, Any]:
        """The ended approvals of the run's task, oldest first."""
        ended = (
            Approval.objects.filter(task_id=task_id)
            .exclude(status=ApprovalStatus.PENDING)
            .order_by("ended_at")
        )
        return {"resolved_approvals": [approval_json(approval) for approval in ended]}

    def context(self, task: Task) -> dict[str, Any]:
        """Decided approvals, for whoever works on the task next."""
        decided = Approval.objects.filter(task=task, status__in=DECIDED).order_by("ended_at")
        return {"approvals": [approval_json(approval) for approval in decided]}

    def waits_for(self, task: Task) -> list[dict[str, Any]]:
        """Nothing beyond the blockers' sentences."""
        return []

    def run_ended(self, run: Run) -> None:
        """Approvals outlive the run that asked: they belong to the task."""
