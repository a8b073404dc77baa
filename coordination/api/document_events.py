"""`/api/v1/documents/:slug/events`: a document's own log, in pages or as a stream.

The log of a deleted document can still be read: whoever follows it sees its leases end, and its revival.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from coordination import following, sections
from coordination.database import Row
from coordination.following import Log, Page
from coordination.times import stamp
from titen.api.event_stream import StreamAnswer, frame, open_stream
from titen.api.fields import StrictSerializer, Text

from .events import CursorField, cursor_of, resync
from .paging import read_limit
from .sections import DocumentView

# Who acted where nobody did: what time ended.
NOBODY = "system"


class SinceQuery(StrictSerializer):
    """`GET …/events/stream`."""

    since = CursorField()


class PageQuery(SinceQuery):
    """`GET …/events`."""

    limit = Text(required=False)


def entry_json(row: Row) -> dict[str, Any]:
    """One entry of a document's log, as this door's clients know it; `payload` is the event's data."""
    return {
        "id": str(row["id"]),
        "seq": str(row["position"]),
        "event_type": row["kind"],
        "actor_id": str(row["actor_id"]) if row["actor_id"] else NOBODY,
        "payload": row["data"],
        "created_at": stamp(row["created_at"]),
    }


@dataclass(frozen=True, slots=True)
class DocumentFeed:
    """A stream of a document's log. Every line is shown, to each reader alike."""

    document_id: UUID

    @property
    def log(self) -> Log:
        """The document's."""
        return Log("document", self.document_id)

    def read(self, after: int | None) -> Page:
        """A page."""
        return following.look(self.log, after=after)

    def cut(self, row: Row) -> str | None:
        """Whole."""
        return "whole"

    def message(self, row: Row, cut: str) -> bytes:
        """The entry as a list shows it."""
        content = json.dumps(entry_json(row), ensure_ascii=False, separators=(",", ":"))
        return frame(content, row["kind"], position=row["position"])

    def place(self, position: int) -> bytes:
        """Nothing: clients would take it for an entry, and no line is ever passed over."""
        return b""

    def resync(self, page: Page) -> bytes:
        """`event: resync`."""
        return resync(page)

    def closed(self, code: str) -> bytes:
        """`event: error`, at which clients stop."""
        return frame(json.dumps({"error": code}), "error")


class DocumentEvents(DocumentView):
    """A document's log, page by page."""

    scopes = {"GET": "leases:read"}

    def get(self, request: Request, slug: str) -> Response:
        """The entries after `since`."""
        self.check_text(request)
        query = self.query(request, PageQuery)
        document = sections.find_document(self.caller(request).organization_id, slug)
        page = following.read(
            Log("document", document),
            after=int(query["since"]) if "since" in query else None,
            limit=read_limit(query.get("limit")),
        )
        answer = Response(
            {
                "events": [entry_json(row) for row in page.rows],
                "has_more": not page.is_last,
                "next_since": str(page.position),
            }
        )
        answer["Cache-Control"] = "no-store"
        return answer


class DocumentEventStream(DocumentView):
    """A document's log as it grows."""

    scopes = {"GET": "leases:read"}

    def get(self, request: Request, slug: str) -> StreamAnswer:
        """Server-sent events after `Last-Event-ID`, else after `since`, else from the beginning."""
        self.check_text(request)
        query, caller = self.query(request, SinceQuery), self.caller(request)
        document = sections.find_document(caller.organization_id, slug)
        return open_stream(DocumentFeed(document), caller, after=cursor_of(request, query, "since"))
