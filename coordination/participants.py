"""What other apps add to the moves of coordination, without coordination importing them.

A participant is called inside the rule's transaction, after the task's row is locked.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from .fitting import Part
from .models import Task


@dataclass(frozen=True)
class Card:
    """Something of a task that a human can answer, or that was answered.

    `context` fills `template` and holds plain values, so that equal cards render equally. `key` is
    the DOM id, `role` who may answer, `until` the moment at which the card changes by itself; `open`
    is false once it has been answered or came to nothing. `task_id` is printed; empty without a task.
    """

    key: str
    template: str
    context: dict[str, Any]
    since: datetime
    role: str
    until: datetime | None = None
    open: bool = True
    task_id: str = ""


class Participant(Protocol):
    """The one protocol; every method may do nothing."""

    def task_ended(self, task: Task, *, because: str, actor_id: UUID) -> None:
        """The task was cancelled or taken over: what was still open for it ends."""

    def round_ended(self, task_id: UUID, *, because: str, actor_id: UUID) -> None:
        """The task was completed or reopened: what was granted in this round is not used any more."""

    def run_ended(self, run_ids: list[UUID]) -> None:
        """These runs ended in any way but success, with effects that have no outcome; their tasks are locked."""

    def heartbeat(self, task_id: UUID, since: datetime, until: datetime) -> dict[str, Part]:
        """Parts of the heartbeat's answer, for a run that has asked something: what ended in this time."""

    def context(self, task: Task) -> dict[str, Part]:
        """Parts of the working context of a task."""

    def needs_you(self, organization_id: UUID, limit: int) -> tuple[list[Card], int]:
        """What waits for a human, oldest first: at most `limit` cards, and how many there are."""

    def task_cards(self, task_id: UUID) -> list[Card]:
        """All that humans were asked about one task, oldest first, open or not."""

    def task_effects(self, task_id: UUID) -> list[Card]:
        """What was attempted on the world for one task, newest first; open while its outcome is not known."""

    def notices(self, organization_id: UUID) -> list[Card]:
        """What everybody of a role should know who looks at the board."""

    def page(self, address: str, organization_id: UUID, role: str) -> dict[str, str] | None:
        """The fragments of the page at an address (path and query), None when it is not one of theirs."""


_participants: list[Participant] = []


def register(participant: Participant) -> None:
    """Add a participant; called once by each app's `ready`."""
    _participants.append(participant)


def everyone() -> list[Participant]:
    """The participants, in the order of their registration."""
    return _participants


def notices(organization_id: UUID) -> tuple[Card, ...]:
    """What everyone has to say on the board."""
    return tuple(card for participant in everyone() for card in participant.notices(organization_id))


def round_ended(task_id: UUID, *, because: str, actor_id: UUID) -> None:
    """Tell everyone that a round of a locked task is over, in the transaction of its end."""
    for participant in everyone():
        participant.round_ended(task_id, because=because, actor_id=actor_id)


def run_ended(run_ids: list[UUID]) -> None:
    """Tell everyone of runs that ended with effects that have no outcome, in the transaction of their end."""
    for participant in everyone():
        participant.run_ended(run_ids)
