"""Server-sent events: framing, and the answer with which a view opens a stream.

A view answers with what there is now and says how to go on. The hub goes on; anywhere else the stream
ends there, and its reader comes again with `Last-Event-ID`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.http import HttpResponse

from coordination.callers import Caller
from coordination.database import Row
from coordination.following import Log, Page

CONTENT_TYPE = "text/event-stream; charset=utf-8"
BEGINNING = b": events follow\nretry: 1000\n\n"
# A stream that has shown nothing for so many positions says where it stands.
SILENT_POSITIONS = 1000


def frame(text: str, event: str = "", *, position: int | None = None) -> bytes:
    """One message; its lines end as the wire wants it, and a reader gets them back joined by newlines."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = "" if position is None else f"id: {position}\n"
    head += f"event: {event}\n" if event else ""
    return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode()


class Feed(Protocol):
    """What one stream shows of a log. Equal feeds show the same bytes."""

    @property
    def log(self) -> Log:
        """The log it is of."""

    def read(self, after: int | None) -> Page:
        """A page of lines that were asked for."""

    def cut(self, row: Row) -> str | None:
        """How a line of the log is shown: a word for each way, None for not at all."""

    def message(self, row: Row, cut: str) -> bytes:
        """The frame of a line; equal for equal cuts."""

    def place(self, position: int) -> bytes:
        """The frame that says where a silent stream stands; empty for one that never passes lines over."""

    def resync(self, page: Page) -> bytes:
        """The frame for a cursor that is none of this log."""

    def closed(self, code: str) -> bytes:
        """The last frame of a stream whose reader may read no longer."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A stream that a view has opened. The answer's body has passed `position`.

    session: the key of the browser's session, empty for an API key.
    """

    feed: Feed
    position: int
    caller: Caller
    session: str


class StreamAnswer(HttpResponse):
    """The first part of a stream."""

    def __init__(self, body: bytes, opening: Opening) -> None:
        super().__init__(BEGINNING + body, content_type=CONTENT_TYPE)
        self.opening = opening
        self["Cache-Control"] = "no-store"
        self["X-Accel-Buffering"] = "no"


def messages(feed: Feed, rows: Sequence[Row]) -> bytes:
    """The frames of lines."""
    return b"".join(feed.message(row, cut) for row in rows if (cut := feed.cut(row)) is not None)


def passed(feed: Feed, page: Page) -> bytes:
    """The frames of a page."""
    return (feed.resync(page) if page.missed else b"") + messages(feed, page.rows)


def last_shown(feed: Feed, rows: Sequence[Row], *, otherwise: int) -> int:
    """The position of the last line that has a frame."""
    shown = (row["position"] for row in reversed(rows) if feed.cut(row) is not None)
    return next(shown, otherwise)


def last_told(feed: Feed, page: Page, *, before: int) -> int:
    """The last position that the frames of a page name."""
    return last_shown(feed, page.rows, otherwise=page.start if page.missed else before)


def open_stream(feed: Feed, caller: Caller, *, after: int | None, session: str = "") -> StreamAnswer:
    """Open a stream after a position, or at the beginning, with the first page."""
    page = feed.read(after)
    body = passed(feed, page)
    # Whoever is cut off now comes back to this place.
    if last_told(feed, page, before=-1) != page.position:
        body += feed.place(page.position)
    return StreamAnswer(body, Opening(feed, page.position, caller, session))


def opening_of(response: Any) -> Opening | None:
    """The stream that a response opens, if it does."""
    return response.opening if isinstance(response, StreamAnswer) else None
