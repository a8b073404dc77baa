"""The README is true: its curls work as pasted, its diagram names the moves, its table the settings."""

import os
import re
import subprocess

import pytest

from coordination import identity
from coordination.transitions import TASK

from .cast import Company
from .servers import REPOSITORY, Server

README = (REPOSITORY / "README.md").read_text()


def shell_blocks() -> list[str]:
    """The curls, in order."""
    return [block for block in re.findall(r"```sh\n(.*?)```", README, re.S) if block.startswith("# ")]


def test_the_curls_work_as_pasted(company: Company, web: Server) -> None:
    principal = identity.make_principal(company.organization, "worker-1")
    identity.make_principal(company.organization, "reviewer")
    scopes = re.search(r'SCOPES="([^"]+)"\)', README)
    assert scopes
    _, secret = identity.issue_key(principal, scopes=scopes[1].split())
    script = "set -e\n" + "echo\n".join(shell_blocks())
    ran = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "TITEN_URL": web.url, "TITEN_API_KEY": secret},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert len([block for block in shell_blocks() if re.match(r"# \d\. ", block)]) == 5
    assert '"error"' not in ran.stdout + ran.stderr
    assert '"files":12' not in ran.stdout  # the log holds no results
    for kind in ("task.created", "task.claimed", "task.completed"):
        assert f'"kind":"{kind}"' in ran.stdout
    for answered in ("released_at", "handoff_id", "state_hash"):
        assert f'"{answered}"' in ran.stdout


@pytest.mark.parametrize("move", sorted(set(TASK.moves) - {"set_priority"}))
def test_the_diagram_names_every_move(move: str) -> None:
    diagram = README.partition("```mermaid")[2].partition("```")[0]
    assert re.search(rf"\b{move}\b", diagram), move


def test_the_settings_that_the_environment_sets_are_in_the_table() -> None:
    source = (REPOSITORY / "titen" / "settings.py").read_text()
    names = set(re.findall(r'env\.\w+\(\s*"(\w+)"', source))
    assert names
    assert not [name for name in names if f"`{name}`" not in README]


def test_the_paths_it_names_exist() -> None:
    paths = re.findall(r"`((?:titen|coordination|approvals|tests)/[\w/.]*)`", README)
    assert len(paths) >= 10
    assert not [path for path in paths if not (REPOSITORY / path).exists()]
