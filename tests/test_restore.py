"""A backup made while everything runs goes into an empty cluster, by the README's commands, and goes on there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from coordination import events
from titen import embedded
from titen.supervisor.postgres import _binary

from .cast import Agent, Company, founded
from .leasing import named
from .logbook import as_owner, write
from .plugin import FOLDER
from .servers import REPOSITORY, Server, run_web

BACKUP, RESTORE = (
    re.sub(r"^  ", "", block, flags=re.M)
    for block in re.findall(r"  ```sh\n(.*?)  ```", (REPOSITORY / "README.md").read_text(), re.S)
)
TOOLS = str(Path(_binary("pg_dump")).parent)


def run(block: str, folder: Path, **environment: str) -> str:
    """Run commands of the README in a folder of their own; what they print."""
    path = f"{TOOLS}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-euc", block.replace("manage.py", str(REPOSITORY / "manage.py"))],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def command(url: str, *arguments: str) -> str:
    """Run a management command on a database."""
    ran = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def follow(agent: Agent, after: str) -> tuple[list[str], str]:
    """The ids of all events after a cursor, and the cursor behind them."""
    found: list[str] = []
    while page := agent.get("/events", params={"after": after, "limit": 200})["events"]:
        found += [event["id"] for event in page]
        after = page[-1]["cursor"]
    return found, after


@dataclass
class Before:
    """What was known when the backup was made, and the log as it went on without it."""

    dump: Path
    head: str
    seen: list[str]
    cursor: str
    repeat: dict[str, Any]
    task: Any
    lease: Any
    log: list[str]


REPEATED = {"Idempotency-Key": "before-the-backup"}


@pytest.fixture(scope="module")
def company(web: Server) -> Iterator[Company]:
    """An organization that was there before."""
    with founded(web.url) as company:
        yield company


@pytest.fixture(scope="module")
def agent(company: Company) -> Agent:
    """Its agent."""
    return company.agent("ada")


@pytest.fixture(scope="module")
def before(company: Company, agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> Before:
    """A database with work under way, and its backup."""
    folder, slug = tmp_path_factory.mktemp("backup"), company.organization.slug
    lease = agent.post("/leases", named("deploy/checkout", ttl_seconds=600))
    claim = agent.claim(task_id=agent.create("Under way")["id"])
    repeat = agent.post("/tasks", {"title": "Once"}, headers=REPEATED)
    seen, cursor = follow(agent, "0")
    head = command(os.environ["DATABASE_URL"], "verify_log", "--org", slug).strip()
    # What nobody has numbered when the backup is made, and what is not even committed.
    write(company, 25, number=False)
    with as_owner() as late, late.transaction(force_rollback=True):
        late.execute(
            "INSERT INTO coordination_event (organization_id, kind) VALUES (%s, 'test.lost')",
            [company.organization.pk],
        )
        run(BACKUP, folder)
    log = follow(agent, "0")[0]
    return Before(folder / "titen.dump", head, seen, cursor, repeat, claim, lease, log)


@pytest.fixture(scope="module")
def elsewhere(before: Before) -> Iterator[str]:
    """The URL of the restored database in a cluster that was empty."""
    cluster = FOLDER / "restored"
    cluster.mkdir()
    with embedded.start_postgres(cluster) as url:
        run(RESTORE, before.dump.parent, DATABASE_URL=url)
        yield url


@pytest.fixture
def restored(elsewhere: str) -> Iterator[Server]:
    """Web processes on it."""
    with run_web(workers=2, DATABASE_URL=elsewhere) as server:
        yield server
        assert not server.trouble()


def test_a_restored_backup_goes_on_where_it_was_made(
    before: Before, elsewhere: str, restored: Server, company: Company, agent: Agent
) -> None:
    slug = company.organization.slug
    survivor = Agent(agent.principal, agent.secret, restored.url)

    # A follower from before misses nothing and gets nothing twice.
    missed, cursor = follow(survivor, before.cursor)
    assert before.seen + missed == before.log
    assert len(missed) == 25

    # A repeat is answered, a holder goes on, epochs rise, and positions follow without a gap.
    assert survivor.post("/tasks", {"title": "Once"}, headers=REPEATED) == before.repeat
    run_id, epoch = before.task["run"]["id"], before.task["lease"]["epoch"]
    survivor.post(f"/runs/{run_id}/heartbeat", {"epoch": epoch})
    survivor.post(f"/runs/{run_id}/fail", {"epoch": epoch, "error": "Interrupted", "retryable": False})
    assert survivor.post("/leases", named("deploy/checkout"))["epoch"] == before.lease["epoch"] + 1
    assert survivor.claim()["task"]["id"] == before.repeat["id"]
    with psycopg.connect(elsewhere) as owner:
        newest = owner.execute("SELECT max(seq), nextval('coordination_event_seq') FROM coordination_event")
        assert (found := newest.fetchone()) is not None
        assert found[0] < found[1]
    more, last = follow(survivor, cursor)
    assert int(last) == int(cursor) + len(more)
    assert len(more) >= 3
    assert not set(more) & set(before.log)

    # The chain is the same chain, and the log is as closed as it was.
    command(elsewhere, "verify_log", "--org", slug, "--expect", before.head)
    with (
        psycopg.connect(elsewhere, options="-c role=titen_app") as application,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        application.execute("DELETE FROM coordination_event")
    survivor.close()
    events.number()


def test_the_role_may_be_there_already(before: Before, elsewhere: str) -> None:
    """The same commands again, into another database of that cluster."""
    with psycopg.connect(elsewhere, autocommit=True) as owner:
        owner.execute("CREATE DATABASE again")
    run(RESTORE, before.dump.parent, DATABASE_URL=elsewhere.replace("/titen?", "/again?"))
