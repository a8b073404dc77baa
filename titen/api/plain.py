"""Doors whose answers stand in no envelope: what they say is the body, and an error is `{"error": CODE, …}`."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response

from titen.errors import Refused

from . import envelope
from .views import ApiView

PREFIX = "/api/v1/"


class PlainRenderer(BaseRenderer):
    """What a view returns, as JSON."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """An answer without content stays empty."""
        return b"" if data is None else envelope.dump(data)


def error_body(error: dict[str, Any]) -> dict[str, Any]:
    """`{"error", "message", "field"?}` of the envelope's error; `field` is the first that is wrong."""
    body = {"error": error["code"], "message": error["message"]}
    fields = error.get("details", {}).get("fields")
    return {**body, "field": next(iter(fields))} if fields else body


def answer_exception(problem: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler for these doors."""
    response = envelope.answer_exception(problem, context)
    response.data = error_body(response.data)
    return response


def refusal_page(request: HttpRequest, refused: Refused) -> HttpResponse:
    """A refusal outside of DRF, as the door that `request` came to says it."""
    return page_at(request.path, refused)


def page_at(path: str, refused: Refused) -> HttpResponse:
    """A refusal as the door at `path` says it."""
    response = envelope.refusal_page(refused)
    if path.startswith(PREFIX):
        response.content = envelope.dump(error_body(envelope.error_body(refused)))
    return response


class PlainView(ApiView):
    """The base of their views. They stand in the README, not in the OpenAPI document, which is of `/v1`."""

    renderer_classes = [PlainRenderer]
    schema = None

    def get_exception_handler(self) -> Any:
        """Errors without an envelope."""
        return answer_exception
