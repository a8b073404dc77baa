"""Starts what the tests run on before Django reads its settings: PostgreSQL and Valkey, for real.

`DATABASE_URL` and `CELERY_BROKER_URL` in the environment are used instead when they are set; the tests
make a database of their own on that server and drop it at the end. With `-n` each worker has servers of
its own, and a broker in any case: jobs of one must not reach another.
"""

import os
import secrets
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from titen import embedded

STACK = ExitStack()
FOLDER = Path(tempfile.mkdtemp(prefix="titen-tests-"))
# The account that PostgreSQL runs as under root has to reach its folder.
FOLDER.chmod(0o755)
DATABASE = f"titen_test_{secrets.token_hex(4)}"


def _own_database(url: str) -> str:
    """Make a database on the server of `url`, dropped when the tests end; its URL."""
    parts = urlsplit(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{DATABASE}"')

    def drop() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            embedded.drop_database(connection, DATABASE)

    STACK.callback(drop)
    return urlunsplit(parts._replace(path=f"/{DATABASE}"))


WORKER = os.environ.get("PYTEST_XDIST_WORKER")
# Whoever hands the tests out runs none.
HANDS_OUT = not WORKER and any(word.startswith(("-n", "--numprocesses")) for word in sys.argv)


def _start() -> None:
    server = os.environ.get("DATABASE_URL") or STACK.enter_context(
        embedded.start_postgres(FOLDER / "database")
    )
    os.environ["DATABASE_URL"] = _own_database(server)
    if WORKER or not os.environ.get("CELERY_BROKER_URL"):
        os.environ["CELERY_BROKER_URL"] = STACK.enter_context(embedded.start_valkey(FOLDER / "broker"))


def _configure() -> None:
    STACK.callback(shutil.rmtree, FOLDER, ignore_errors=True)
    os.environ["TITEN_VAR"] = str(FOLDER / "var")
    os.environ["TITEN_SECRET_KEY"] = secrets.token_urlsafe(48)
    os.environ["TITEN_SECRET_KEYS"] = secrets.token_urlsafe(48)
    os.environ["TITEN_LEASE_TTL_MINIMUM"] = "1"
    # Receivers of tests listen on this one; the rest of loopback is inner ground.
    os.environ["TITEN_WEBHOOK_ALLOWED"] = "127.0.0.2"
    (FOLDER / "var" / "static").mkdir(parents=True)


for name in ("database", "broker"):
    (FOLDER / name).mkdir()
_configure()
if not HANDS_OUT:
    _start()


def pytest_unconfigure() -> None:
    """Stop what was started, after everything else."""
    STACK.close()
