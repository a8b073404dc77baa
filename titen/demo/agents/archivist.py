"""The archivist copies, checksums and uploads files. Once in a while it is killed, and goes on afterwards; or
the mirror hangs up on it, and nobody knows whether the upload has happened."""

import os
import signal

from titen.client import Effect, EffectRecord, Run, Titen
from titen.demo import publishing, static_files
from titen.demo.places import Places
from titen.demo.work import Outcome

from .acting import find_out, outcome_of, settle
from .pace import paced

CHECKSUM_SECONDS = 24.0


def handle(titen: Titen, run: Run) -> None:
    """Do what the payload names, and complete with what came out."""
    places, report = Places.here(), paced(run)
    match run.task["payload"]:
        case {"job": "copy", "packages": [*packages]}:
            folders = [places.checkout / name for name in packages]
            outcome = static_files.copy(folders, places.scratch, report)
        case {"job": "check vendored"}:
            outcome = static_files.check_vendored(places.checkout / "static", report)
        case {"job": "checksum", "die_at_percent": int(percent)}:
            outcome = _checksum(run, places, die_at=percent)
        case {"job": "upload manifest", "hangs": bool(hangs)}:
            outcome = _upload(titen, run, places, hangs=hangs)
        case unknown:
            run.fail(f"The archivist knows no such job: {unknown}", retryable=False)
            return
    run.complete(outcome.summary, result=outcome.result, evidence=outcome.evidence)


def _checksum(run: Run, places: Places, *, die_at: int) -> Outcome:
    """Go on where the last attempt stopped; the first one is killed at `die_at` percent."""
    tell = paced(run, CHECKSUM_SECONDS)
    earlier = run.context.get("attempts", [])
    if earlier:
        last = earlier[0]
        run.comment(
            f"Attempt {last['number']} ended {last['status']} at {last['progress']} % "
            f"(“{last['status_line']}”). I go on with what it had written."
        )

    def report(percent: int, status: str) -> None:
        tell(percent, status)
        if percent >= die_at and not earlier:
            run.heartbeat()  # so that the next attempt knows how far this one came
            os.kill(os.getpid(), signal.SIGKILL)

    return static_files.checksum(places.static, places.manifest, report, go_on=bool(earlier))


def _upload(titen: Titen, run: Run, places: Places, *, hangs: bool) -> Outcome:
    """Send the manifest to the mirror. Policy allows that; what came of it has to be known before the end."""
    file, mirror = places.manifest, places.site("mirror")
    sent: list[str] = []

    def arrived(effect: EffectRecord) -> bool:
        return publishing.holds(mirror, file)

    def upload(effect: Effect) -> Outcome:
        sent.append(effect.id)
        return publishing.publish(file, mirror, paced(run), hangs=hangs)

    settle(titen, run, arrived)
    try:
        uploaded = run.act(
            "upload",
            {"file": file.name, "sha256": static_files.sha256(file)},
            upload,
            server="mirror",
            question="Upload the manifest?",
            effect_key=f"manifest, epoch {run.epoch}",
        )
        return outcome_of(uploaded)
    except publishing.HungUp as error:
        effect = find_out(titen, run, sent[0], arrived)
        if effect["status"] != "succeeded":
            raise
        return Outcome(f"{file.name} is on {mirror.name}, although {error}.", {"note": effect["note"]})
