"""Progress at a pace that people can watch."""

import time

from titen.client import Run
from titen.demo.work import Report

SECONDS = 12.0
"""How long a task takes: the real work of the demo is over in an instant."""


def paced(run: Run, seconds: float = SECONDS) -> Report:
    """Reports to the board, pauses in proportion to what was done, and waits while a human says `pause`."""
    reached: int | None = None

    def report(percent: int, status: str) -> None:
        nonlocal reached
        run.progress(percent, status)
        if reached is not None:
            time.sleep(max(0, percent - reached) / 100 * seconds)
        reached = max(percent, reached or 0)
        run.wait_while_paused()

    return report
