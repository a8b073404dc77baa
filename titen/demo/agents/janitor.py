"""The janitor does what can't be taken back, and only what a human has approved."""

from pathlib import Path

from titen.client import HeldLease, Run, Titen
from titen.demo import deployment
from titen.demo.places import Places
from titen.demo.work import Report

from .asking import decision_on
from .mail import answer_messages
from .pace import paced


def handle(titen: Titen, run: Run) -> None:
    """Do what the payload names, if it is approved."""
    places = Places.here()
    match run.task["payload"]:
        case {"job": "switch build", "service": str(service), "build": int(build)}:
            _switch_build(titen, run, places.service(service), build)
        case {"job": "remove scratch"}:
            _remove(run, places.scratch)
        case {"job": "confirm scratch"}:
            outcome = deployment.confirm_gone(places.scratch, paced(run))
            run.complete(outcome.summary, result=outcome.result)
        case unknown:
            run.fail(f"The janitor knows no such job: {unknown}", retryable=False)


def _switch_build(titen: Titen, run: Run, service: Path, build: int) -> None:
    """Switch while nobody else deploys the service: from the question on it stays as the question says."""
    current = deployment.current_build(service)
    if current == build:
        # An earlier attempt may have switched and not come to say so.
        kept = run.context.get("checkpoint") or {"state": {"from": current}}
        result = {"from": kept["state"]["from"], "to": build}
        run.complete(f"{service.name} runs build {build} already.", result=result)
        return
    with titen.lease("deploy", service.name, ttl_seconds=60, purpose=run.task["title"], wait=60) as lease:
        run.checkpoint({"service": service.name, "from": current, "to": build})
        _ask_and_switch(run, lease, service, current, build)
    answer_messages(titen, ("deploy", service.name), f"I am done: {service.name} is free.")


def _ask_and_switch(run: Run, lease: HeldLease, service: Path, current: int, build: int) -> None:
    run.progress(30, "waiting for a decision")
    verb = "back" if build < current else "forward"
    yes, no = f"Switch to build {build}", f"Stay on build {current}"
    question = f"Roll {service.name} {verb} to build {build}?"
    chosen = decision_on(
        run, question, [yes, no], context=f"Build {current} runs now. {run.task['description']}"
    )
    if _approved(run, chosen, yes):
        lease.renew()  # while a human thought, another may have revoked it
        outcome = deployment.switch_build(service, build, _guarded(run, lease))
        run.complete(outcome.summary, result=outcome.result)


def _remove(run: Run, folder: Path) -> None:
    run.progress(5, "waiting for a decision")
    what = deployment.describe(folder)
    chosen = decision_on(run, f"Remove {what}?", ["Remove", "Keep"], context=f"The folder is {folder}.")
    if _approved(run, chosen, "Remove"):
        if deployment.describe(folder) != what:
            run.release(f"{folder.name} has changed since I asked; what was approved is not what is there.")
            return
        outcome = deployment.remove(folder, _guarded(run))
        run.complete(outcome.summary, result=outcome.result)


def _approved(run: Run, chosen: str | None, yes: str) -> bool:
    """True to go on; else the run has been ended with what was decided."""
    if chosen is None:
        run.release("Nobody decided in time; I ask again.")
    elif chosen != yes:
        run.complete(f"Not done: “{chosen}” was decided.", result={"decision": chosen})
    return chosen == yes


def _guarded(run: Run, *leases: HeldLease) -> Report:
    """Progress that stops right before an act once there is no standing for it."""
    tell = paced(run)

    def report(percent: int, status: str) -> None:
        tell(percent, status)
        run.guard()
        for lease in leases:
            lease.guard()

    return report
