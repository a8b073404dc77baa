"""What other apps add to the moves of coordination, without coordination importing them.

A participant is called inside the rule's transaction, after the task's row is locked.
"""

from typing import Any, Protocol
from uuid import UUID

from .models import Run, Task


class Participant(Protocol):
    """The one protocol; every method may do nothing."""

    def task_ended(self, task: Task, *, because: str) -> None:
        """The task was cancelled or taken over: what was still open for it ends."""

    def heartbeat(self, run_id: UUID, task_id: UUID) -> dict[str, Any]:
        """Parts of the heartbeat's answer, for a run that has asked something."""

    def context(self, task: Task) -> dict[str, Any]:
        """Parts of the working context of a task."""

    def waits_for(self, task: Task) -> list[dict[str, Any]]:
        """What a blocked task waits for, beyond its blockers' sentences."""

    def run_ended(self, run: Run) -> None:
        """A run ended in another way than success."""


_participants: list[Participant] = []


def register(participant: Participant) -> None:
    """Add a participant; called once by each app's `ready`."""
    _participants.append(participant)


def everyone() -> list[Participant]:
    """The participants, in the order of their registration."""
    return _participants
