"""Followers of logs, and what a look at the database sends to them.

A follower reads the log itself, page by page, until it stands where the tail stands; from then on the
tail hands it every new line. One that falls too far behind reads for itself again: nothing is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from coordination.database import Row
from coordination.following import Log, Page
from titen.api.event_stream import SILENT_POSITIONS, Feed, Opening, last_shown, last_told, passed

from .news import News
from .standing import KeyTicket, Ticket

# What a follower may leave unread. Equal feeds share the bytes.
QUEUE_BYTES = 256 * 1024
PING = b": alive\n\n"


class Follower:
    """One open stream.

    position: the last line that was sent, queued or passed over; sent: the same without what is queued;
    told: the last position that its reader was told. live: the tail hands it what is new.
    """

    __slots__ = (
        "_queue",
        "_size",
        "closing",
        "feed",
        "live",
        "position",
        "reader",
        "ready",
        "sent",
        "ticket",
        "told",
    )

    def __init__(self, opening: Opening) -> None:
        caller = opening.caller
        self.feed: Feed = opening.feed
        self.reader: UUID = caller.user_id or caller.principal_id
        self.ticket: Ticket | KeyTicket = (
            Ticket(opening.session, caller.organization_id) if opening.session else KeyTicket(caller.key_id)
        )
        self.position = self.sent = self.told = opening.position
        self.live = False
        self.closing: bytes | None = None
        self.ready = asyncio.Event()
        self._queue: deque[bytes] = deque()
        self._size = 0

    def offer(self, message: bytes, position: int, told: int) -> None:
        """Queue what the lines up to `position` show, the last of them at `told`; may be nothing.

        What does not fit is read again later.
        """
        if self._size + len(message) > QUEUE_BYTES:
            self._queue.clear()
            self._size, self.live = 0, False
            self.position, self.told = self.sent, min(self.told, self.sent)
            self.ready.set()
            return
        self.position = position
        if message:
            self.told = told
            self._push(message)
        if position - self.told >= SILENT_POSITIONS:
            self._tell()

    def page(self, page: Page) -> bytes:
        """What is to be sent for a page that the follower read itself, with what was queued before it."""
        message = passed(self.feed, page)
        self.position = page.position
        self.told = last_told(self.feed, page, before=self.told)
        before = self.take()
        if self.position - self.told >= SILENT_POSITIONS:
            message += self.feed.place(self.position)
            self.told = self.position
        return before + message

    def ping(self) -> None:
        """Show that the stream lives, unless something is on its way."""
        if not self._queue and self.closing is None:
            self._tell()

    def _tell(self) -> None:
        message = self.feed.place(self.position) if self.position > self.told else b""
        self.told = self.position
        self._push(message or PING)

    def _push(self, message: bytes) -> None:
        self._queue.append(message)
        self._size += len(message)
        self.ready.set()

    def end(self, last: bytes = b"") -> None:
        """Send `last` and close."""
        if self.closing is None:
            self.closing = last
        self.ready.set()

    def take(self) -> bytes:
        """All that is queued; it counts as sent."""
        self.ready.clear()
        messages = b"".join(self._queue)
        self._queue.clear()
        self._size, self.sent = 0, self.position
        return messages


@dataclass(slots=True)
class Followed:
    """A log with live followers. Each of them stands at `position`, up to which the tail has read, or behind it."""

    position: int
    followers: set[Follower] = field(default_factory=set)


class Following:
    """All live followers, by the log that they follow."""

    def __init__(self) -> None:
        self.somebody = asyncio.Event()
        self._logs: dict[Log, Followed] = {}

    def admit(self, follower: Follower) -> bool:
        """Let a follower that has read everything have what is new; not one that the tail is ahead of."""
        log = follower.feed.log
        followed = self._logs.setdefault(log, Followed(follower.position))
        if follower.position < followed.position:
            return False
        followed.followers.add(follower)
        follower.live = True
        self.somebody.set()
        return True

    def leave(self, follower: Follower) -> None:
        """It is no longer handed anything."""
        follower.live = False
        followed = self._logs.get(follower.feed.log)
        if followed is not None:
            followed.followers.discard(follower)
            if not followed.followers:
                del self._logs[follower.feed.log]
        if not self._logs:
            self.somebody.clear()

    def begin_look(self) -> dict[Log, int]:
        """Which logs to read, after which positions."""
        return {log: followed.position for log, followed in self._logs.items()}

    def publish(self, news: News) -> None:
        """Hand on what a look has found. A log that was left and followed anew meanwhile waits for the next."""
        for log, rows in news.rows.items():
            followed = self._logs.get(log)
            if followed is not None and followed.position == news.asked[log]:
                followed.position = rows[-1]["position"]
                _hand_on(followed, rows)
                for follower in [one for one in followed.followers if not one.live]:
                    self.leave(follower)


def _hand_on(followed: Followed, rows: Sequence[Row]) -> None:
    """Each line is made a frame once for each way in which it is shown, and joined once for equal feeds."""
    frames: dict[tuple[int, str], bytes] = {}
    joined: dict[tuple[Feed, int], tuple[bytes, int]] = {}
    newest = rows[-1]["position"]

    def frame_of(feed: Feed, row: Row) -> bytes:
        if (cut := feed.cut(row)) is None:
            return b""
        key = (row["position"], cut)
        if key not in frames:
            frames[key] = feed.message(row, cut)
        return frames[key]

    for follower in followed.followers:
        if follower.position >= newest:
            continue
        # It may have read the first of these lines by itself, just before it was admitted.
        key = (follower.feed, max(follower.position, rows[0]["position"] - 1))
        if key not in joined:
            new = [row for row in rows if row["position"] > key[1]]
            shown = b"".join(frame_of(follower.feed, row) for row in new)
            joined[key] = shown, last_shown(follower.feed, new, otherwise=key[1])
        message, told = joined[key]
        follower.offer(message, newest, told)
