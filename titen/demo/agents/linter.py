"""The linter reads Python and needs nobody. It also keeps the queue filled."""

from titen.client import Run, Titen
from titen.demo import python_files
from titen.demo.places import Places
from titen.demo.refill import refill

from .pace import paced


def handle(titen: Titen, run: Run) -> None:
    """Do what the payload names, and complete with what came out."""
    places, report = Places.here(), paced(run)
    match run.task["payload"]:
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
