"""Who sees which events of the log: lists, streams and webhooks ask here.

`events:read` opens the log; what an event is about needs the scope that opens that. Who holds a lease is
shown to its holder, to `leases:admin`, and to humans.
"""

from collections.abc import Set
from dataclasses import dataclass
from uuid import UUID

from .callers import EVERYTHING, Caller
from .database import Row

# The first word of a kind -> the scope that its events need; any other word: `principals:read`.
NEEDED = {
    "approval": "approvals:read",
    "checkpoint": "checkpoints:read",
    "comment": "tasks:read",
    "context": "contexts:read",
    "document": "leases:read",
    "effect": "tasks:read",
    "handoff": "handoffs:read",
    "lease": "leases:read",
    "message": "messages:read",
    "run": "tasks:read",
    "section": "leases:read",
    "task": "tasks:read",
    "webhook": "webhooks:manage",
}
OTHERWISE = "principals:read"


@dataclass(frozen=True, slots=True)
class Sight:
    """What a reader of an organization's log may see. `everything` is for humans and `*`."""

    organization_id: UUID
    reader_id: UUID | None
    scopes: Set[str]
    everything: bool = False

    def sees(self, kind: str) -> bool:
        """True where events of this kind are shown at all."""
        return self.everything or NEEDED.get(kind.partition(".")[0], OTHERWISE) in self.scopes

    @property
    def sees_holders(self) -> bool:
        """True where the actors of all lease events are shown."""
        return self.everything or "leases:admin" in self.scopes

    def hides_actor(self, row: Row) -> bool:
        """True where the event is shown without who did it."""
        return (
            row["kind"].startswith("lease.") and not self.sees_holders and row["actor_id"] != self.reader_id
        )


def sight_of(caller: Caller) -> Sight:
    """What a caller may see."""
    everything = caller.is_human or EVERYTHING in caller.scopes
    return Sight(caller.organization_id, caller.principal_id, caller.scopes, everything)
