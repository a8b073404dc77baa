"""Real server processes for tests: `manage.py up` in a state folder of its own."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from .servers import REPOSITORY, free_port

# What a child's command line contains.
MARKS = {
    "postgres": "bin/postgres",
    "valkey": "valkey-server",
    "web": "/web.sock",
    "express": "/express.sock",
    "hub": "titen.asgi:application",
    "worker": "worker",
    "beat": "beat",
    "front": "caddy",
}


def eventually[T](look: Callable[[], T], within: float = 20.0) -> T:
    """The first true value of `look`; AssertionError when there is none in `within` seconds."""
    deadline = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < deadline, f"not true within {within} s; the last value was {found!r}"
        time.sleep(0.05)
    return found


def own_environment(**more: str) -> dict[str, str]:
    """Our environment without the suite's servers and secrets, with `more`."""
    foreign = {"DATABASE_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE"}
    kept = {k: v for k, v in os.environ.items() if k not in foreign and not k.startswith("TITEN_")}
    return {**kept, **more}


class Up:
    """`manage.py up`, from `ready` until the block ends (by SIGTERM, if it still runs)."""

    def __init__(self, var: Path, *options: str, **environment: str) -> None:
        self.var = var
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._options = options
        self._environment = own_environment(TITEN_VAR=str(var), **environment)
        self._out = var.with_name(var.name + ".out")
        self._err = var.with_name(var.name + ".err")

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Starts it and waits for `ready`. AssertionError with its words when it ends instead."""
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(self.port), *self._options],
                cwd=REPOSITORY,
                env=self._environment,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

        def ready() -> bool:
            assert self.process.poll() is None, self.words
            return f"ready {self.address}\n" in self._out.read_text()

        eventually(ready, within=120)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Sends the signal to `up` alone; gives its exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    @property
    def words(self) -> str:
        """What it has said on standard error."""
        return self._err.read_text()

    def pid(self, name: str) -> int | None:
        """The process id of a child, or None while it does not run."""
        for child in psutil.Process(self.process.pid).children():
            try:
                if any(MARKS[name] in part for part in child.cmdline()):
                    return child.pid
            except psutil.NoSuchProcess:
                continue
        return None

    def kill(self, name: str) -> int:
        """Kills a child with -9; gives the process id it had."""
        pid = eventually(lambda: self.pid(name))
        assert pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body of a GET through the front; (0, reason) when it does not answer."""
        request = urllib.request.Request(
            self.address + path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def left_over(self) -> list[str]:
        """Command lines of processes that work in or for the state folder."""
        mark = re.compile(re.escape(str(self.var)) + r"(/|$)")
        found = []
        for process in psutil.process_iter(["cmdline", "cwd"]):
            words = [*(process.info["cmdline"] or ()), process.info["cwd"] or ""]
            if process.pid != os.getpid() and any(mark.search(word) for word in words):
                found.append(" ".join(words))
        return found
