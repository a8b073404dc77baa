"""The npm package `llmtxt`, as it was published, works against section leases and documents' logs."""

import contextlib
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from .cast import Agent
from .hub import run_hub
from .proxy import Proxy
from .servers import Server

SOURCE = Path(__file__).parent / "llmtxt"
OLDEST_NODE = 20
# What npm says when it reaches no registry; anything else is a fault.
OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH")


def run(*command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command with what it printed."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Node tests and the locked package; its integrity is checked by npm."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node and npm are not installed")
    version = run("node", "--version", folder=SOURCE).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node {version} is older than {OLDEST_NODE}")
    folder = tmp_path_factory.mktemp("npm") / "llmtxt"
    shutil.copytree(SOURCE, folder)
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1")
    ended = run("npm", "ci", *quiet, folder=folder)
    if any(word in ended.stderr for word in OFFLINE):
        pytest.skip("npm reaches no registry")
    assert ended.returncode == 0, ended.stderr
    return folder


def test_the_published_client_acquires_conflicts_renews_and_releases(
    installed: Path, agent: Agent, other: Agent
) -> None:
    ended = run(
        "node",
        "--test",
        "--test-reporter=tap",
        "leases.test.mjs",
        folder=installed,
        TITEN_URL=agent.url,
        ADA_KEY=agent.secret,
        BERT_KEY=other.secret,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "# pass 8\n" in ended.stdout


class Front:
    """One address for a hub and web processes, as in production: streams go to the hub. `/cut` cuts them."""

    def __init__(self, web: Server, hub: Proxy) -> None:
        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                if self.path == "/cut":
                    hub.cut()
                    self.send_response(204)
                    self.end_headers()
                    return
                target = hub.url if "/events/stream" in self.path else web.url
                length = int(self.headers.get("Content-Length", 0))
                headers = {
                    name: value for name, value in self.headers.items() if name not in ("Host", "Connection")
                }
                with httpx.stream(
                    self.command,
                    target + self.path,
                    headers=headers,
                    content=self.rfile.read(length),
                    timeout=60,
                ) as answer:
                    self.send_response(answer.status_code)
                    self.send_header("Content-Type", answer.headers["Content-Type"])
                    self.end_headers()
                    with contextlib.suppress(httpx.HTTPError, OSError):
                        for chunk in answer.iter_raw():
                            self.wfile.write(chunk)
                            self.wfile.flush()

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> "Front":
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_the_published_client_watches_a_document_through_cuts(
    installed: Path, web: Server, agent: Agent
) -> None:
    with run_hub() as hub, Proxy(hub.port) as proxy, Front(web, proxy) as front:
        ended = run(
            "node",
            "--test",
            "--test-reporter=tap",
            "watch.test.mjs",
            folder=installed,
            TITEN_URL=front.url,
            CUT_URL=f"{front.url}/cut",
            ADA_KEY=agent.secret,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "# pass 4\n" in ended.stdout
        # It did come again after each cut.
        assert len([line for line in proxy.requests if "/documents/cut/events/stream" in line]) >= 3
        assert not hub.trouble()


def test_the_lock_names_no_host() -> None:
    """Where packages come from is the configuration's to say."""
    assert "resolved" not in (SOURCE / "package-lock.json").read_text()
