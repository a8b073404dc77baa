"""What an agent wants to do to the world, and the digest that an approval of exactly that is bound to."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from coordination.canonical import digest

from .models import Kind

# As MCP names tools and most servers name themselves. No letter here looks like another one.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,199}")
_STRICTNESS = list(reversed(Kind))


def stricter(one: Kind, other: Kind) -> Kind:
    """The stricter of two kinds."""
    return max(one, other, key=_STRICTNESS.index)


@dataclass(frozen=True)
class Action:
    """A tool, maybe the server that offers it, and its arguments.

    `claimed` is the kind that the agent says it is: it can only make policy's word stricter.
    """

    tool: str
    server: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    claimed: Kind | None = None

    @property
    def content(self) -> dict[str, Any]:
        """What is stored, shown and digested: `{tool, server, arguments}`; `server` is null without one."""
        return {"tool": self.tool, "server": self.server, "arguments": self.arguments}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the RFC 8785 form of `content`, as 64 hexadecimal digits (`coordination.canonical`)."""
        return digest(self.content)
