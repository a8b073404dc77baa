"""The whole stack as `manage.py up` starts it, with its own database, for the tests that kill its parts."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psutil
import psycopg

from titen.supervisor.state import State

from .cast import Agent
from .invariants import RULES
from .processes import Up, eventually, own_environment
from .servers import REPOSITORY
from .sessions import Session

# Made in the stack's database by its own process: settings know one database only.
FOUND = """
import django, json, sys
django.setup()
from coordination import identity
from coordination.models import Role, User
from tests.cast import PASSWORD, found_company
agents, roles = int(sys.argv[1]), sys.argv[2:]
company = found_company()
people = []
for role in roles:
    make = User.objects.create_superuser if role == "admin" else User.objects.create_user
    user = make(f"{role}-{company.organization.slug}@example.org", PASSWORD)
    identity.add_member(company.organization, user, Role(role))
    people.append(user.email)
secrets = [company.agent(f"agent-{number}").secret for number in range(agents)]
print(json.dumps({"slug": company.organization.slug, "people": people, "secrets": secrets}))
"""
# How a traceback may end while a server that it needs is away.
LOSSES = re.compile(
    r"OperationalError|ConnectionError|ConnectionRefusedError|ConnectionResetError|BrokenPipeError|AdminShutdown"
    r"|CannotConnectNow|InterfaceError|kombu\.exceptions|redis\.exceptions|the connection is (closed|lost)"
    r"|PoolTimeout|FileNotFoundError: .*\.sock|CancelledError|TimeoutError"
)
TRACEBACK = "Traceback (most recent call last):"


class Stack(Up):
    """`up` with leases of a second allowed."""

    def __init__(self, var: Path) -> None:
        super().__init__(var, TITEN_LEASE_TTL_MINIMUM="1", TITEN_WEBHOOK_ALLOWED="127.0.0.2")

    @property
    def database(self) -> str:
        """The URL of its database."""
        return State(self.var).environment()["DATABASE_URL"]

    def python(self, code: str, *arguments: str) -> str:
        """Run code as a process of this stack; what it prints."""
        environment = own_environment(TITEN_VAR=str(self.var), DJANGO_SETTINGS_MODULE="titen.settings")
        ended = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def found(self, agents: int, *roles: str) -> "Founded":
        """An organization with agents and people."""
        return Founded(self, json.loads(self.python(FOUND, str(agents), *roles)))

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Rows, over a connection of our own."""
        with psycopg.connect(self.database) as connection:
            return connection.execute(sql, values or None).fetchall()

    def broken(self) -> dict[str, list[Any]]:
        """INV1 to INV8 in this database."""
        with psycopg.connect(self.database) as connection:
            found = {promise: connection.execute(query).fetchmany(5) for promise, query in RULES.items()}
        return {promise: rows for promise, rows in found.items() if rows}

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ends it, frozen or not."""
        self.thaw()
        return super().stop(number)

    def answers(self) -> bool:
        """True when the front, the web processes and the database do."""
        return self.get("/readyz")[0] == 200

    def kill_all(self, name: str) -> None:
        """`kill -9` of a program with everything that it started; it comes back when `up` lets it."""
        pid = eventually(lambda: self.pid(name))
        assert pid
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        # Whoever is not reaped yet, because `up` is frozen, is dead all the same.
        eventually(lambda: all(_dead(process) for process in family))

    def freeze(self) -> None:
        """Stop `up` itself, so that nothing is started again until `thaw`."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let `up` go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def trouble(self) -> list[str]:
        """Tracebacks and errors in the logs that no killed neighbour explains."""
        found = []
        for log in sorted((self.var / "log").glob("*.log*")):
            if log.name.startswith(("postgres", "valkey", "front")):
                continue
            text = log.read_text(errors="replace")
            for block in text.split(TRACEBACK)[1:]:
                lines = block.splitlines()
                # The error is the first line after the frames; a chain of errors has several blocks.
                error = next((line for line in lines[1:] if line and not line.startswith((" ", "+"))), "")
                if not LOSSES.search(error) and not _chained(block):
                    found.append(f"{log.name}: {error}\n{block[:3000]}")
            found += [f"{log.name}: {line}" for line in text.splitlines() if "unexpected error" in line]
        return found


def _dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _chained(block: str) -> bool:
    """True when the traceback goes on in another that says what it led to."""
    return "The above exception was the direct cause" in block or "During handling of the above" in block


class Founded:
    """An organization in the stack."""

    def __init__(self, stack: Stack, made: dict[str, Any]) -> None:
        self.stack = stack
        self.slug: str = made["slug"]
        self.people: list[str] = made["people"]
        # Rules are out of reach from here: an agent is a key.
        self.agents = [Agent(cast(Any, None), secret, stack.address) for secret in made["secrets"]]

    def session(self, number: int = 0) -> Session:
        """One of the people, logged in."""
        return Session(self.people[number], self.stack.address)

    def close(self) -> None:
        """Close the agents' connections."""
        for agent in self.agents:
            agent.close()


def retried[T](look: Callable[[], T]) -> Callable[[], T | None]:
    """`look`, with None for what fails while servers start again."""

    def tried() -> T | None:
        try:
            return look()
        except Exception:
            return None

    return tried
