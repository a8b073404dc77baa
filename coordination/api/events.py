"""`/v1/events`: the log, after a cursor, in pages or as a stream."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import following, kinds
from coordination.callers import Caller
from coordination.database import Row
from coordination.following import Log, Page, Selection
from coordination.models import Organization
from coordination.shapes import event_json
from coordination.visibility import Sight, sight_of
from titen.api.answers import ident, text
from titen.api.authentication import human
from titen.api.event_stream import StreamAnswer, frame, open_stream
from titen.api.fields import Line, StrictSerializer, Text
from titen.api.ids import field_id
from titen.api.schema import ok, query_parameters
from titen.api.views import ApiView
from titen.errors import invalid, not_found

from .leases import HolderOrOperatorView
from .paging import LIMIT_SHAPE, read_limit

CURSOR = "^[0-9]{1,18}$"


class CursorField(serializers.RegexField):
    """A position as text."""

    def __init__(self) -> None:
        super().__init__(
            r"^[0-9]{1,18}\Z",
            required=False,
            trim_whitespace=False,
            error_messages={"invalid": "must be a cursor that was given here."},
        )


class EventFilter(StrictSerializer):
    """Which events."""

    after = CursorField()
    kind = serializers.RegexField(
        r"^[a-z_.,]{1,400}\Z",
        required=False,
        trim_whitespace=False,
        error_messages={"invalid": "must be kinds such as task.claimed, separated by commas."},
    )
    task_id = Text(required=False, max_length=60)
    resource_type = Line(required=False, max_length=80)
    resource_id = Line(required=False, max_length=400)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """An id means nothing without its type."""
        if "resource_id" in attrs and "resource_type" not in attrs:
            raise serializers.ValidationError({"resource_type": ["is needed beside resource_id."]})
        return attrs


class EventQuery(EventFilter):
    """`GET /v1/events`."""

    limit = Text(required=False)


class StreamQuery(EventFilter):
    """`GET /v1/events/stream`."""

    org = Text(required=False, max_length=100)


FILTERS = {
    "after": text("`cursor` of an earlier page or event; 0 is the beginning.", pattern=CURSOR),
    "kind": text("Kinds such as `task.claimed`, separated by commas.", pattern="^[a-z_.,]{1,400}$"),
    "task_id": ident("task", "Only what happened to this task."),
    "resource_type": text(
        "Only events of leases on resources of this type; a task is the resource `task` with its id, a section"
        " `section` with `<slug>/<section id>`.",
        maxLength=80,
    ),
    "resource_id": text("Only those of this resource; needs `resource_type`.", maxLength=400),
}
PARAMETERS = query_parameters({**FILTERS, "limit": LIMIT_SHAPE})
LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID",
    text("The last `id` of an earlier stream, as browsers send it; wins over `after`.", pattern=CURSOR),
    OpenApiParameter.HEADER,
    description="The last `id` of an earlier stream, as browsers send it; wins over `after`.",
)
STREAM_PARAMETERS = [
    *query_parameters(
        {
            **FILTERS,
            "org": text("The organization to follow, for a browser's session only.", maxLength=100),
        }
    ),
    LAST_EVENT_ID,
]


def selection_of(query: dict[str, Any]) -> Selection:
    """The filters of a query."""
    named = query["kind"].split(",") if "kind" in query else None
    kinds.check("kind", named or ())
    return Selection(
        kinds=None if named is None else frozenset(named),
        task_id=field_id("task", "task_id", query["task_id"]) if "task_id" in query else None,
        resource_type=query.get("resource_type"),
        resource_id=query.get("resource_id"),
    )


def cursor_of(request: Request, query: dict[str, Any], name: str) -> int | None:
    """The position to go on from: `Last-Event-ID`, else the query's; None for neither."""
    known = request.META.get("HTTP_LAST_EVENT_ID")
    if known is None:
        return int(query[name]) if name in query else None
    if not (known.isascii() and known.isdigit() and len(known) <= 18):
        raise invalid("Last-Event-ID", "must be an id that the stream gave.")
    return int(known)


