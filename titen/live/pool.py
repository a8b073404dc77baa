"""A few threads, each with one persistent database connection."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections

from titen.postgres.limits import wait_for_locks


class Pool:
    """Runs what talks to the database, so that the event loop never waits for it.

    lock_seconds: how long its connections wait for a lock, when not as long as all others.
    """

    def __init__(self, name: str, threads: int, *, lock_seconds: float | None = None) -> None:
        def begin() -> None:
            if lock_seconds is not None:
                wait_for_locks(lock_seconds)

        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=begin)

    async def run[T](self, work: Callable[[], T], *, seconds: float) -> T:
        """What `work` returns. `TimeoutError` after `seconds`, queueing included.

        Work that has not begun by then never does; work that has goes on, and its result is dropped.
        """

        def whole() -> T:
            close_old_connections()
            return work()

        job = self._executor.submit(whole)
        return await asyncio.wait_for(asyncio.wrap_future(job), seconds)

    def close(self) -> None:
        """Take no more work and drop what has not begun."""
        self._executor.shutdown(wait=False, cancel_futures=True)
