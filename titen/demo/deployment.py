"""Work that can't be taken back: another build of a (pretended) service, a folder removed."""

from pathlib import Path

from .static_files import files_of
from .work import Outcome, Report, counted, each


def prepare_service(service: Path, builds: list[int]) -> None:
    """A service with some builds, the last of which is current. Nothing changes when it is there."""
    for build in builds:
        (service / "builds" / str(build)).mkdir(parents=True, exist_ok=True)
    if not (service / "current").is_symlink():
        (service / "current").symlink_to(Path("builds") / str(builds[-1]))


def current_build(service: Path) -> int:
    """The number of the build that runs."""
    return int((service / "current").readlink().name)


def switch_build(service: Path, build: int, report: Report) -> Outcome:
    """Make another build the current one, in one step."""
    before = current_build(service)
    report(60, f"checking build {build}")
    if not (service / "builds" / str(build)).is_dir():
        raise FileNotFoundError(f"{service.name} has no build {build}")
    draft = service / "next"
    draft.unlink(missing_ok=True)
    draft.symlink_to(Path("builds") / str(build))
    report(80, f"switching from build {before} to {build}")
    draft.replace(service / "current")
    return Outcome(
        f"{service.name} runs build {build}; before it was {before}.", {"from": before, "to": build}
    )


def contents(folder: Path) -> dict[str, int]:
    """How many files are below a folder, and of how many bytes."""
    files = files_of(folder)
    return {"files": len(files), "bytes": sum((folder / name).lstat().st_size for name in files)}


def describe(folder: Path) -> str:
    """What would be lost: `12 files of 3,456 bytes in demo-scratch`."""
    held = contents(folder)
    return f"{counted(held['files'], 'file')} of {held['bytes']:,} bytes in {folder.name}"


def remove(folder: Path, report: Report) -> Outcome:
    """Remove a folder, file by file. An attempt that was cut off is simply repeated."""
    what = describe(folder)
    files = files_of(folder)
    for name in each(files, report):
        (folder / name).unlink(missing_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir()
    if folder.exists():
        folder.rmdir()
    return Outcome(f"Removed {what}.", {"files": len(files)})


def confirm_gone(folder: Path, report: Report) -> Outcome:
    """Look whether the folder is really gone."""
    report(50, f"looking for {folder.name}")
    there = folder.exists()
    return Outcome(f"There is {describe(folder)}." if there else f"{folder.name} is gone.", {"exists": there})


def label(labels: Path, subject: str, text: str) -> Outcome:
    """Add a line about something to the labels that people read."""
    with labels.open("a") as lines:
        lines.write(f"{subject}: {text}\n")
    return Outcome(f"Labelled {subject}.", {"subject": subject, "text": text})
