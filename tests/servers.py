"""Real server processes for tests."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from .plugin import FOLDER

REPOSITORY = Path(__file__).resolve().parent.parent


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass
class Server:
    """A running server: where it is, its process, and what it has logged."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def workers(self) -> list[int]:
        """The ids of the processes that answer."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def trouble(self) -> list[str]:
        """INV7: lines of the log that no server may write."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [
            line for line in lines if "Traceback" in line or "unexpected error" in line or " ERROR " in line
        ]


def await_answer(url: str, process: subprocess.Popen[bytes], log: Path, *, seconds: float = 40) -> None:
    """Wait until `url` answers 200."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url} does not answer:\n{log.read_text(errors='replace')[-2000:]}")


@contextmanager
def run_web(
    *, workers: int = 4, threads: int = 4, respawn: bool = False, **environment: str
) -> Iterator[Server]:
    """The WSGI doors, as in production, on a port of their own. `respawn`: killed workers come back."""
    port = free_port()
    log = FOLDER / f"web-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "granian",
                "--interface",
                "wsgi",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--workers",
                str(workers),
                "--blocking-threads",
                str(threads),
                *(["--respawn-failed-workers", "--respawn-interval", "0.2"] if respawn else []),
                "titen.wsgi:application",
            ],
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = Server(f"http://127.0.0.1:{port}", process, log)
    try:
        await_answer(f"{server.url}/healthz", process, log)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
