"""The npm package `llmtxt`, as it was published, works against the section leases."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .cast import Agent

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


def test_the_lock_names_no_host() -> None:
    """Where packages come from is the configuration's to say."""
    assert "resolved" not in (SOURCE / "package-lock.json").read_text()
