"""PostgreSQL and Valkey without an installation: what commands and tests use.

    with running_database(var) as url: ...     the state folder's database, started if nobody runs it
    with start_postgres(folder) as url: ...    a server of one's own in an empty or earlier folder
    with start_valkey(folder) as url: ...      the same for the broker
    python -m titen.embedded COMMAND ...       runs a command while the state folder's database runs

`manage.py up` runs the same programs under `titen.supervisor`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from titen.supervisor import postgres, valkey
from titen.supervisor.guard import Guard
from titen.supervisor.programs import Program
from titen.supervisor.state import REPOSITORY, Lock, State, UpError, given_url, socket_folder

START_SECONDS = 60.0


def default_var() -> Path:
    """The state folder that `TITEN_VAR` names, else `var` in the checkout."""
    return Path(os.environ.get("TITEN_VAR") or REPOSITORY / "var")


def ensure(var: Path) -> State:
    """Makes the state folder with its secrets and its broker's address; starts nothing. Raises UpError."""
    state = State.open(var)
    state.keep({} if given_url("CELERY_BROKER_URL") else {"CELERY_BROKER_URL": valkey.url(state.sockets)})
    return state


def drop_database(owner: psycopg.Connection[Any], name: str) -> None:
    """Drop a database and whoever uses it, over a connection in autocommit mode."""
    # A worker of autovacuum belongs to the superuser: nobody else ends it, but it ends by itself.
    for _ in range(100):
        try:
            owner.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())
            return
        except psycopg.errors.InsufficientPrivilege:
            time.sleep(0.1)


@contextmanager
def _running(program: Program, log: Path, answers: Callable[[], bool]) -> Iterator[None]:
    """Runs `program` until the block ends. Raises UpError with the log's last line when it does not start."""
    if program.before:
        program.before()
    guard = Guard()
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                program.argv,
                cwd=program.folder,
                env={**os.environ, **program.environment},
                user=program.user,
                group=program.user,
                extra_groups=[] if program.user else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        guard.watch(process.pid, program.stop_signal)
        try:
            wait_until(answers, process.poll, program.name, log)
            yield
        finally:
            process.send_signal(program.stop_signal)
            try:
                process.wait(program.stop_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            guard.forget(process.pid)
    finally:
        guard.close()


def wait_until(answers: Callable[[], bool], ended: Callable[[], int | None], name: str, log: Path) -> None:
    """Returns when `answers`. Raises UpError when the process `ended` (gives its status) or took too long."""
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        if ended() is not None or time.monotonic() > deadline:
            lines = log.read_text(errors="replace").splitlines()
            raise UpError(f"{name} did not start; the end of {log}: {lines[-1] if lines else '(empty)'}")
        time.sleep(0.03)


@contextmanager
def start_postgres(folder: Path) -> Iterator[str]:
    """Runs PostgreSQL with its data in `folder`/postgres; gives the URL of its database `titen`.

    The URL's user owns the database and may make roles and databases; it is no superuser.
    Raises UpError. The folder is kept; only one server at a time may work on it.
    """
    folder = folder.resolve()
    data = folder / "postgres"
    postgres.make(data)
    with _running(postgres.program(data), folder / "postgres.log", lambda: postgres.answers(data)):
        postgres.make_database(data)
        yield postgres.url(data)


@contextmanager
def start_valkey(folder: Path) -> Iterator[str]:
    """Runs Valkey with its socket in `folder`/run (or a short folder instead); gives its broker URL."""
    sockets = socket_folder(folder.resolve() / "run", os.geteuid())
    with _running(valkey.program(sockets), folder / "valkey.log", lambda: valkey.answers(sockets)):
        yield valkey.url(sockets)


@contextmanager
def running_database(var: Path) -> Iterator[str]:
    """The URL of the state folder's database, which runs inside the block.

    `DATABASE_URL` in the environment is used as it is. Else: the server that `up` (or another such
    command) runs, or one started here and stopped at the end. Raises UpError.
    """
    if given := given_url("DATABASE_URL"):
        yield given
        return
    state = ensure(var)
    # Held shared by every user, and alone by whoever is about to stop the server: nobody's server goes
    # away under a command, and nobody starts to use one that is being stopped.
    users = Lock(state.var / "postgres.users")
    users.take(shared=True, wait=True)
    owner = Lock(state.var / "postgres.lock")
    try:
        if not owner.take():
            _wait_for_the_other(state)
            yield postgres.url(state.data)
            return
        postgres.make(state.data)
        log = state.begin_log("postgres")
        with _running(postgres.program(state.data), log, lambda: postgres.answers(state.data)):
            postgres.make_database(state.data)
            address = postgres.url(state.data)
            state.keep({"DATABASE_URL": address})
            yield address
            users.take(wait=True)
    finally:
        owner.release()
        users.release()


def _wait_for_the_other(state: State) -> None:
    wait_until(
        lambda: (
            state.data.exists() and postgres.answers(state.data) and "DATABASE_URL" in state.environment()
        ),
        lambda: None,
        "postgres (run by another command)",
        state.var / "log" / "postgres.log",
    )


def main(command: list[str]) -> int:
    """Runs `command` while the database runs, migrated; gives its exit status."""
    var = default_var()
    environment = {**os.environ, "TITEN_VAR": str(var)}
    with running_database(var):
        migrate = [sys.executable, str(REPOSITORY / "manage.py"), "migrate", "--noinput", "--verbosity", "0"]
        # The command makes its own checks; one that puts right what they find must be able to run.
        migrate.append("--skip-checks")
        return (
            subprocess.run(migrate, env=environment, stdout=sys.stderr, check=False).returncode
            or subprocess.run(command, env=environment, check=False).returncode
        )


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UpError as error:
        sys.exit(str(error))
