"""The scribe writes documents, and publishes one. What it can't know, it asks."""

from dataclasses import replace

from titen.client import Run, Titen
from titen.demo import documents, publishing, static_files
from titen.demo.credentials import Credentials
from titen.demo.places import Places
from titen.demo.sections import editing
from titen.demo.work import Outcome

from .acting import outcome_of, settle
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
            outcome = _publish(
                titen, run, places, documents.changelog(places.checkout, places.changelog, report)
            )
        case {"job": "report"}:
            report(10, "asking for a title")
            title = run.ask_question(QUESTION).body
            findings = run.context.get("dependencies", [])
            outcome = documents.write_report(title, findings, places.results / "report.md", report)
        case {"job": "lint", "package": str(package)} if run.context.get("checkpoint"):
            outcome = _note(titen, run, places, package)
        case unknown:
            run.fail(f"The scribe knows no such job: {unknown}", retryable=False)
            return
    run.complete(outcome.summary, result=outcome.result, evidence=outcome.evidence)


def _publish(titen: Titen, run: Run, places: Places, drafted: Outcome) -> Outcome:
    """Put the changelog where others read it. Policy allows that, and asks nobody."""
    site = places.site("docs-site")
    settle(titen, run, lambda effect: publishing.holds(site, places.changelog))
    if not drafted.evidence:  # there is no log, so nothing to publish
        return drafted
    published = run.act(
        "publish",
        {"file": places.changelog.name, "sha256": static_files.sha256(places.changelog)},
        lambda effect: publishing.publish(places.changelog, site, paced(run, seconds=3)),
        server="docs-site",
        question="Publish the changelog?",
        effect_key=f"changelog, epoch {run.epoch}",
    )
    return replace(drafted, summary=f"{drafted.summary} {outcome_of(published).summary}")


def _note(titen: Titen, run: Run, places: Places, section: str) -> Outcome:
    """Write down what the linter found, and tell everybody which section that changes."""
    found = run.context["checkpoint"]["state"]
    lines = [found["summary"], *found["findings"]]
    key = Credentials.read(places.credentials).keys["scribe"]
    with editing(titen.base_url, key, places.notes.stem, section, run.task["title"]):
        outcome = documents.note(places.notes, section, lines, paced(run))
        answer_messages(titen, ("task", run.task["id"]), f"In the section {section} of {places.notes.name}.")
    return outcome
