"""Work that others see: a file on a (pretended) site or mirror."""

import shutil
from pathlib import Path

from .static_files import sha256
from .work import Outcome, Report


class HungUp(OSError):
    """The mirror did not answer. The file may have arrived or not."""


def publish(file: Path, site: Path, report: Report, *, hangs: bool = False) -> Outcome:
    """Put a file on a site in one step; one that `hangs` takes it and does not say so."""
    report(40, f"sending {file.name} to {site.name}")
    site.mkdir(parents=True, exist_ok=True)
    draft = site / f"{file.name}.new"
    shutil.copyfile(file, draft)
    draft.replace(site / file.name)
    report(80, f"waiting for {site.name} to answer")
    if hangs:
        raise HungUp(f"{site.name} hung up before it had answered")
    return Outcome(f"{file.name} is on {site.name}.", {"file": file.name, "sha256": sha256(file)})


def holds(site: Path, file: Path) -> bool:
    """Whether the site has this very file."""
    return (site / file.name).is_file() and sha256(site / file.name) == sha256(file)
