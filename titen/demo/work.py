"""What every piece of work takes and gives."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Report = Callable[[int, str], None]
"""Called with a percentage and one line before each step. What it raises ends the work."""


@dataclass(frozen=True)
class Outcome:
    """What came out: a sentence for people, JSON for programs, and what proves it."""

    summary: str
    result: dict[str, Any]
    evidence: list[Any] = field(default_factory=list)


def each[T](items: Sequence[T], report: Report, *, done: int = 0) -> Iterator[T]:
    """The items one by one, each reported as it begins. `done` of them were dealt with before."""
    total = done + len(items)
    for number, item in enumerate(items, start=done):
        report(100 * number // total, f"{number + 1} of {total}: {item}")
        yield item


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
