"""The guard: a small process that outlives a killed parent just long enough to stop its children.

Linux can signal a child when its parent dies (PR_SET_PDEATHSIG), but only the direct child, only until
it changes its user (PostgreSQL under root does), and no other system can. A pipe that closes with the
parent works everywhere and for whole process groups. The guard also inherits the parent's locks, so a
state folder stays taken until everything in it has ended.

Protocol on its standard input, a line each: `+<group> <signal>` watch, `-<group>` forget; end of file:
stop what is left.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

GRACE_SECONDS = 10.0


class Guard:
    """The parent's end. `locks` are descriptors that the guard keeps open."""

    def __init__(self, locks: tuple[int, ...] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=locks,
            start_new_session=True,
        )

    def watch(self, group: int, stop_signal: signal.Signals) -> None:
        self._tell(f"+{group} {int(stop_signal)}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Ends the guard; it stops whatever was not forgotten."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        # A guard that was killed protects nobody any more; that is no reason to stop serving.
        with suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _stop(groups: dict[int, int]) -> None:
    """Asks each group's leader to stop, latest first; after the grace, kills what is left."""
    for group, number in reversed(groups.items()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(group, number)
    deadline = time.monotonic() + GRACE_SECONDS
    while any(map(_group_lives, groups)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def main() -> None:
    groups: dict[int, int] = {}
    for line in sys.stdin:
        group, *number = line[1:].split()
        if line.startswith("+"):
            groups[int(group)] = int(number[0])
        else:
            groups.pop(int(group), None)
    _stop(groups)


if __name__ == "__main__":
    main()
