"""Work on files: copies and checksums."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from .work import Outcome, Report, counted, each

SUMS = "SHA256SUMS"


def files_of(folder: Path) -> list[Path]:
    """The files below a folder, by their names relative to it. Links are files here and not followed."""
    return sorted(
        path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()
    )


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy(folders: Sequence[Path], scratch: Path, report: Report) -> Outcome:
    """Copy the source files of some folders into the scratch folder."""
    sources = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    top = folders[0].parent
    size = 0
    for name in each([path.relative_to(top) for path in sources], report):
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(top / name, scratch / name)
        size += (scratch / name).stat().st_size
    return Outcome(
        f"Copied {counted(len(sources), 'file')} of {size:,} bytes to {scratch.name}.",
        {"files": len(sources), "bytes": size},
    )


def checksum(folder: Path, manifest: Path, report: Report, *, go_on: bool = False) -> Outcome:
    """Write the SHA-256 of every file into a manifest, line by line as `sha256sum` does.

    go_on: an earlier attempt was cut off; what it wrote is kept and only the rest is read.
    """
    draft = manifest.with_suffix(".partial")
    sums = _read_sums(draft) if go_on and draft.exists() else {}
    files = [str(path) for path in files_of(folder)]
    known = {name: sums[name] for name in files if name in sums}
    draft.write_text("".join(f"{digest}  {name}\n" for name, digest in known.items()))
    with draft.open("a", buffering=1) as lines:
        for name in each([name for name in files if name not in known], report, done=len(known)):
            lines.write(f"{sha256(folder / name)}  {name}\n")
    draft.replace(manifest)
    size = sum((folder / name).stat().st_size for name in files)
    kept = f", {len(known):,} of them read by an earlier attempt" if known else ""
    return Outcome(
        f"{counted(len(files), 'file')} of {size:,} bytes{kept}.",
        {"files": len(files), "bytes": size, "taken_over": len(known)},
        [{"file": manifest.name, "sha256": sha256(manifest)}],
    )


def _read_sums(path: Path) -> dict[str, str]:
    """Names and checksums. A last line without its end was cut off and counts for nothing."""
    whole, _, _ = path.read_text().rpartition("\n")
    pairs = (line.split("  ", 1) for line in whole.splitlines())
    return {name: digest for digest, name in pairs}


def check_vendored(folder: Path, report: Report) -> Outcome:
    """Compare vendored files with the SHA256SUMS that came beside them."""
    expected = {
        str((sums.parent / name).relative_to(folder)): digest
        for sums in sorted(folder.rglob(SUMS))
        for name, digest in _read_sums(sums).items()
    }
    differing = [
        name
        for name in each(list(expected), report)
        if not (folder / name).is_file() or sha256(folder / name) != expected[name]
    ]
    if not expected:
        summary = f"There is no {SUMS} in {folder.name}, so nothing to compare."
    elif differing:
        summary = (
            f"{len(differing)} of {counted(len(expected), 'vendored file')} differ: {', '.join(differing)}."
        )
    else:
        summary = f"{counted(len(expected), 'vendored file')}, as published."
    return Outcome(summary, {"files": len(expected), "differing": differing})
