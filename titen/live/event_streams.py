"""Streams of logs: opened by their views, continued by the hub."""

import asyncio
import logging
import re
from collections import Counter
from contextlib import suppress
from uuid import UUID

from django.db import Error

from titen.errors import Refused

from . import sse
from .doors import call, environ_of
from .followers import Follower, Following
from .http import Answer, Receive, Scope, Send, refusal, respond, watch
from .pool import Pool
from .standing import stand

logger = logging.getLogger("titen.live")

PATHS = re.compile(r"/v1/events/stream|/api/v1/documents/[^/]*/events/stream")
PING_SECONDS = 15.0
# A stream is closed this long after its key, session or membership ended, at most, plus one check.
CHECK_SECONDS = 20.0
QUERY_SECONDS = 10.0
# How long a follower waits before it asks a database again that was away.
AWAY_SECONDS = 1.0
# Streams that one principal may have open.
PRINCIPAL_LIMIT = 100
UNWANTED = (b"content-length",)


class EventStreams:
    """All open streams of logs."""

    def __init__(self, pool: Pool, following: Following) -> None:
        self._pool = pool
        self._following = following
        self._followers: dict[Follower, None] = {}
        self._counts: Counter[UUID] = Counter()

    def stop(self) -> None:
        """End all streams; their readers connect again."""
        for follower in self._followers:
            follower.end()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the view, and go on where its answer ends until either side leaves."""
        answer = await self._ask_view(scope)
        if answer.opening is None or scope["method"] != "GET":
            await respond(send, answer)
            return
        follower = Follower(answer.opening)
        if self._counts[follower.reader] >= PRINCIPAL_LIMIT:
            await respond(send, refusal(Refused("RATE_LIMITED", retry_after=30), scope["path"]))
            return
        leaving = asyncio.create_task(watch(receive))
        leaving.add_done_callback(lambda _: follower.end())
        self._followers[follower] = None
        self._counts[follower.reader] += 1
        headers = [pair for pair in answer.headers if pair[0] not in UNWANTED]
        first = {"type": "http.response.body", "body": answer.body, "more_body": True}
        # A page of the log, which would stay as long as the stream does.
        del answer
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send(first)
            del first, headers
            await self._write(follower, send)
            if not leaving.done():
                await sse.end(send, follower.closing or b"")
        finally:
            leaving.cancel()
            self._forget(follower)

    async def _ask_view(self, scope: Scope) -> Answer:
        environ = environ_of(scope)
        try:
            return await self._pool.run(lambda: call(environ, b""), seconds=QUERY_SECONDS)
        except TimeoutError:
            raise Refused("OVERLOADED", retry_after=5) from None

    def _forget(self, follower: Follower) -> None:
        self._following.leave(follower)
        del self._followers[follower]
        self._counts[follower.reader] -= 1
        if not self._counts[follower.reader]:
            del self._counts[follower.reader]

    async def _write(self, follower: Follower, send: Send) -> None:
        """Send until the stream is to be closed. A reader that is slow holds up only itself."""
        while follower.closing is None:
            if follower.live:
                await follower.ready.wait()
                message = follower.take()
            else:
                message = await self._catch_up(follower)
            if message and follower.closing is None:
                await send({"type": "http.response.body", "body": message, "more_body": True})

    async def _catch_up(self, follower: Follower) -> bytes:
        """Read one page; after the last one the tail takes over, in the same turn of the loop."""
        try:
            page = await self._pool.run(lambda: follower.feed.read(follower.position), seconds=QUERY_SECONDS)
        except (Error, TimeoutError):
            with suppress(TimeoutError):
                async with asyncio.timeout(AWAY_SECONDS):
                    await follower.ready.wait()
            return follower.take()
        message = follower.page(page)
        if page.is_last and follower.closing is None:
            self._following.admit(follower)
        return message

    async def ping(self) -> None:
        """Show all readers, every 15 seconds, that their streams live; until cancelled."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            for follower in self._followers:
                follower.ping()

    async def check(self) -> None:
        """Every 20 seconds end the streams of who has no standing any more; until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            followers = list(self._followers)
            tickets = [follower.ticket for follower in followers]
            try:
                found = await self._pool.run(lambda: stand(tickets), seconds=QUERY_SECONDS)  # noqa: B023
            except (Error, TimeoutError):
                continue
            for follower, stands in zip(followers, found, strict=True):
                if not stands:
                    follower.end(follower.feed.closed("UNAUTHENTICATED"))
