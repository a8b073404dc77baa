"""Server-sent events: one viewer's queue."""

import asyncio
from collections import deque

from titen.api.event_stream import CONTENT_TYPE

from .http import Send

# A viewer that is this many messages behind gets everything anew instead.
QUEUE_LIMIT = 8
# A named event: a page never sees a comment, and it watches for silence.
PING = b"event: alive\ndata:\n\n"
ENDED = b"event: titen-session-ended\ndata: login\n\n"
HEADERS = [
    (b"content-type", CONTENT_TYPE.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
RETRY = b"retry: 1000\n\n"


class Viewer:
    """One open stream. It holds what is to be sent next, never more than a few messages.

    `behind`: it has to get the whole picture before any further change.
    """

    __slots__ = ("_queue", "behind", "closing", "ready", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self.ready = asyncio.Event()
        self.behind = True
        self.closing: bytes | None = None
        self._queue: deque[bytes] = deque()

    def offer(self, message: bytes) -> None:
        """Queue a message that is the same object for all viewers; on overflow drop all of them."""
        if len(self._queue) >= QUEUE_LIMIT:
            self.repaint()
        elif not self.behind:
            self._queue.append(message)
            self.ready.set()

    def ping(self) -> None:
        """Show that the stream lives, unless something is on its way."""
        if not self._queue:
            self._queue.append(PING)
            self.ready.set()

    def repaint(self) -> None:
        """Forget what was queued: the next thing sent is the whole picture."""
        self._queue.clear()
        self.behind = True
        self.ready.set()

    def end(self, last: bytes = b"") -> None:
        """Send `last` and close."""
        self.closing = last
        self.ready.set()

    def take(self) -> bytes:
        """All that is queued."""
        messages = b"".join(self._queue)
        self._queue.clear()
        return messages


async def begin(send: Send) -> None:
    """Open the stream."""
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": RETRY, "more_body": True})


async def end(send: Send, last: bytes = b"") -> None:
    """Close the stream."""
    await send({"type": "http.response.body", "body": last, "more_body": False})
