"""The hub: one asyncio process for everything that waits or streams.

Requests with `?wait=` run the very views that the WSGI doors run, on a few threads, and wait in between
without a thread or a connection. Boards are read once a second and sent to all their viewers. Whoever
follows a log is handed what is new in it.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from django.conf import settings

from titen.errors import Refused

from .channels import Source
from .chores import Chores
from .event_streams import PATHS, EventStreams
from .followers import Following
from .http import Budget, GoneError, Receive, Scope, Send, discard_body, read_body, refusal, respond
from .pool import Pool
from .streams import Streams
from .tail import Tail
from .waiters import Waiting
from .waits import Waits

logger = logging.getLogger("titen.live")

DOOR_THREADS = 4
# How long an attempt of a waiting request waits for a row that somebody else has locked. It gives its thread
# back and is made again, so that all who wait for one stuck row leave room for those who wait for others.
DOOR_LOCK_SECONDS = 0.2
WORK_THREADS = 2
FOLLOW_THREADS = 2
BODY_BUDGET = 32 * 1024 * 1024


class Hub:
    """The ASGI application. `limit`: requests that may be open at once; one more is refused, not queued."""

    def __init__(self, sources: Mapping[str, Source], *, limit: int) -> None:
        self._sources = sources
        self._limit = limit
        self._open = 0
        self._budget = Budget(BODY_BUDGET)
        # Views and everything else apart: a page that takes long never keeps a claim waiting.
        self._doors = Pool("door", DOOR_THREADS, lock_seconds=DOOR_LOCK_SECONDS)
        self._work = Pool("work", WORK_THREADS)
        self._follow = Pool("follow", FOLLOW_THREADS)
        self._waiting = Waiting()
        self._waits = Waits(self._doors, self._waiting)
        self._streams = Streams(self._work)
        self._following = Following()
        self._event_streams = EventStreams(self._follow, self._following)
        self._loops: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open += 1
        try:
            if self._open > self._limit:
                await discard_body(receive)
                raise Refused("OVERLOADED", retry_after=5)
            if (source := self._sources.get(scope["path"])) is not None:
                await discard_body(receive)
                await self._streams.serve(source, scope, receive, send)
            elif PATHS.fullmatch(scope["path"]):
                await discard_body(receive)
                await self._event_streams.serve(scope, receive, send)
            else:
                await self._answer(scope, receive, send)
        except GoneError:
            pass
        except Refused as refused:
            await respond(send, refusal(refused, scope["path"]))
        finally:
            self._open -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = await read_body(scope, receive, limit=limit, budget=self._budget)
        size = len(body)
        try:
            answer = await self._waits.answer(scope, body, receive)
        finally:
            self._budget.give_back(size)
        await respond(send, answer)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._end()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _start(self) -> None:
        chores = Chores(self._work)
        tail = Tail(self._waiting, self._following, sweep=chores.sweep, number=chores.number)
        streams, events = self._streams, self._event_streams
        for run in (tail.run, chores.run, streams.ping, streams.check, events.ping, events.check):
            self._loops.append(asyncio.create_task(_for_ever(run)))
        stop_at(signal.SIGTERM, self._stop)
        stop_at(signal.SIGINT, self._stop)

    def _stop(self) -> None:
        """Let everybody go: the server closes the process once no request is open."""
        self._waits.stop()
        self._streams.stop()
        self._event_streams.stop()

    async def _end(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._doors.close()
        self._work.close()
        self._follow.close()


async def _for_ever(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A loop that a fault of ours does not end."""
    while True:
        try:
            await run()
        except Exception:
            logger.exception("a loop of the hub failed and starts again")
            await asyncio.sleep(1)


def stop_at(number: signal.Signals, stop: Callable[[], None]) -> None:
    """Call `stop` in this loop when the signal comes, besides what the server does then.

    ASGI tells an application of the end only after its last request is over, which an open stream never
    is. A handler of the event loop stays in force: it hears of signals by another way than this one.
    """
    loop = asyncio.get_running_loop()
    before = signal.getsignal(number)

    def handle(received: int, stack: Any) -> None:
        loop.call_soon_threadsafe(stop)
        if callable(before):
            before(received, stack)

    signal.signal(number, handle)
