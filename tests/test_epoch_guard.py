"""The recipient's side of fencing: who checks sequencers refuses a holder that lost its lease."""

import contextlib
import os
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import make_conninfo

from coordination import takeovers
from titen.api.doors import transact
from titen.api.ids import public_id
from titen.client import Titen, fencing
from titen.client.fencing import (
    EpochGuard,
    ExpiredSequencer,
    MemoryEpochs,
    SqlEpochs,
    StaleEpoch,
    WrongResource,
)

from .cast import Agent, Company, Human
from .clockwork import uuid_of
from .locking import Work, until, waiting
from .recipients import Recipient, guard_of, issue, published
from .servers import REPOSITORY, Server

ROUNDS = 15


@pytest.fixture
def on_postgresql() -> Iterator[Recipient]:
    """A recipient with PostgreSQL."""
    schema = f"recipient_{secrets.token_hex(4)}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        owner.execute(f'CREATE SCHEMA "{schema}"'.encode())
        address = make_conninfo(os.environ["DATABASE_URL"], options=f"-c search_path={schema}")
        yield Recipient(lambda: psycopg.connect(address), address)
        owner.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Recipient:
    """A recipient with SQLite."""
    return Recipient(lambda: sqlite3.connect(tmp_path / "recipient.db", timeout=20))


@pytest.fixture(params=["on_postgresql", "on_sqlite"])
def recipient(request: pytest.FixtureRequest) -> Recipient:
    """Both."""
    found: Recipient = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def taken_over(agent: Agent, other: Agent, admin: Human) -> tuple[Any, Any]:
    """Two claims of one task: a human has taken it from `agent`, who does not know yet, for `other`."""
    task = agent.create("Roll it out")
    zombie = agent.claim()
    transact(
        lambda: takeovers.take_over(
            admin.caller, uuid_of(task["id"]), to=other.principal, reason="It is stuck.", epoch=1
        )
    )
    return zombie, other.claim(task_id=task["id"])


def test_online_a_zombie_is_refused_at_once(taken_over: tuple[Any, Any], agent: Agent) -> None:
    with Titen(agent.url, agent.secret) as titen:
        for claim, valid in zip(taken_over, (False, True), strict=True):
            task, epoch = claim["task"]["id"], claim["lease"]["epoch"]
            assert titen.verify("task", task, epoch) == {"valid": valid, "current_epoch": 2}


def test_offline_a_zombie_is_refused_after_its_successors_first_use_and_not_before(
    taken_over: tuple[Any, Any], company: Company, recipient: Recipient, web: Server
) -> None:
    """The limit that the README states: until then its sequencer looks right, because it is."""
    guard = guard_of(company, f"{web.url}/.well-known/jwks.json")
    zombie, successor = (claim["lease"]["sequencer"] for claim in taken_over)
    task = taken_over[0]["task"]["id"]
    recipient.apply(guard, zombie, "task", task)
    recipient.apply(guard, successor, "task", task)
    for _ in range(2):
        with pytest.raises(StaleEpoch, match=f"Epoch 1 of task {task} is over"):
            recipient.apply(guard, zombie, "task", task)
        recipient.apply(guard, successor, "task", task)
    assert recipient.applied() == [1, 2, 2, 2]


def test_offline_a_revoked_holder_without_a_successor_looks_right_until_exp(
    company: Company, on_sqlite: Recipient
) -> None:
    guard = guard_of(company)
    on_sqlite.apply(guard, issue(company, 1, lives=60))
    with pytest.raises(ExpiredSequencer):
        on_sqlite.apply(guard, issue(company, 1, lives=-1))
    # Who allows its clock to be ahead gives that much more.
    on_sqlite.apply(guard_of(company, leeway=30), issue(company, 1, lives=-1))


def test_a_check_says_who_holds_what(claimed: Any, agent: Agent, company: Company) -> None:
    lease, task = claimed["lease"], claimed["task"]["id"]
    found = guard_of(company, epochs=MemoryEpochs()).check(
        lease["sequencer"], resource_type="task", resource_id=task
    )
    expires_at = datetime.fromisoformat(lease["expires_at"]).replace(microsecond=0)
    assert found == fencing.Sequencer(
        organization=public_id("org", company.organization.pk),
        resource_type="task",
        resource_id=task,
        epoch=1,
        holder=public_id("agent", agent.principal.pk),
        expires_at=expires_at,
    )


@pytest.mark.parametrize("asked", [("deploy", "other"), ("task", "r"), ("deploy", "R")])
def test_a_sequencer_of_another_resource_is_refused_and_remembers_nothing(
    company: Company, asked: tuple[str, str]
) -> None:
    epochs = MemoryEpochs()
    with pytest.raises(WrongResource, match="The sequencer is for deploy r"):
        guard_of(company, epochs=epochs).check(
            issue(company, 9), resource_type=asked[0], resource_id=asked[1]
        )
    organization = public_id("org", company.organization.pk)
    assert epochs.use(organization, *asked, 1)
    assert epochs.use(organization, "deploy", "r", 1)


