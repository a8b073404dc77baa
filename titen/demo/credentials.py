"""The demo's logins and keys, in one file that only this user can read."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Credentials:
    """Passwords by e-mail address, API keys by the name of the agent."""

    passwords: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Credentials":
        """What the file holds; nothing when there is none."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return cls()

    def write(self, path: Path) -> None:
        """Replace the file in one step; nobody else could read it at any moment."""
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file, indent=2)
        draft.replace(path)
