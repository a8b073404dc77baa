"""The linter reads Python and needs nobody. It also keeps the queue filled."""

import logging
from contextlib import suppress

from titen.client import Conflict, NotFound, Run, Titen
from titen.demo import python_files
from titen.demo.places import Places
from titen.demo.refill import refill
from titen.demo.work import Outcome

from .mail import read_messages
from .pace import paced

PATIENCE_SECONDS = 60


def handle(titen: Titen, run: Run) -> None:
    """Do what the payload names, and complete with what came out."""
    places, report = Places.here(), paced(run)
    for line in read_messages(titen):
        logging.info("told: %s", line)
    match run.task["payload"]:
        case {"job": "lint", "package": str(package), "notes_by": str(writer)}:
            found = python_files.lint(places.checkout / package, paced(run, seconds=8))
            _hand_over(titen, run, found, writer)
            return
        case {"job": "lint", "package": str(package)}:
            outcome = python_files.lint(places.checkout / package, report)
        case {"job": "docstrings"}:
            outcome = python_files.docstrings(places.checkout, report)
        case {"job": "todos"}:
            outcome = python_files.todos(places.checkout, report)
        case {"job": "migration names"}:
            outcome = python_files.migration_names(places.checkout, report)
        case {"job": "line counts"}:
            outcome = python_files.line_counts(places.checkout, places.line_counts, report)
        case {"job": "refill", "round": int(number)}:
            outcome = refill(titen, run, number, paced(run, seconds=3))
        case unknown:
            run.fail(f"The linter knows no such job: {unknown}", retryable=False)
            return
    run.complete(outcome.summary, result=outcome.result, evidence=outcome.evidence)


def _hand_over(titen: Titen, run: Run, outcome: Outcome, writer: str) -> None:
    """Let somebody else write down what was found; end it here when nobody comes."""
    run.progress(100, f"offered to the {writer}")
    handoff = run.hand_off(
        writer,
        message=f"{outcome.summary} Please note it; the findings are in the checkpoint.",
        checkpoint={"summary": outcome.summary, **outcome.result},
        wait=PATIENCE_SECONDS,
    )
    if handoff["status"] == "accepted":
        with suppress(Conflict):  # who was so quick that nobody holds it any more
            titen.send("Where will the notes stand?", resource=("task", run.task["id"]))
        return
    if handoff["status"] == "pending":
        try:
            titen.withdraw(handoff, f"Nobody came for {PATIENCE_SECONDS} s.")
        except NotFound:  # accepted just now
            return
    run.complete(f"{outcome.summary} Nobody had time to note it.", result=outcome.result)
