"""The janitor does what can't be taken back: exactly what a human has approved, once, or it finds another way."""

from pathlib import Path

from titen.client import (
    ApprovalDenied,
    ApprovalExpired,
    Effect,
    HeldLease,
    PolicyDenied,
    Run,
    Titen,
    TitenError,
)
from titen.demo import deployment
from titen.demo.places import Places
from titen.demo.work import Outcome, Report

from .acting import no_of, outcome_of, settle
from .mail import answer_messages
from .pace import paced


def handle(titen: Titen, run: Run) -> None:
    """Do what the payload names, if it is approved."""
    places = Places.here()
    match run.task["payload"]:
        case {"job": "switch build", "service": str(service), "build": int(build)}:
            _switch_build(titen, run, places, places.service(service), build)
        case {"job": "remove scratch"}:
            _remove(titen, run, places)
        case {"job": "confirm scratch"}:
            outcome = deployment.confirm_gone(places.scratch, paced(run))
            run.complete(outcome.summary, result=outcome.result)
        case unknown:
            run.fail(f"The janitor knows no such job: {unknown}", retryable=False)


def _switch_build(titen: Titen, run: Run, places: Places, service: Path, build: int) -> None:
    """Switch while nobody else deploys the service: from the question on it stays as the question says."""
    current = deployment.current_build(service)
    # An earlier attempt may have switched and not come to say so.
    settle(titen, run, lambda effect: effect["action"]["tool"] == "label" or current == build)
    if current == build:
        kept = run.context.get("checkpoint") or {"state": {"from": current}}
        result = {"from": kept["state"]["from"], "to": build}
        run.complete(f"{service.name} runs build {build} already.", result=result)
        return
    with titen.lease("deploy", service.name, ttl_seconds=60, purpose=run.task["title"], wait=60) as lease:
        run.checkpoint({"service": service.name, "from": current, "to": build})
        _deploy(run, places, lease, service, current, build)
    answer_messages(titen, ("deploy", service.name), f"I am done: {service.name} is free.")


def _deploy(run: Run, places: Places, lease: HeldLease, service: Path, current: int, build: int) -> None:
    def switch(effect: Effect) -> Outcome:
        try:
            lease.renew()  # while a human thought, another may have revoked it
            return deployment.switch_build(service, build, _guarded(run, lease))
        except (TitenError, FileNotFoundError) as error:
            effect.failed(f"Build {current} still runs: {error}")
            raise

    run.progress(30, "waiting for a decision")
    verb = "back" if build < current else "forward"
    try:
        outcome = run.act(
            "deploy",
            {"service": service.name, "before": {"build": current}, "after": {"build": build}},
            switch,
            server="release",
            question=f"Roll {service.name} {verb} to build {build}?",
            context=f"Build {current} runs now. {run.task['description']}",
            on_expiry="deny",
            effect_key=f"build {build}, epoch {run.epoch}",
        )
    except (ApprovalDenied, PolicyDenied) as refused:
        _leave(run, places, service.name, f"stays on build {current}: {no_of(refused)}")
    except ApprovalExpired:
        run.release("Nobody decided in time; I ask again.")
    else:
        done = outcome_of(outcome)
        run.complete(done.summary, result=done.result)


def _remove(titen: Titen, run: Run, places: Places) -> None:
    folder = places.scratch
    seen = deployment.contents(folder)
    settle(titen, run, lambda effect: effect["action"]["tool"] == "label" or not folder.exists())

    def remove(effect: Effect) -> Outcome | None:
        if deployment.contents(folder) == seen:
            return deployment.remove(folder, _guarded(run))
        effect.failed("What was approved is not what is there.")
        return None

    run.progress(5, "waiting for a decision")
    try:
        outcome = run.act(
            "delete-folder",
            {"folder": folder.name, **seen},
            remove,
            server="files",
            question=f"Remove {deployment.describe(folder)}?",
            context=f"The folder is {folder}. It can't be brought back.",
            on_expiry="deny",
            effect_key=f"{folder.name}, epoch {run.epoch}",
        )
    except (ApprovalDenied, PolicyDenied) as refused:
        _leave(run, places, folder.name, f"is kept: {no_of(refused)}")
    except ApprovalExpired:
        run.release("Nobody decided in time; I ask again.")
    else:
        if outcome is None:
            run.release(f"{folder.name} has changed since I asked; I ask again.")
        else:
            done = outcome_of(outcome)
            run.complete(done.summary, result=done.result)


def _leave(run: Run, places: Places, subject: str, why: str) -> None:
    """The other way: nothing changes, and a label says why. Labels are harmless, so policy asks nobody."""
    run.act(
        "label",
        {"subject": subject, "text": why},
        lambda effect: deployment.label(places.labels, subject, why),
        server="files",
        question=f"Label {subject}?",
        effect_key=f"label {subject}, epoch {run.epoch}",
    )
    run.complete(f"Not done: {subject} {why}.", result={"subject": subject, "label": why})


def _guarded(run: Run, *leases: HeldLease) -> Report:
    """Progress that stops right before an act once there is no standing for it."""
    tell = paced(run)

    def report(percent: int, status: str) -> None:
        tell(percent, status)
        run.guard()
        for lease in leases:
            lease.guard()

    return report