def test_the_epoch_is_forgotten_when_the_recipients_transaction_is_undone(
    company: Company, recipient: Recipient
) -> None:
    guard = guard_of(company)
    with contextlib.closing(recipient.connect()) as connection:
        epochs = SqlEpochs(connection)
        guard.check(issue(company, 2), resource_type="deploy", resource_id="r", epochs=epochs)
        with pytest.raises(StaleEpoch):
            guard.check(issue(company, 1), resource_type="deploy", resource_id="r", epochs=epochs)
        connection.rollback()
    recipient.apply(guard, issue(company, 1))
    recipient.apply(guard, issue(company, 2))
    with pytest.raises(StaleEpoch):
        recipient.apply(guard, issue(company, 1))
    assert recipient.applied() == [1, 2]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_lower_epoch_waits_for_the_transaction_with_the_higher_one(
    company: Company, on_postgresql: Recipient, ends: str
) -> None:
    guard = guard_of(company)
    with contextlib.closing(on_postgresql.connect()) as connection:
        guard.check(issue(company, 2), resource_type="deploy", resource_id="r", epochs=SqlEpochs(connection))
        late = Work(lambda: on_postgresql.apply(guard, issue(company, 1)))
        until(lambda: waiting(connection.info.backend_pid), "the lower epoch waiting")
        getattr(connection, ends)()
    if ends == "commit":
        with pytest.raises(StaleEpoch):
            late.outcome()
    else:
        late.outcome()
    assert on_postgresql.applied() == ([] if ends == "commit" else [1])


def test_of_recipients_at_once_a_lower_epoch_never_passes_after_a_higher_one(
    company: Company, recipient: Recipient
) -> None:
    guard = guard_of(company)
    made = [issue(company, epoch) for epoch in range(1, ROUNDS + 1)]

    def apply(epoch: int) -> None:
        with contextlib.suppress(StaleEpoch):
            recipient.apply(guard, made[epoch - 1])

    works = [Work(lambda epoch=epoch: apply(epoch)) for epoch in range(1, ROUNDS + 1)]  # type: ignore[misc]
    for work in works:
        work.outcome()
    applied = recipient.applied()
    assert applied == sorted(set(applied))
    assert applied[-1] == ROUNDS


def test_resources_and_organizations_have_epochs_of_their_own() -> None:
    epochs = MemoryEpochs()
    assert epochs.use("org_a", "deploy", "r", 5)
    assert epochs.use("org_b", "deploy", "r", 1)
    assert epochs.use("org_a", "deploy", "s", 1)
    assert epochs.use("org_a", "task", "r", 1)
    assert not epochs.use("org_a", "deploy", "r", 4)


def test_a_recipient_needs_neither_django_nor_guesses() -> None:
    def run(code: str) -> str:
        script = [sys.executable, "-c", code]
        ran = subprocess.run(script, cwd=REPOSITORY, check=False, timeout=30, capture_output=True, text=True)
        return ran.stdout + ran.stderr

    assert run("import sys, titen.client.fencing; assert 'django' not in sys.modules") == ""
    said = run("import sys; sys.modules['jwt'] = None; import titen.client.fencing")
    assert "pip install 'titen[fencing]'" in said
    with pytest.raises(TypeError, match="no connection"):
        SqlEpochs(object())
    with pytest.raises(TypeError, match="name epochs"):
        EpochGuard({"keys": published()["keys"]}, issuer="x", organization="y").check(
            "", resource_type="a", resource_id="b"
        )


def test_the_snippet_of_the_readme_works(
    taken_over: tuple[Any, Any], company: Company, on_postgresql: Recipient, web: Server
) -> None:
    section = (REPOSITORY / "README.md").read_text().partition("## Fencing for recipients")[2]
    snippet = section.partition("```python\n")[2].partition("```")[0]
    applied: list[int] = []

    def receive(claim: Any) -> None:
        known = {
            "titen_url": web.url,
            "issuer": settings.PUBLIC_URL,
            "organization": public_id("org", company.organization.pk),
            "database_url": on_postgresql.address,
            "sequencer": claim["lease"]["sequencer"],
            "task_id": claim["task"]["id"],
            "apply_the_effect": lambda _: applied.append(claim["lease"]["epoch"]),
        }
        exec(snippet, known)

    zombie, successor = taken_over
    receive(successor)
    with pytest.raises(StaleEpoch):
        receive(zombie)
    assert applied == [2]
