"""What the bench runs on: a database of its own, filled with tasks, and servers as in production."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction

from coordination import identity
from coordination.claims import profile_for
from coordination.models import Organization, Principal, Resource, Task
from titen.embedded import drop_database

DATABASE = f"titen_bench_{os.getpid()}"
# As in production (`titen.supervisor.services`), on loopback and with fewer threads.
WEB = "--interface wsgi --workers 2 --blocking-threads 4 --blocking-threads-idle-timeout 600 titen.wsgi:application"
HUB = "--interface asgi --workers 1 --backpressure 8192 titen.asgi:application"


@dataclass(frozen=True)
class Client:
    """An agent of the bench: its key, and a row of its own for the floor."""

    key: str
    row: str


@contextmanager
def own_database() -> Iterator[str]:
    """A fresh, migrated database on the server of `DATABASE_URL`, dropped at the end; gives its URL."""
    url = settings.DATABASE_URL
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"CREATE DATABASE {DATABASE}")
        try:
            connection.close()
            connection.settings_dict["NAME"] = DATABASE
            call_command("migrate", verbosity=0)
            yield urlunsplit(urlsplit(url)._replace(path=f"/{DATABASE}"))
        finally:
            connection.close()
            drop_database(owner, DATABASE)


def make_clients(count: int) -> tuple[Organization, list[Client]]:
    """An organization with so many agents."""
    organization = identity.make_organization("Bench", "bench")
    clients = []
    for number in range(count):
        principal = identity.make_principal(organization, f"client-{number}")
        _, secret = identity.issue_key(principal, scopes=["tasks:claim"])
        row = Resource.objects.create(
            organization=organization, resource_type="bench", resource_id=f"row-{number}"
        )
        clients.append(Client(secret, str(row.pk)))
    return organization, clients


def fill(organization: Organization, count: int) -> None:
    """Have at least `count` tasks ready."""
    missing = count - Task.objects.filter(organization=organization, status="todo").count()
    if missing <= 0:
        return
    maker = Principal.objects.filter(organization=organization).first()
    profile = profile_for(organization.pk, [])
    with transaction.atomic():
        ids = [uuid4() for _ in range(missing)]
        resources = Resource.objects.bulk_create(
            Resource(organization=organization, resource_type="task", resource_id=f"task_{pk.hex}")
            for pk in ids
        )
        Task.objects.bulk_create(
            Task(
                id=pk,
                organization=organization,
                resource=resource,
                profile=profile,
                title="Lint one module",
                payload={"module": "coordination.claims"},
                created_by=maker,
            )
            for pk, resource in zip(ids, resources, strict=True)
        )
    analyze()


def analyze() -> None:
    """Plans made while tables were empty are bad ones."""
    with psycopg.connect(settings.DATABASE_URL, dbname=DATABASE, autocommit=True) as owner:
        owner.execute("ANALYZE")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(arguments: str, database_url: str) -> Iterator[str]:
    """A server with these arguments of granian, from its first answer on; gives its URL."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    log = Path(settings.VAR) / "bench.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "granian",
                "--port",
                str(port),
                *["--http", "1", "--no-ws"],
                *arguments.split(),
            ],
            env={
                **os.environ,
                "DATABASE_URL": database_url,
                "DJANGO_SETTINGS_MODULE": "titen.bench.settings",
            },
            stdout=output,
            stderr=output,
        )
    try:
        _await_answer(f"{url}/healthz", process, log)
        yield url
    finally:
        process.terminate()
        process.wait(15)


def _await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310  (it is http on loopback)
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"The server did not start; see {log}.")
