"""A program under supervision, as data."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Program:
    """One command line and how to treat it.

    `environment` is added to our own. `before` runs (in a thread) ahead of every start, so it also
    clears up after a crash. `stop_seconds` after `stop_signal` the whole process group is killed.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    before: Callable[[], None] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
