"""What `up` says: steps with their seconds on standard error, results on standard output."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Numbered steps and single lines that never run into each other."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._number = 0
        self._open = False

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """`[2/6] title … 1.3 s`; left unfinished when the block raises."""
        self._number += 1
        self.line(f"[{self._number}/{self._steps}] {title} …", end="")
        self._open = True
        started = time.monotonic()
        yield
        seconds = f"{time.monotonic() - started:.1f} s"
        again = "" if self._open else f"[{self._number}/{self._steps}] {title}:"
        self.line(f"{again} {seconds}", goes_on=True)

    def line(self, text: str, *, end: str = "\n", goes_on: bool = False) -> None:
        """One line for the person at the terminal; `goes_on` finishes the line of the step."""
        before = "\n" if self._open and not goes_on else ""
        self._open = False
        sys.stderr.write(f"{before}{text}{end}")
        sys.stderr.flush()

    def result(self, text: str) -> None:
        """Output for a script that reads ours."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
