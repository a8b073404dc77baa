"""`/v1/events/export`: the log as JSON Lines, in one long answer."""

import threading
from collections.abc import Iterator
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from coordination import export
from coordination.callers import Caller
from coordination.visibility import sight_of
from titen.api.answers import ref, text
from titen.api.authentication import caller_by_digest, key_digest
from titen.api.envelope import as_refusal, refusal_page
from titen.api.fields import StrictSerializer
from titen.api.schema import query_parameters
from titen.api.views import ApiView
from titen.errors import Refused

from .events import CURSOR, CursorField

CONTENT_TYPE = "application/jsonl"
# Where to go on, told before the first line: the last lines may be some that the key does not see.
CURSOR_HEADER = "Titen-Cursor"
# A download keeps one of its process's threads until its reader has it all: the others stay free.
SEATS = 2
RETRY_SECONDS = 10


class Seats:
    """Who downloads from this process now: each principal once, and few at all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: set[UUID] = set()
        self._lock = threading.Lock()

    def take(self, principal_id: UUID) -> None:
        """`RATE_LIMITED` for who has one already, and when all are taken."""
        with self._lock:
            if principal_id in self._taken or len(self._taken) >= self._limit:
                raise Refused("RATE_LIMITED", retry_after=RETRY_SECONDS)
            self._taken.add(principal_id)

    def leave(self, principal_id: UUID) -> None:
        """Once the answer is over, however it ended."""
        with self._lock:
            self._taken.discard(principal_id)


seats = Seats(SEATS)


class Download:
    """The pages of one export. It ends when its key does; what could not be finished says so in its last line.

    `close` is called by the server even when nobody has asked for the first page.
    """

    def __init__(self, caller: Caller, key_digest: bytes, pages: Iterator[bytes]) -> None:
        self._caller, self._key_digest, self._pages = caller, key_digest, pages

    def __iter__(self) -> Iterator[bytes]:
        try:
            for page in self._pages:
                caller_by_digest(self._key_digest)
                yield page
        except Exception as problem:
            yield refusal_page(as_refusal(problem)).content + b"\n"

    def close(self) -> None:
        """Make room."""
        seats.leave(self._caller.principal_id)


class ExportQuery(StrictSerializer):
    """Where to begin."""

    after = CursorField()


PARAMETERS = query_parameters(
    {"after": text("Begin behind this cursor; without it, where the log begins.", pattern=CURSOR)}
)


class EventExport(ApiView):
    """The organization's whole log."""

    scopes = {"GET": "events:read"}

    @extend_schema(
        operation_id="export_events",
        responses={(200, CONTENT_TYPE): {"oneOf": [ref("ExportedEvent"), ref("Refusal")]}},
        parameters=PARAMETERS,
    )
    def get(self, request: Request) -> HttpResponse | StreamingHttpResponse:
        """JSON Lines: one event on each line, up to the newest at the beginning of the request. The header
        `Titen-Cursor` is that position, from which a next export goes on. A key with the scope `*` gets each
        line's digest. What cannot be finished ends with a refusal on its last line: ask again after the line
        before. One download a principal at a time, and few at all (429)."""
        query, caller = self.query(request, ExportQuery), self.caller(request)
        cursor = int(query["after"]) if "after" in query else None
        after, until = export.bounds(caller.organization_id, after=cursor)
        headers = {CURSOR_HEADER: str(until), "Cache-Control": "no-store"}
        if request.method == "HEAD":
            return HttpResponse(content_type=CONTENT_TYPE, headers=headers)
        seats.take(caller.principal_id)
        pages = export.lines(sight_of(caller), after=after, until=until)
        download = Download(caller, key_digest(request._request), pages)
        return StreamingHttpResponse(download, content_type=CONTENT_TYPE, headers=headers)
