"""The README is true: its curls work as pasted, its diagram names the moves, its table the settings."""

import os
import re
import subprocess
from typing import Any

import pytest

from approvals.actions import Action
from approvals.decisions import decide
from approvals.models import Approval, Effect
from coordination import identity
from coordination.standing import OF_A_LEASE, OF_A_RUN
from coordination.transitions import TASK
from titen.api.doors import transact
from titen.errors import CODES

from .cast import Company, Human
from .locking import Work
from .processes import eventually
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
    approves = Work(lambda: _approve(company.human("approver")))
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
    approves.outcome()
    # What nobody has approved yet is refused; nothing else is.
    assert re.findall(r'"error":\{"code":"(\w+)"', ran.stdout + ran.stderr) == ["APPROVAL_REQUIRED"]
    assert '"files":12' not in ran.stdout  # the log holds no results
    for kind in ("task.created", "task.claimed", "task.completed"):
        assert f'"kind":"{kind}"' in ran.stdout
    for answered in ("released_at", "handoff_id", "state_hash", "outcome_at"):
        assert f'"{answered}"' in ran.stdout
    assert Effect.objects.get(organization=company.organization, code="").status == "succeeded"


def _approve(human: Human) -> None:
    """Click on the first question that comes."""
    asked = Approval.objects.filter(organization=human.organization, status="pending")
    approval = eventually(asked.first, within=60)
    assert approval is not None
    transact(lambda: decide(human.caller, approval.pk, option="approve", shown_digest=approval.digest))


def test_the_digest_can_be_computed_as_it_says() -> None:
    (example,) = re.findall(r"```python\n(import hashlib, rfc8785.*?)```", README, re.S)
    arguments = {"z": 1.0, "id": 1234567890123456789, "list": [True, None, {"é": -(2**60)}]}
    for server in (None, "release"):
        names: dict[str, Any] = {"tool": "deploy", "server": server, "arguments": arguments}
        exec(example, names)
        assert names["digest"] == Action("deploy", server, arguments).digest


@pytest.mark.parametrize("noun", ["a run", "anything else"])
def test_the_table_of_jeopardy_is_the_one_in_code(noun: str) -> None:
    rules = {"a run": OF_A_RUN, "anything else": OF_A_LEASE}[noun]
    (row,) = re.findall(rf"^\| {noun} \| (.*) \| (.*) \|$", README, re.M)
    assert row[0].startswith(", ".join(rules.allowed))
    assert row[1] == ", ".join(rules.refused)


def test_every_code_of_a_refused_effect_has_its_next_step() -> None:
    table = README.partition("| Refused with |")[2].partition("\n\n")[0]
    codes = {code for code in CODES if code.startswith("APPROVAL_")} | {"ALREADY_CONSUMED", "POLICY_DENIED"}
    assert not [code for code in codes if f"`{code}`" not in table]


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
