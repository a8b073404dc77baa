"""`/v1/messages`: a word to somebody, or to whoever holds a resource."""

from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import messages
from coordination.models import Message
from coordination.passing import message_json
from titen.api.fields import Line, StrictSerializer, Text
from titen.api.ids import path_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import invalid

from .bodies import NoBody, resource_id, resource_type
from .paging import list_parameters, page

HOLDER = ("resource_type", "resource_id")


class MessageBody(StrictSerializer):
    """`POST /v1/messages`; to a principal by id or name, or to whoever holds a resource."""

    body = Text(max_length=8000)
    to_principal = Line(required=False, max_length=120)
    resource_type = resource_type(required=False)
    resource_id = resource_id(required=False)


class MessageFilter(django_filters.FilterSet):
    """`box` is `inbox` or `sent`; `unread` is for the inbox."""

    box = django_filters.ChoiceFilter(choices=[("inbox", "inbox"), ("sent", "sent")], method="as_it_is")
    unread = django_filters.ChoiceFilter(choices=[("true", "true"), ("false", "false")], method="by_reading")

    def as_it_is(self, queryset: Any, name: str, value: str) -> Any:
        """The view has chosen already."""
        return queryset

    def by_reading(self, queryset: Any, name: str, value: str) -> Any:
        """Those that the caller has not marked as read, or those that it has."""
        if self.data.get("box") == "sent":
            raise invalid("unread", "is for the inbox: who has read what you sent is not told.")
        return queryset.filter(read_at__isnull=value == "true")


class MessageList(ApiView):
    """The caller's messages."""

    scopes = {"GET": "messages:read", "POST": "messages:write"}

    @extend_schema(
        operation_id="list_messages", responses=ok("MessagePage"), parameters=list_parameters(MessageFilter)
    )
    def get(self, request: Request) -> Response:
        """What the caller has received, or with `box=sent` what it has sent."""
        caller = self.caller(request)
        mine = "sender_id" if request.GET.get("box") == "sent" else "recipient_id"
        found = Message.objects.filter(
            **{mine: caller.principal_id}, organization_id=caller.organization_id
        ).select_related("sender", "recipient", "resource")
        return Response(
            page(
                request,
                found,
                MessageFilter,
                lambda message: message_json(message, reader_id=caller.principal_id),
                "messages",
            )
        )

    @extend_schema(operation_id="send_message", request=MessageBody, responses=ok("Message", 201))
    def post(self, request: Request) -> Response:
        """Write to a principal, or ask the holder of a resource, who is not named in the answer."""
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, MessageBody)
        given = [name for name in HOLDER if name in body]
        if "to_principal" in body and given:
            raise invalid("to_principal", "send either this or resource_type and resource_id.")
        if "to_principal" not in body and len(given) < len(HOLDER):
            missing = next(name for name in HOLDER if name not in given) if given else "to_principal"
            raise invalid(missing, "is needed: to_principal, or resource_type and resource_id.")
        rule = messages.ask_holder if given else messages.send
        return self.act(
            request, lambda: (201, message_json(rule(caller, **body), reader_id=caller.principal_id))
        )


class MessageDetail(ApiView):
    """One message."""

    scopes = {"GET": "messages:read"}

    @extend_schema(operation_id="get_message", responses=ok("Message"))
    def get(self, request: Request, message_id: str) -> Response:
        """For its sender and its recipient."""
        self.nothing_else(request)
        caller = self.caller(request)
        found = messages.find(caller, path_id("msg", message_id))
        return Response(message_json(found, reader_id=caller.principal_id))


class MessageRead(ApiView):
    """Mark as read."""

    scopes = {"POST": "messages:read"}

    @extend_schema(operation_id="mark_message_read", request=NoBody, responses=ok("Message"))
    def post(self, request: Request, message_id: str) -> Response:
        """For its recipient; again gives the same answer."""
        self.nothing_else(request)
        self.body(request, NoBody)
        caller, message = self.caller(request), path_id("msg", message_id)
        return self.act(
            request,
            lambda: (
                200,
                message_json(messages.mark_read(caller, message), reader_id=caller.principal_id),
            ),
        )
