"""Running a Django view in this process, by the very handler that serves the doors under WSGI."""

import io
import sys
from typing import Any
from urllib.parse import unquote_to_bytes

from titen.api.event_stream import opening_of
from titen.wsgi import application

from .http import Answer, Scope


def environ_of(scope: Scope) -> dict[str, Any]:
    """A request as WSGI describes it, without its body."""
    server = scope.get("server") or ("localhost", None)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope.get("raw_path") or scope["path"].encode()).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1] or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": (scope.get("client") or ("", 0))[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        # An underscore would let a client say what only the front may say.
        if b"_" in name:
            continue
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        text = value.decode("latin-1")
        separator = "; " if key == "HTTP_COOKIE" else ","
        environ[key] = f"{environ[key]}{separator}{text}" if key in environ else text
    return environ


def call(environ: dict[str, Any], body: bytes) -> Answer:
    """Run the view on this thread's database connection and gather its answer.

    A body that was announced as too long has not been read; the door sees its length and refuses it.
    """
    status, headers = 0, list[tuple[bytes, bytes]]()

    def start_response(line: str, given: list[tuple[str, str]], exc_info: object = None) -> Any:
        nonlocal status
        status = int(line.split(" ", 1)[0])
        headers.extend((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in given)

    whole = {**environ, "wsgi.input": io.BytesIO(body)}
    if body:
        whole["CONTENT_LENGTH"] = str(len(body))
    response: Any = application(whole, start_response)
    try:
        content = b"".join(response)
    finally:
        response.close()
    return Answer(status, headers, content, opening_of(response), getattr(response, "granted", ()))
