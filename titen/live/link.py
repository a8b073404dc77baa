"""The hub's own connection: asynchronous, made again whenever it is lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from django.db import connections

logger = logging.getLogger("titen.live")

CONNECT_SECONDS = 5
# Longer than any statement of ours may take; whoever is silent for so long is taken for dead.
ANSWER_SECONDS = 4.0
LONGEST_PAUSE = 2.0

# Its cursors and adapters, and a threshold that would keep psycopg from preparing anything.
_DJANGOS_OWN = ("cursor_factory", "context", "prepare_threshold")


def parameters() -> dict[str, Any]:
    """How Django connects, as psycopg takes it, with signs of life and limits in time."""
    django = connections["default"].get_connection_params()
    known = {key: value for key, value in django.items() if key not in _DJANGOS_OWN}
    options = (
        f"{known.get('options', '')} -c statement_timeout=3000 -c idle_in_transaction_session_timeout=5000"
    )
    return {
        **known,
        "options": options.strip(),
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 5000,
    }


class LostError(Exception):
    """The database did not answer."""


class Link:
    """One connection in autocommit. Use it from one task at a time."""

    def __init__(self) -> None:
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._losses = 0

    async def ask[T](self, question: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """The answer to `question`. `LostError` when there is none in time: the next call connects anew."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await self._connect()
            answer = await _within(ANSWER_SECONDS, connection, question(connection))
        except (psycopg.Error, OSError, TimeoutError) as problem:
            self.close()
            if not self._losses:
                words = str(problem).strip().splitlines()
                logger.warning(
                    "the hub has lost the database: %s", words[0] if words else type(problem).__name__
                )
            self._losses += 1
            raise LostError from problem
        if self._losses:
            logger.info("the hub has the database again")
            self._losses = 0
        return answer

    @property
    def pause(self) -> float:
        """Seconds to wait after a loss, more with each in a row. A first loss may be a connection long dead."""
        return min(0.1 * 2**self._losses, LONGEST_PAUSE) if self._losses > 1 else 0.0

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await psycopg.AsyncConnection.connect(**parameters(), autocommit=True)
        return self._connection

    def close(self) -> None:
        """Drop the connection without waiting for the server, which may be frozen."""
        if self._connection is not None:
            self._connection.pgconn.finish()
            self._connection = None


async def _within[T](seconds: float, connection: psycopg.AsyncConnection[Any], answer: Awaitable[T]) -> T:
    """`answer`, or `TimeoutError`. A cancelled psycopg call would ask a frozen server to cancel and wait for it."""
    asking = asyncio.ensure_future(answer)
    try:
        done, _ = await asyncio.wait({asking}, timeout=seconds)
        if done:
            return asking.result()
    finally:
        if not asking.done():
            connection.pgconn.finish()
            asking.cancel()
    raise TimeoutError("no answer in time")
