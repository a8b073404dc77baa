"""Following the organization's log, through outages, without missing anything."""

import json
from collections.abc import Iterator, Sequence
from typing import cast

from .connection import Connection
from .errors import CursorTooOld, TitenError, Unauthenticated, Unreachable
from .shapes import Event
from .transport import Pauses, given

SILENCE = 40.0
"""Seconds without a sign of life, which the server gives every 15, after which a stream is cut."""
AGAIN = 1.0
"""Seconds before a stream that the server has ended is opened again."""


class EventCalls(Connection):
    """The part of a `Titen` that follows."""

    def events(self, *, after: str | None = None, kinds: Sequence[str] | None = None) -> Iterator[Event]:
        """Every event that this key may see, in order, as it happens; ends only by an error or your `break`.

        after: the `cursor` of the last event that you have dealt with, \"0\" for all that is kept; from now on
        if not given. kinds: only these, such as `task.claimed`.

        Connects again by itself, after the last event, for up to `retry_for` seconds at a time. Keep
        the `cursor` with what you do for an event, and nothing is lost or done twice. Raises `CursorTooOld`
        when events behind the cursor are no longer kept: read the state anew and go on from
        `details["floor"]` or `details["newest"]`. Raises `Unauthenticated` when the key has ended.
        """
        if isinstance(kinds, str):
            raise TypeError("kinds is a list of names")
        filters = given(kind=None if kinds is None else ",".join(kinds), after=after)
        return self._follow(after, filters)

    def _follow(self, place: str | None, filters: dict[str, str]) -> Iterator[Event]:
        pauses = self._pauses()
        while True:
            headers = {} if place is None else {"Last-Event-ID": place}
            try:
                for message in self._transport.stream(
                    "/v1/events/stream", params=filters, headers=headers, silence=SILENCE
                ):
                    pauses = self._pauses()
                    place = message.id or place
                    _refuse(message.event, message.data)
                    if message.event != "cursor":
                        yield cast(Event, json.loads(message.data))
                problem: TitenError = Unreachable("The server ended the stream.", retry_after=AGAIN)
            except TitenError as error:
                problem = error
            if not problem.retryable or not pauses.wait(problem):
                raise problem

    def _pauses(self) -> Pauses:
        return Pauses(self._transport.retry_for, self._transport.closed)


def _refuse(event: str, data: str) -> None:
    """Raise what a message about the stream itself means."""
    if event == "resync":
        raise CursorTooOld("Events behind this cursor are no longer kept.", details=json.loads(data))
    if event == "closed":
        raise Unauthenticated("The key has ended, and the stream with it.", details=json.loads(data))
