"""`python -m titen.demo.agents NAME`: one agent, at work until it is told to stop.

It needs TITEN_URL, and TITEN_VAR for its key in `demo.json`.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial

from titen.client import Run, Titen
from titen.demo.credentials import Credentials
from titen.demo.places import Places
from titen.demo.team import AGENTS as TEAM

from . import archivist, janitor, linter, scribe

AGENTS: dict[str, Callable[[Titen, Run], None]] = {
    "linter": linter.handle,
    "archivist": archivist.handle,
    "scribe": scribe.handle,
    "janitor": janitor.handle,
}


def main(name: str) -> None:
    """Claim and do one task after the other. SIGTERM gives the current one back."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    key = Credentials.read(Places.here().credentials).keys[name]
    with Titen(os.environ["TITEN_URL"], key) as titen:
        titen.work(
            partial(_handle, AGENTS[name], titen),
            capabilities=TEAM[name].capabilities,
            handoffs=bool(TEAM[name].takes_over),
        )


def _handle(handle: Callable[[Titen, Run], None], titen: Titen, run: Run) -> None:
    logging.info("begun: %s", run.task["title"])
    handle(titen, run)
    logging.info("%s: %s", run.outcome, run.task["title"])


if __name__ == "__main__":
    main(sys.argv[1])
