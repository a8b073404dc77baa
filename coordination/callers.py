"""Who calls: the one description of a principal that rules take, however it came in."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from titen.errors import Refused

from . import statements

# One scope a noun and verb; `*` stands for all of them.
SCOPES = [
    "tasks:read",
    "tasks:write",
    "tasks:claim",
    "leases:read",
    "leases:write",
    "leases:admin",
    "handoffs:read",
    "handoffs:write",
    "checkpoints:read",
    "checkpoints:write",
    "contexts:read",
    "contexts:write",
    "messages:read",
    "messages:write",
    "effects:write",
    "approvals:read",
    "approvals:request",
    "comments:write",
    "comments:answer",
    "events:read",
    "webhooks:manage",
    "principals:read",
    "keys:manage",
    "fencing:verify",
    "aap:provision",
    "mcp:call",
]
EVERYTHING = "*"


@dataclass(frozen=True)
class Caller:
    """A known principal, with what its key (or its membership) lets it do."""

    principal_id: UUID
    organization_id: UUID
    name: str
    kind: str
    scopes: frozenset[str]
    capabilities: tuple[str, ...]
    key_id: UUID | None = None
    user_id: UUID | None = None
    role: str | None = None

    def has(self, scope: str) -> bool:
        """True when the key carries the scope; a human's rights are the role's, not scopes."""
        return scope in self.scopes or EVERYTHING in self.scopes

    def require(self, scope: str) -> None:
        """Refuse with `FORBIDDEN`, naming the scope, unless the caller has it."""
        if not self.has(scope):
            raise Refused("FORBIDDEN", scope=scope, details={"scope": scope})

    @property
    def is_human(self) -> bool:
        """True for a person in a browser session."""
        return self.kind == "human"


@dataclass(frozen=True)
class Credential:
    """What a hot verb needs to find its caller inside its own statement."""

    clause: str
    params: dict[str, Any] = field(default_factory=dict)


def by_key(digest: bytes, scope: str) -> Credential:
    """The holder of the API key with this SHA-256, if the key carries `scope`."""
    return Credential(statements.CALLER_BY_KEY, {"digest": digest, "scopes": [scope, EVERYTHING]})


def by_principal(principal_id: UUID) -> Credential:
    """A principal that the door has authenticated already."""
    return Credential(statements.CALLER_BY_PRINCIPAL, {"principal": principal_id})
