"""What an installation is told at its start, and what compose.yaml publishes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from titen.supervisor import services
from titen.supervisor.state import State

from .processes import own_environment
from .servers import REPOSITORY


@pytest.mark.parametrize("command", [["check"], ["migrate", "--noinput"]])
def test_an_empty_secret_key_is_a_sentence(tmp_path: Path, command: list[str]) -> None:
    environment = own_environment(
        TITEN_VAR=str(tmp_path),
        TITEN_SECRET_KEY="",
        TITEN_SECRET_KEYS="x" * 40,
        DATABASE_URL="postgresql://nobody@127.0.0.1:1/none",
        CELERY_BROKER_URL="redis://127.0.0.1:1",
    )
    ended = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "TITEN_SECRET_KEY is not set, or empty" in ended.stderr
    assert "Traceback" not in ended.stderr


def compose(**environment: str) -> dict[str, Any]:
    """The services of compose.yaml, with `${NAME:-default}`, `${NAME:+instead}` and `${NAME:?needed}` filled in."""

    def fill(found: re.Match[str]) -> str:
        name, sign, word = found.groups()
        value = environment.get(name, "")
        if sign == "+":
            return word if value else ""
        return value or word

    text = (REPOSITORY / "compose.yaml").read_text()
    known: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{(\w+):([-+?])([^}]*)\}", fill, text))["services"]
    return known


def test_a_host_name_publishes_the_ports_that_https_needs() -> None:
    named, plain = compose(TITEN_SITE="titen.example")["front"], compose()["front"]
    assert named["environment"]["TITEN_SITE"] == "titen.example"
    # A certificate is asked for through either; whoever comes by HTTP is sent to HTTPS.
    assert {"80:80", "443:443"} <= set(named["ports"])
    # Without one Caddy listens on 8000 only, and that is for this machine.
    assert plain["environment"]["TITEN_SITE"] == "http://:8000"
    assert [port for port in plain["ports"] if port.endswith(":8000")] == ["127.0.0.1:8000:8000"]
    assert not [port for port in plain["ports"] if port.startswith(("80:", "443:"))]


def test_compose_runs_what_up_runs(tmp_path: Path) -> None:
    """The same processes, with as many workers and threads."""
    known, state = compose(), State.open(tmp_path / "var")
    programs = (services.web, services.express, services.hub)
    counted = ("--workers", "--blocking-threads", "--interface", "--backpressure")
    for program in [make(state) for make in programs]:
        argv = list(program.argv)
        wanted = {f"{name}={argv[argv.index(name) + 1]}" for name in counted if name in argv}
        assert wanted <= set(known[program.name]["command"]), program.name
    front = services.front(state, 8000)
    assert {name for name in front.environment if name.startswith("TITEN_")} == {
        name for name in known["front"]["environment"] if name.startswith("TITEN_")
    }
