"""`/api/openapi.json`: the OpenAPI document; `/api/docs`: a page to read it."""

import json
import threading
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request
from rest_framework.views import APIView

_making = threading.Lock()


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document. It is the same for everybody, so it is made once per process."""
    # Two first readers at once meet drf-spectacular with half of its extensions loaded.
    with _making:
        return _document()


@cache
def _document() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


@cache
def _written() -> bytes:
    return json.dumps(document(), indent=2).encode()


class OpenView(APIView):
    """For anybody; not part of the document itself."""

    authentication_classes: Any = []
    permission_classes: Any = []
    schema = None


class Schema(OpenView):
    """The document."""

    def get(self, request: Request) -> HttpResponse:
        """As JSON."""
        return HttpResponse(_written(), content_type="application/json")


class Page(OpenView):
    """Swagger UI from our own static files: nothing inline, as the content policy asks."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The page; its script asks for the document."""
        return render(request, "api/docs.html")


schema = Schema.as_view()
page = Page.as_view()
