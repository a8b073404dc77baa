"""`/v1/events`: the log, after a cursor."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import events
from coordination.shapes import event_json
from titen.api.answers import ident, text
from titen.api.fields import StrictSerializer
from titen.api.ids import field_id
from titen.api.schema import ok, query_parameters
from titen.api.views import ApiView

from .paging import LIMIT_SHAPE, read_limit


class EventQuery(StrictSerializer):
    """A cursor of an earlier page, and filters."""

    after = serializers.RegexField(
        r"^[0-9]{1,18}\Z",
        required=False,
        trim_whitespace=False,
        error_messages={"invalid": "must be a cursor that this list gave."},
    )
    kind = serializers.RegexField(
        r"^[a-z_.,]{1,400}\Z",
        required=False,
        trim_whitespace=False,
        error_messages={"invalid": "must be kinds such as task.claimed, separated by commas."},
    )
    task_id = serializers.CharField(required=False, max_length=60)
    limit = serializers.CharField(required=False)


PARAMETERS = query_parameters(
    {
        "after": text("`cursor` of an earlier page; 0 is the beginning.", pattern="^[0-9]{1,18}$"),
        "kind": text("Kinds such as `task.claimed`, separated by commas.", pattern="^[a-z_.,]{1,400}$"),
        "task_id": ident("task", "Only what happened to this task."),
        "limit": LIMIT_SHAPE,
    }
)


class EventList(ApiView):
    """The organization's events in the order of their positions."""

    scopes = {"GET": "events:read"}

    @extend_schema(operation_id="list_events", responses=ok("EventPage"), parameters=PARAMETERS)
    def get(self, request: Request) -> Response:
        """The events after a cursor. An empty page of a filtered reader still moves its cursor."""
        query, caller = self.query(request, EventQuery), self.caller(request)
        rows, position = events.read(
            caller.organization_id,
            after=int(query.get("after", 0)),
            limit=read_limit(query.get("limit")),
            kinds=query["kind"].split(",") if "kind" in query else None,
            task_id=field_id("task", "task_id", query["task_id"]) if "task_id" in query else None,
        )
        sees_holders = caller.has("leases:admin")
        shown = [event_json(row, sees_holders=sees_holders, reader_id=caller.principal_id) for row in rows]
        return Response({"events": shown, "cursor": str(position)})
