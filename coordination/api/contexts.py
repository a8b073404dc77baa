"""`/v1/contexts`: packs that pin what somebody else should read."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import contexts
from coordination.contexts import KINDS, Named
from coordination.models import ContextItemKind
from titen.api.fields import Integer, StrictSerializer, Text
from titen.api.ids import field_id, path_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import invalid

from .checkpoints import subject


class ItemBody(StrictSerializer):
    """One thing to pin; only a checkpoint has versions."""

    type = serializers.ChoiceField(choices=ContextItemKind.choices)
    id = Text(max_length=60)
    version = Integer(required=False, min_value=1)


class ContextBody(StrictSerializer):
    """`POST /v1/contexts`."""

    subject_id = subject(required=False)
    task_id = Text(required=False, max_length=60)
    note = Text(required=False, allow_blank=True, max_length=8000)
    items = serializers.ListField(child=ItemBody(), min_length=1, max_length=50)


def read_item(item: dict[str, Any]) -> Named:
    """An item of the body, its id in the form of its type."""
    kind = ContextItemKind(item["type"])
    prefix, _, _ = KINDS[kind]
    version = item.get("version")
    if version is not None and kind != ContextItemKind.CHECKPOINT:
        raise invalid("items", f"a {kind} has no versions. Send version with a checkpoint only.")
    return Named(kind, field_id(prefix, "items", item["id"]), version)


class ContextList(ApiView):
    """Make a pack."""

    scopes = {"POST": "contexts:write"}

    @extend_schema(operation_id="create_context", request=ContextBody, responses=ok("NewContextPack", 201))
    def post(self, request: Request) -> Response:
        """Pin what the caller may read now: a checkpoint at this version, or at the one it has."""
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, ContextBody)
        body["items"] = [read_item(item) for item in body["items"]]
        if "task_id" in body:
            body["task_id"] = field_id("task", "task_id", body["task_id"])

        def work() -> tuple[int, Any]:
            pack = contexts.create(caller, **body)
            items = [contexts.item_json(item) for item in pack.items.order_by("number")]
            return 201, {**contexts.pack_json(pack), "items": items}

        return self.act(request, work)


class ContextDetail(ApiView):
    """One pack."""

    scopes = {"GET": "contexts:read"}

    @extend_schema(operation_id="get_context", responses=ok("ContextPack"))
    def get(self, request: Request, context_id: str) -> Response:
        """The pack, and of what it pins as much as the reader may read by itself, at most 256 KiB."""
        self.nothing_else(request)
        caller = self.caller(request)
        return Response(contexts.resolve(caller, contexts.find(caller, path_id("ctx", context_id))))
