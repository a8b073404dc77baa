"""The state folder (`TITEN_VAR`): what one installation keeps on this machine.

environment     KEY=VALUE lines, mode 0600: secrets, and the URLs of the embedded servers
postgres/       the data of the embedded PostgreSQL
log/            one file per process, begun anew by every `up`; the one before is kept as `.1`
run/            Unix sockets
static/         collected static files
*.lock          see `Lock`
"""

import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent

# A Unix socket's path may hold 107 bytes on Linux and 103 on macOS; PostgreSQL's names take up to 20.
SOCKET_FOLDER_BYTES = 80


class UpError(Exception):
    """One clear sentence for the person at the terminal."""


def given_url(name: str) -> str | None:
    """The URL of a server that the environment names. An empty one counts as none, for our children too."""
    return os.environ.get(name) or os.environ.pop(name, None) or None


def private_folder(path: Path, uid: int) -> Path:
    """Makes `path` for this user alone, or checks that it is so. Raises UpError when it is not."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
        if uid != os.geteuid():
            os.chown(path, uid, -1)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
        raise UpError(f"{path} must be a folder that belongs to user {uid} and is closed to everyone else.")
    return path


def socket_folder(preferred: Path, uid: int) -> Path:
    """`preferred`, or a short private folder in the temporary folder when sockets can't be bound there."""
    if len(os.fsencode(preferred)) <= SOCKET_FOLDER_BYTES:
        return private_folder(preferred, uid)
    digest = hashlib.sha256(os.fsencode(preferred)).hexdigest()[:16]
    return private_folder(Path(tempfile.gettempdir()) / f"titen-{digest}", uid)


@dataclass(frozen=True, slots=True)
class State:
    """The paths of one state folder. Make it with `State.open`."""

    var: Path

    @classmethod
    def open(cls, var: Path) -> "State":
        """Makes the folder when it is missing. Raises UpError when that is not possible."""
        var = var.expanduser().resolve()
        try:
            if not var.exists():
                # PostgreSQL, which can't run as root, has to walk through a folder that root makes.
                var.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True)
            (var / "log").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UpError(f"The state folder {var} can't be used: {error.strerror}.") from error
        return cls(var)

    @property
    def data(self) -> Path:
        return self.var / "postgres"

    @property
    def sockets(self) -> Path:
        return socket_folder(self.var / "run", os.geteuid())

    def environment(self) -> dict[str, str]:
        """What the file `environment` says; empty before the first start."""
        try:
            lines = (self.var / "environment").read_text().splitlines()
        except FileNotFoundError:
            return {}
        pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        return {key.strip(): value.strip() for key, value in pairs}

    def keep(self, values: Mapping[str, str]) -> None:
        """Writes `values` and whatever secret is still missing into the file; the rest of it stays."""
        lock = Lock(self.var / "environment.lock")
        lock.take(wait=True)  # two first commands at once must end up with the same secrets
        try:
            self._keep(values)
        finally:
            lock.release()

    def _keep(self, values: Mapping[str, str]) -> None:
        before = self.environment()
        made = {name: secrets.token_urlsafe(50) for name in ("TITEN_SECRET_KEY", "TITEN_SECRET_KEYS")}
        after = {**made, **before, **values}
        if after == before:
            return
        draft = self.var / "environment.new"
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.writelines(f"{key}={value}\n" for key, value in after.items())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.var / "environment")

    def begin_log(self, name: str) -> Path:
        """An empty log file for `name`; the one of the last start is kept beside it as `<name>.log.1`."""
        path = self.var / "log" / f"{name}.log"
        with suppress(FileNotFoundError):
            path.replace(path.with_suffix(".log.1"))
        path.touch(mode=0o600)
        return path


class Lock:
    """An advisory lock on a file: gone with the last process that holds it open, however it ended.

    `up.lock` is held by the one `up` of a state folder, `postgres.lock` by whoever runs its PostgreSQL,
    `postgres.users` (shared) by every command that works with a server somebody else may stop.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, *, shared: bool = False, wait: bool = False) -> bool:
        """True when the lock is ours now. With `wait` it always is."""
        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        try:
            fcntl.flock(self.descriptor, mode)
        except BlockingIOError:
            return False
        return True

    def sign(self, text: str) -> None:
        """Writes who holds it."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, text.encode(), 0)

    def signature(self) -> str:
        """Who holds it, or held it last."""
        return os.pread(self.descriptor, 200, 0).decode(errors="replace")

    def release(self) -> None:
        os.close(self.descriptor)
