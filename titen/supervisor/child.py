"""One supervised process: started, started again when it dies, stopped with everything it started.

Each runs in a session of its own, so Ctrl-C at the terminal reaches `up` alone. A group that lost its
leader is killed before the next start: granian's workers, for one, would go on serving the old code.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from titen.supervisor.guard import Guard
from titen.supervisor.programs import Program
from titen.supervisor.state import UpError

FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 10.0
# A process that lived this long starts again with the first delay.
HEALTHY_SECONDS = 30.0


def describe_exit(status: int) -> str:
    """`web exited with <this>`: a status as shells print it, with the signal in words."""
    if status >= 0:
        return str(status)
    return f"{128 - status} ({signal.strsignal(-status) or f'signal {-status}'})".lower()


class Child:
    """Keeps `program` running. `say` takes one line for the person at the terminal."""

    def __init__(self, program: Program, log: Path, guard: Guard, say: Callable[[str], None]) -> None:
        self.program = program
        self.log = log
        self._guard = guard
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._delay = FIRST_DELAY_SECONDS
        self.exits = 0

    async def run(self) -> None:
        """Starts the program and starts it again until `stop` or `kill`."""
        while not self._stopping.is_set():
            started = time.monotonic()
            status = await self._run_once()
            if self._stopping.is_set():
                return
            self.exits += 1
            if time.monotonic() - started >= HEALTHY_SECONDS:
                self._delay = FIRST_DELAY_SECONDS
            ended = f"{self.program.name} exited with {describe_exit(status)}"
            self._say(f"{ended}; starting again in {self._delay:.1f} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._delay)
            self._delay = min(self._delay * 2, LONGEST_DELAY_SECONDS)

    async def _run_once(self) -> int:
        program = self.program
        if program.before:
            await asyncio.to_thread(program.before)
        if self._stopping.is_set():
            return 0
        try:
            process = await self._spawn()
        except OSError as error:
            raise UpError(f"{program.name} can't be started: {error}") from error
        self._process = process
        self._guard.watch(process.pid, program.stop_signal)
        if self._stopping.is_set():  # it was asked to stop while it was being started
            process.send_signal(program.stop_signal)
        try:
            return await process.wait()
        finally:
            self._kill_group()
            self._guard.forget(process.pid)
            self._process = None

    async def _spawn(self) -> asyncio.subprocess.Process:
        program = self.program
        with self.log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *program.argv,
                cwd=program.folder,
                env={**os.environ, **program.environment},
                user=program.user,
                group=program.user,
                extra_groups=[] if program.user else None,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Asks the program to stop; `run` ends when it has ended."""
        self._stopping.set()
        if self._process:
            with suppress(ProcessLookupError):
                self._process.send_signal(self.program.stop_signal)

    def kill(self) -> None:
        """Ends the program and all that it started, at once."""
        self._stopping.set()
        self._kill_group()

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing)")

    def _kill_group(self) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
