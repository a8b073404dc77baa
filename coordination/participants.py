"""What other apps add to the moves of coordination, without coordination importing them.

A participant is called inside the rule's transaction, after the task's row is locked.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from .models import Task


@dataclass(frozen=True)
class Card:
    """Something of a task that a human can answer, or that was answered.

    `context` fills `template` and holds plain values, so that equal cards render equally. `key` is
    the DOM id, `role` who may answer, `until` the moment at which the card changes by itself; `open`
    is false once it has been answered or came to nothing.
    """

    key: str
    template: str
    context: dict[str, Any]
    since: datetime
    role: str
    until: datetime | None = None
    open: bool = True


class Participant(Protocol):
    """The one protocol; every method may do nothing."""

    def task_ended(self, task: Task, *, because: str, actor_id: UUID) -> None:
        """The task was cancelled or taken over: what was still open for it ends."""

    def heartbeat(self, run_id: UUID, task_id: UUID) -> dict[str, Any]:
        """Parts of the heartbeat's answer, for a run that has asked something."""

    def context(self, task: Task) -> dict[str, Any]:
        """Parts of the working context of a task."""

    def needs_you(self, organization_id: UUID, limit: int) -> tuple[list[Card], int]:
        """What waits for a human, oldest first: at most `limit` cards, and how many there are."""

    def task_cards(self, task_id: UUID) -> list[Card]:
        """All that humans were asked about one task, oldest first, open or not."""


_participants: list[Participant] = []


def register(participant: Participant) -> None:
    """Add a participant; called once by each app's `ready`."""
    _participants.append(participant)


def everyone() -> list[Participant]:
    """The participants, in the order of their registration."""
    return _participants
