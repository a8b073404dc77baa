"""What is run once at the start: migrations, static files, demo data."""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from titen.supervisor.services import django_environment
from titen.supervisor.state import REPOSITORY, State, UpError

CHECK_HEADINGS = {"SystemCheckError: System check identified some issues:", "ERRORS:"}


async def manage(state: State, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Runs `manage.py` with `arguments`; gives its standard output.

    Raises UpError with what it said last when it fails; the whole of it stands in the log. Killed when
    cancelled.
    """
    name = arguments[0]
    log = state.begin_log(name)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(REPOSITORY / "manage.py"),
            *arguments,
            env={**os.environ, **django_environment(state), **(environment or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
        try:
            said, _ = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
    if process.returncode:
        raise UpError(f"manage.py {name} failed ({log}):\n{_end(log)}")
    return said.decode()


def _end(log: Path) -> str:
    """A traceback's last line, the sentences of failed checks, or the end of anything else."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if any(line.startswith("Traceback ") for line in lines):
        return lines[-1]
    return "\n".join(line.removeprefix("?: ") for line in lines[-15:] if line not in CHECK_HEADINGS)


async def collect_static(state: State) -> None:
    """Collects the static files, unless nothing they come from has changed since the last time."""
    fingerprint = _static_fingerprint()
    stamp = state.var / "static" / ".collected"
    with suppress(FileNotFoundError):
        if stamp.read_text() == fingerprint:
            return
    await manage(state, "collectstatic", "--noinput", "--clear")
    stamp.write_text(fingerprint)


def _static_fingerprint() -> str:
    """Our own files by name, size and time; those of packages by the pinned versions."""
    digest = hashlib.sha256((REPOSITORY / "requirements.txt").read_bytes())
    for path in sorted((REPOSITORY / "static").rglob("*")):
        found = path.stat()
        digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()
