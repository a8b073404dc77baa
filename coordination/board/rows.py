"""What a board shows, as plain values: equal rows render to equal bytes.

No value here is relative to now, and none belongs to one user.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from coordination.participants import Card

from .holds import Hold

# Rows of a list on one page.
PAGE = 50


@dataclass(frozen=True)
class Section[R]:
    """Rows of a list, the first ones unless `before` others are left out, and how many the list has (`CAP` stands
    for so many or more)."""

    rows: tuple[R, ...] = ()
    total: int = 0
    before: int = 0

    @property
    def more(self) -> int:
        """How many come after those that are shown."""
        return max(0, self.total - self.before - len(self.rows))

    @property
    def next_page(self) -> int:
        """The page on which those begin."""
        return (self.before + len(self.rows)) // PAGE + 1


@dataclass(frozen=True)
class RunningRow:
    """One run that is under way. `open_effects` have no outcome, and hold up its completion."""

    task_id: str
    title: str
    priority: int
    agent: str
    kind: str
    number: int
    attempt_count: int
    max_attempts: int
    progress: int
    status_line: str
    started_at: datetime
    renewed_at: datetime
    expires_at: datetime
    certainty: str
    open_effects: int


@dataclass(frozen=True)
class Wait:
    """One reason why a queued task is not ready; `until` when time alone ends it."""

    kind: str
    words: str
    until: datetime | None = None
    task_id: str = ""


@dataclass(frozen=True)
class QueueRow:
    """One task in the queue; ready when nothing keeps it."""

    task_id: str
    title: str
    priority: int
    capabilities: tuple[str, ...]
    created_at: datetime
    attempt_count: int
    max_attempts: int
    open_effects: int
    waits: tuple[Wait, ...] = ()


@dataclass(frozen=True)
class BlockerLine:
    """One open reason why a task is blocked."""

    kind: str
    sentence: str
    opened_at: datetime


@dataclass(frozen=True)
class BlockedRow:
    """One blocked task; `agent` still holds it until `expires_at`, or nobody does."""

    task_id: str
    title: str
    priority: int
    open_effects: int
    blockers: tuple[BlockerLine, ...]
    agent: str = ""
    expires_at: datetime | None = None
    certainty: str = ""


@dataclass(frozen=True)
class EndedRow:
    """One task that is over."""

    task_id: str
    title: str
    status: str
    finished_at: datetime
    agent: str
    run_count: int
    summary: str


@dataclass(frozen=True)
class BoardState:
    """One organization's board. `ended_lately` counts 24 hours; `due` is when time alone changes it next.

    `holds` are those of the tasks in `needs`; `notices` are what people should know who decide.
    """

    name: str
    slug: str
    notices: tuple[Card, ...]
    needs: Section[Card]
    holds: Mapping[str, Hold]
    running: Section[RunningRow]
    ready: Section[QueueRow]
    waiting: Section[QueueRow]
    blocked: Section[BlockedRow]
    ended: tuple[EndedRow, ...]
    ended_lately: int
    due: datetime | None = field(default=None, compare=False)

    @property
    def queued(self) -> int:
        """How many tasks are in the queue, ready or not."""
        return self.ready.total + self.waiting.total

    @property
    def is_empty(self) -> bool:
        """True when nothing was ever put into the queue here."""
        return not (self.running.total or self.queued or self.blocked.total or self.ended)
