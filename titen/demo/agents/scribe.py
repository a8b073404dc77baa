"""The scribe writes documents. What it can't know, it asks."""

from titen.client import Run, Titen
from titen.demo import documents
from titen.demo.credentials import Credentials
from titen.demo.places import Places
from titen.demo.sections import editing
from titen.demo.work import Outcome

from .asking import answer_to
from .mail import answer_messages
from .pace import paced

QUESTION = (
    "Which of these two names should the report use: “State of the checkout” or “Code in numbers”? "
    "Your answer becomes its title, as you write it."
)


def handle(titen: Titen, run: Run) -> None:
    """Do what the payload names, and complete with what came out."""
    places, report = Places.here(), paced(run)
    match run.task["payload"]:
        case {"job": "openapi"}:
            address = f"{titen.base_url}/api/openapi.json"
            outcome = documents.openapi(address, places.results / "openapi.json", report)
        case {"job": "changelog"}:
            outcome = documents.changelog(places.checkout, places.results / "changelog.md", report)
        case {"job": "report"}:
            report(10, "asking for a title")
            title = answer_to(run, QUESTION)
            findings = run.context.get("dependencies", [])
            outcome = documents.write_report(title, findings, places.results / "report.md", report)
        case {"job": "lint", "package": str(package)} if run.context.get("checkpoint"):
            outcome = _note(titen, run, places, package)
        case unknown:
            run.fail(f"The scribe knows no such job: {unknown}", retryable=False)
            return
    run.complete(outcome.summary, result=outcome.result, evidence=outcome.evidence)


def _note(titen: Titen, run: Run, places: Places, section: str) -> Outcome:
    """Write down what the linter found, and tell everybody which section that changes."""
    found = run.context["checkpoint"]["state"]
    lines = [found["summary"], *found["findings"]]
    key = Credentials.read(places.credentials).keys["scribe"]
    with editing(titen.base_url, key, places.notes.stem, section, run.task["title"]):
        outcome = documents.note(places.notes, section, lines, paced(run))
        answer_messages(titen, ("task", run.task["id"]), f"In the section {section} of {places.notes.name}.")
    return outcome
