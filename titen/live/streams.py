"""Open streams: who may open one, how long it stays open, and what is written to it."""

import asyncio
import logging
from collections.abc import Hashable

from django.db import DatabaseError

from titen.api.queries import values_of
from titen.errors import Refused, not_found

from . import sse
from .channels import Channel, Source, Subject
from .http import Answer, Receive, Scope, Send, refusal, respond, watch
from .pool import Pool
from .sse import Viewer
from .standing import Ticket, roles, session_of

logger = logging.getLogger("titen.live")

PING_SECONDS = 15.0
# A stream is closed this long after its session or membership ended, at most, plus one check.
CHECK_SECONDS = 20.0
QUERY_SECONDS = 10.0


class Streams:
    """All viewers of all channels."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._channels: dict[Hashable, tuple[Channel, asyncio.Task[None]]] = {}
        self._tickets: dict[Viewer, Ticket] = {}

    def stop(self) -> None:
        """End all streams; the pages connect again by themselves."""
        for viewer in self._tickets:
            viewer.end()

    async def serve(self, source: Source, scope: Scope, receive: Receive, send: Send) -> None:
        """Check who asks, then send what they see until either side leaves."""
        if scope["method"] != "GET":
            await respond(send, refusal(Refused("METHOD_NOT_ALLOWED", method=scope["method"], allowed="GET")))
            return
        session, query = session_of(scope), values_of(scope["query_string"])

        def look_up() -> tuple[Subject | None, str | None]:
            subject = source.find(query)
            if subject is None:
                return None, None
            return subject, roles([Ticket(session, subject.organization_id)])[0]

        try:
            subject, role = await self._pool.run(look_up, seconds=QUERY_SECONDS)
        except (DatabaseError, TimeoutError):
            await respond(send, refusal(Refused("NOT_READY", retry_after=1)))
            return
        if subject is None or role is None:
            await self._turn_away(scope, send, known=bool(session))
            return
        viewer = Viewer(role)
        self._tickets[viewer] = Ticket(session, subject.organization_id)
        try:
            await self._show(source, subject, viewer, receive, send)
        finally:
            del self._tickets[viewer]

    async def _turn_away(self, scope: Scope, send: Send, *, known: bool) -> None:
        """A page is told to go to the login; anything else gets a refusal, the same for foreign and unknown."""
        if any(name == b"accept" and b"text/event-stream" in value for name, value in scope["headers"]):
            await sse.begin(send)
            await sse.end(send, sse.ENDED)
            return
        refused = not_found() if known else Refused("UNAUTHENTICATED", "Log in on the board.")
        answer = refusal(refused)
        await respond(
            send, Answer(answer.status, [*answer.headers, (b"cache-control", b"no-store")], answer.body)
        )

    async def _show(
        self, source: Source, subject: Subject, viewer: Viewer, receive: Receive, send: Send
    ) -> None:
        leaving = asyncio.create_task(watch(receive))
        leaving.add_done_callback(lambda _: viewer.end())
        channel = self._enter(source, subject, viewer)
        try:
            await sse.begin(send)
            await _write(channel, viewer, send)
            if not leaving.done():
                await sse.end(send, viewer.closing or b"")
        finally:
            leaving.cancel()
            self._leave(channel, viewer)

    def _enter(self, source: Source, subject: Subject, viewer: Viewer) -> Channel:
        if subject.key not in self._channels:
            channel = Channel(source, subject, self._pool)
            channel.join(viewer)
            self._channels[subject.key] = channel, asyncio.create_task(channel.run())
            return channel
        channel, _ = self._channels[subject.key]
        channel.join(viewer)
        return channel

    def _leave(self, channel: Channel, viewer: Viewer) -> None:
        channel.viewers.discard(viewer)
        if not channel.viewers:
            _, task = self._channels.pop(channel.subject.key)
            task.cancel()

    async def ping(self) -> None:
        """Show all viewers, every 15 seconds, that their streams live; until cancelled."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            for viewer in self._tickets:
                viewer.ping()

    async def check(self) -> None:
        """Every 20 seconds end the streams of who has no standing any more; until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            tickets = dict(self._tickets)
            try:
                found = await self._pool.run(lambda: roles(list(tickets.values())), seconds=QUERY_SECONDS)  # noqa: B023
            except (DatabaseError, TimeoutError):
                continue
            for viewer, role in zip(tickets, found, strict=True):
                if role is None:
                    viewer.end(sse.ENDED)
                elif role != viewer.role:
                    viewer.role = role
                    viewer.repaint()


async def _write(channel: Channel, viewer: Viewer, send: Send) -> None:
    """Send what is queued, until the stream is to be closed. A client that reads slowly holds up only itself."""
    while True:
        await viewer.ready.wait()
        viewer.ready.clear()
        if viewer.closing is not None:
            return
        message = viewer.take()
        if viewer.behind and (whole := channel.whole(viewer.role)):
            viewer.behind = False
            message = whole
        if message:
            await send({"type": "http.response.body", "body": message, "more_body": True})
