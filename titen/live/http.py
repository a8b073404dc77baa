"""The little of ASGI that the hub needs: reading a body, giving an answer, noticing that a client left."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpResponse

from titen.api.event_stream import Opening
from titen.api.plain import page_at
from titen.errors import Refused

type Scope = dict[str, Any]
type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]

BODY_SECONDS = 10.0
# How much of a body that is refused for its size is taken in.
DRAINED = 16 * 1024 * 1024


class GoneError(Exception):
    """The client has closed its connection; nobody reads an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer, or the first part of a stream; with the leases that it grants."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    opening: Opening | None = None
    granted: Sequence[UUID] = ()


class Budget:
    """How many bytes of bodies the process may hold at once, over all requests."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, size: int) -> None:
        """Count `size` bytes in. `OVERLOADED` when they do not fit."""
        if size > self.left:
            raise Refused("OVERLOADED", retry_after=1)
        self.left -= size

    def give_back(self, size: int) -> None:
        """Count them out."""
        self.left += size


async def read_body(scope: Scope, receive: Receive, *, limit: int, budget: Budget) -> bytes:
    """The body, at most `limit` + 1 bytes of it, counted into `budget`: the door refuses a longer one.

    Of one that is announced as longer nothing is kept. What is too much is taken in all the same, up to
    a point: an answer before the end of the body would be lost by who still sends. Raises `GoneError`,
    and `Refused` for a body that does not come or does not fit.
    """
    keeps = int(dict(scope["headers"]).get(b"content-length", b"0") or b"0") <= limit
    parts: list[bytes] = []
    read, kept, more = 0, 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more and read <= DRAINED:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                part = message.get("body", b"")
                read += len(part)
                more = message.get("more_body", False)
                if keeps and kept <= limit:
                    part = part[: limit + 1 - kept]
                    budget.take(len(part))
                    kept += len(part)
                    parts.append(part)
    except TimeoutError:
        budget.give_back(kept)
        summary = f"the body did not arrive within {BODY_SECONDS:.0f} s."
        raise Refused("VALIDATION_ERROR", summary=summary) from None
    except (GoneError, Refused):
        budget.give_back(kept)
        raise
    return b"".join(parts)


async def discard_body(receive: Receive) -> None:
    """Take in a body that nobody wants, up to a point: an answer before its end would be lost by who still sends.

    Raises `GoneError`.
    """
    read, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(BODY_SECONDS):
            while more and read <= DRAINED:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                read += len(message.get("body", b""))
                more = message.get("more_body", False)


async def watch(receive: Receive) -> None:
    """Returns when the client has left. The body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(send: Send, answer: Answer) -> None:
    """Send a whole answer."""
    headers = answer.headers
    if answer.status != 204 and not any(name == b"content-length" for name, _ in headers):
        headers = [*headers, (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def answer_of(response: HttpResponse) -> Answer:
    """A Django response as an answer."""
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    return Answer(response.status_code, headers, response.content)


def refusal(refused: Refused, path: str = "") -> Answer:
    """The answer for a refusal of the hub itself, as the door at `path` says it."""
    return answer_of(page_at(path, refused))
