"""Who holds the tasks that wait for a human, and how certain their leases are."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from coordination.database import fetch_all
from titen.api.ids import public_id, read_id

from .statements import HOLDS


@dataclass(frozen=True)
class Hold:
    """The open run of a task. Nothing in it changes with a heartbeat but `certainty`."""

    agent: str
    epoch: int
    certainty: str


def read(task_ids: Iterable[str]) -> dict[str, Hold]:
    """The holds of tasks, by the printed id of each. Without one: nobody holds it."""
    ids: list[UUID] = sorted({found for each in task_ids if (found := read_id("task", each))})
    if not ids:
        return {}
    rows = fetch_all(HOLDS, {"tasks": ids})
    return {
        public_id("task", row["task_id"]): Hold(row["agent"], row["epoch"], row["certainty"]) for row in rows
    }