@dataclass(frozen=True, slots=True)
class EventFeed:
    """A stream of an organization's log as one reader sees it."""

    sight: Sight
    selection: Selection

    @classmethod
    def of(cls, caller: Caller, selection: Selection) -> "EventFeed":
        """Readers that see the same get equal feeds."""
        sight = sight_of(caller)
        if sight.everything:
            sight = Sight(sight.organization_id, None, frozenset(), everything=True)
        return cls(sight, selection)

    @property
    def log(self) -> Log:
        """The organization's."""
        return organization_log(self.sight.organization_id)

    def read(self, after: int | None) -> Page:
        """A page of what was asked for, what the reader may not see included."""
        return following.look(self.log, after=after, selection=self.selection)

    def cut(self, row: Row) -> str | None:
        """Whole or without who did it."""
        if not self.sight.sees(row["kind"]) or not self.selection.matches(row):
            return None
        return "without actor" if self.sight.hides_actor(row) else "whole"

    def message(self, row: Row, cut: str) -> bytes:
        """The event as a list shows it."""
        shown = event_json(row, sees_holders=cut == "whole")
        return frame(_dump(shown), row["kind"], position=row["position"])

    def place(self, position: int) -> bytes:
        """`event: cursor`."""
        return frame(_dump({"cursor": str(position)}), "cursor", position=position)

    def resync(self, page: Page) -> bytes:
        """`event: resync`, from whose id the stream goes on."""
        return resync(page)

    def closed(self, code: str) -> bytes:
        """`event: closed`."""
        return frame(_dump({"code": code}), "closed")


def resync(page: Page) -> bytes:
    """`event: resync`: the follower's cursor is none of this log, which goes on from the frame's id."""
    content = {"floor": str(page.floor), "newest": str(page.newest)}
    return frame(_dump(content), "resync", position=page.start)


def organization_log(organization_id: UUID) -> Log:
    """An organization's log."""
    return Log("organization", organization_id)


def _dump(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


class EventList(ApiView):
    """The organization's events in the order of their positions."""

    scopes = {"GET": "events:read"}

    @extend_schema(operation_id="list_events", responses=ok("EventPage"), parameters=PARAMETERS)
    def get(self, request: Request) -> Response:
        """The events after a cursor that the key may see. An empty page still moves the cursor; a log whose
        end is reached answers the cursor it was asked with. `CURSOR_TOO_OLD` (410) for events that are no
        longer kept."""
        query, caller = self.query(request, EventQuery), self.caller(request)
        page = following.read(
            organization_log(caller.organization_id),
            after=int(query["after"]) if "after" in query else None,
            selection=selection_of(query),
            limit=read_limit(query.get("limit")),
        )
        sight = sight_of(caller)
        shown = [
            event_json(row, sees_holders=not sight.hides_actor(row))
            for row in page.rows
            if sight.sees(row["kind"])
        ]
        return Response({"events": shown, "cursor": str(page.position)})


class EventStream(HolderOrOperatorView):
    """The organization's events as they happen."""

    scopes = {"GET": "events:read"}
    for_humans = ("GET",)

    @extend_schema(
        operation_id="stream_events",
        responses={
            (200, "text/event-stream"): {
                "type": "string",
                "description": "Server-sent events: `id` is the cursor, `event` the kind, `data` an Event as JSON.",
            }
        },
        parameters=STREAM_PARAMETERS,
    )
    def get(self, request: Request) -> StreamAnswer:
        """Server-sent events. Without a cursor the stream starts now. Beside events it sends `cursor` (its
        place in the log, when nothing was to be shown for a while), `resync` (the cursor is older than what
        is kept: read the state anew; the stream goes on from `floor`), and `closed` (the key or the session
        has ended). Every 15 seconds a comment shows that it lives. A key needs `events:read`; a browser's
        session names its organization with `org`."""
        query = self.query(request, StreamQuery)
        caller, session = self._reader(request, query.get("org"))
        feed = EventFeed.of(caller, selection_of(query))
        after = cursor_of(request, query, "after")
        if after is None:
            after = following.newest(feed.log)
        return open_stream(feed, caller, after=after, session=session)

    def _reader(self, request: Request, slug: str | None) -> tuple[Caller, str]:
        user: Any = request.user
        if isinstance(user, Caller):
            if slug is not None:
                raise invalid("org", "is for a browser's session: a key has its organization.")
            return user, ""
        if slug is None:
            raise invalid("org", "names the organization to follow.")
        organization = Organization.objects.filter(slug=slug).values_list("pk", flat=True).first()
        caller = human(user, organization) if organization else None
        if caller is None:
            raise not_found()
        return caller, request._request.session.session_key or ""
