"""Requests that wait: the view runs, and runs again when something has happened, until time is up."""

import asyncio
import logging
import time
from contextlib import suppress

from django.db import DatabaseError

from coordination.leases import answer_lost
from titen.errors import Refused

from .doors import environ_of
from .http import Answer, GoneError, Receive, Scope, refusal, watch
from .pool import Pool
from .requests import Request, is_nothing_yet, is_unsettled
from .waiters import LeaseWish, Waiter, Waiting

logger = logging.getLogger("titen.live")

# How long one run of a view may take, queueing for a thread included, when the client does not wait longer.
ATTEMPT_SECONDS = 15.0


class Waits:
    """Answers requests with `?wait=`. While one waits it costs a little memory: no thread, no connection."""

    def __init__(self, pool: Pool, waiting: Waiting) -> None:
        self._pool = pool
        self._waiting = waiting
        self._stopping = False

    def stop(self) -> None:
        """Give all who wait the last answer of their view."""
        self._stopping = True
        self._waiting.release()

    async def answer(self, scope: Scope, body: bytes, receive: Receive) -> Answer:
        """The answer, after `wait` seconds at most. Raises `GoneError` when the client has left."""
        request = Request(environ_of(scope), body)
        deadline = time.monotonic() + request.seconds()
        leaving = asyncio.create_task(watch(receive))
        leaving.add_done_callback(lambda _: request.leave())
        try:
            answer = await self._attempt(request, deadline)
            wish = request.wish()
            if wish is None or time.monotonic() >= deadline:
                return answer
            unsettled = is_unsettled(answer)
            if not unsettled and not is_nothing_yet(wish, answer):
                self._waiting.answered(request.repeats())
                return answer
            waiter = Waiter(wish, request.repeats(), woken=request.woken, unsettled=unsettled)
            with self._waiting.joined(waiter):
                return await self._wait(request, waiter, answer, deadline)
        finally:
            leaving.cancel()

    async def _wait(self, request: Request, waiter: Waiter, answer: Answer, deadline: float) -> Answer:
        while not self._stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    await waiter.woken.wait()
            if request.gone:
                raise GoneError
            last = not waiter.woken.is_set()
            # A refused lease is asked for once more: its answer said until when, and that was renewed since.
            if self._stopping or (last and not isinstance(waiter.wish, LeaseWish)):
                break
            waiter.woken.clear()
            answer = await self._attempt(request, deadline)
            unsettled = is_unsettled(answer)
            served = not unsettled and not is_nothing_yet(waiter.wish, answer)
            self._waiting.settle(waiter, served=served, unsettled=unsettled)
            if served or last:
                break
        return answer

    async def _attempt(self, request: Request, deadline: float) -> Answer:
        """One run of the view. What it grants must reach the client, or is kept for seconds only."""
        try:
            left = deadline - time.monotonic()
            answer = await self._pool.run(request.attempt, seconds=max(left, ATTEMPT_SECONDS))
        except TimeoutError:
            request.given_up = True
            return refusal(Refused("OVERLOADED", retry_after=2))
        if request.gone and answer.granted:
            leases = list(answer.granted)
            try:
                await self._pool.run(lambda: answer_lost(leases), seconds=ATTEMPT_SECONDS)
            except (DatabaseError, TimeoutError) as problem:
                logger.warning("leases %s stay with a caller who has hung up: %s", leases, problem)
            raise GoneError
        return answer
