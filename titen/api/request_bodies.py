"""The bodies of WSGI requests: read whatever their framing is, and taken in even when no view has read them."""

import io
import time
from contextlib import suppress
from typing import Any

from django.conf import settings

CHUNK = 65_536
# What nobody reads is taken in up to here, so that the answer reaches who is still sending.
DRAINED_BYTES = 16 * 1024 * 1024
DRAINED_SECONDS = 10.0


def give_length(environ: dict[str, Any]) -> None:
    """Give a chunked body its length: Django reads as much as `CONTENT_LENGTH` says, and nothing without it.

    At most one byte more than the limit is read: then the length says that the body is too long.
    """
    if not environ.get("HTTP_TRANSFER_ENCODING"):
        return
    stream, parts, left = environ["wsgi.input"], list[bytes](), settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1
    with suppress(OSError):
        while left and (part := stream.read(min(left, CHUNK))):
            parts.append(part)
            left -= len(part)
    body = b"".join(parts)
    environ["wsgi.input"] = Rest(io.BytesIO(body), stream)
    environ["CONTENT_LENGTH"] = str(len(body))


class Rest:
    """A body whose beginning was read already, in front of what is still to come."""

    def __init__(self, beginning: io.BytesIO, rest: Any) -> None:
        self.read, self.readline = beginning.read, beginning.readline
        self.rest = rest


def drain(environ: dict[str, Any]) -> None:
    """Take in what nobody has read: a server that answers on unread bytes closes, and loses the answer with them."""
    stream = environ["wsgi.input"]
    stream = stream.rest if isinstance(stream, Rest) else stream
    until = time.monotonic() + DRAINED_SECONDS
    with suppress(OSError):
        for _ in range(DRAINED_BYTES // CHUNK):
            if not stream.read(CHUNK) or time.monotonic() > until:
                break
