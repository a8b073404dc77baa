"""Sending what webhooks are owed: all receivers at once in asyncio, so that one that hangs delays nobody else.

The database is asked before and after each call, on a thread of its own, never while a receiver is waited for.
"""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC

from django.db import Error, connections
from standardwebhooks import Webhook as Signer

from titen.api.doors import transact
from titen.api.ids import public_id
from titen.errors import Refused

from . import outcomes, outgoing, taking
from .keyring import open_sealed
from .outgoing import Answer
from .taking import Taken

logger = logging.getLogger("titen.webhooks")

# How many calls one process makes at the same time.
ROOM = 200
# While calls are under way, so often it is looked for more to send.
LOOK_SECONDS = 0.25


def deliver() -> int:
    """Send what is due until nothing is, and nothing is under way; how many attempts."""
    return asyncio.run(_deliver())


async def _deliver() -> int:
    loop = asyncio.get_running_loop()
    database = ThreadPoolExecutor(1, thread_name_prefix="deliveries")
    under_way: set[asyncio.Task[tuple[Taken, Answer]]] = set()
    attempts = 0
    try:
        while True:
            room = ROOM - len(under_way)
            taken = await loop.run_in_executor(database, _take, room)
            attempts += len(taken)
            under_way |= {asyncio.create_task(_attempt(one)) for one in taken}
            if not under_way:
                return attempts
            done, under_way = await asyncio.wait(
                under_way, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                await loop.run_in_executor(database, _record, [task.result() for task in done])
    finally:
        await loop.run_in_executor(database, connections.close_all)
        database.shutdown(wait=False)


def _take(room: int) -> list[Taken]:
    return transact(lambda: taking.take(room))


def _record(ended: list[tuple[Taken, Answer]]) -> None:
    transact(lambda: outcomes.record_all(ended))


async def _attempt(taken: Taken) -> tuple[Taken, Answer]:
    if taken.problem:
        return taken, Answer(None, taken.problem, 0)
    try:
        headers = signed(taken)
    except Refused:
        return taken, Answer(None, "secret_unreadable", 0)
    return taken, await outgoing.post(taken.url, taken.body, headers)


def signed(taken: Taken) -> dict[str, str]:
    """The headers of an attempt, as Standard Webhooks names them: signed for this moment.

    `NOT_READY` when no secret of the keyring opens the webhook's.
    """
    name, at, text = public_id("dlv", taken.delivery_id), taken.at.astimezone(UTC), taken.body.decode()
    signers = [Signer(open_sealed(secret).decode()) for secret in taken.secrets]
    return {
        "content-type": "application/json",
        "user-agent": "Titen",
        "webhook-id": name,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signer.sign(name, at, text) for signer in signers),
    }


class Courier:
    """Delivers on a thread of its own, so that the jobs of the worker do not wait for receivers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Deliver, unless that is being done. Comes back at once."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._deliver, name="courier", daemon=True)
                self._thread.start()

    def _deliver(self) -> None:
        try:
            deliver()
        except Error as problem:
            # What was under way comes back when its time is over.
            logger.warning("deliveries are put off: %s", str(problem).split("\n", 1)[0])


courier = Courier()
