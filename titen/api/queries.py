"""Query strings, read as strictly as bodies."""

from urllib.parse import unquote_to_bytes

from django.http import HttpRequest
from rest_framework.request import Request

from titen.errors import invalid

from .strict_json import check_text


def single_values(request: Request | HttpRequest) -> dict[str, str]:
    """The query's parameters, each of which may stand once. Nothing is trimmed, replaced or passed over."""
    return values_of(request.META.get("QUERY_STRING", "").encode("latin-1"))


def values_of(query: bytes) -> dict[str, str]:
    """The same of a query as it was sent."""
    values: dict[str, str] = {}
    for part in query.split(b"&"):
        if not part:
            continue
        before, _, after = part.partition(b"=")
        name = _text("query", before)
        if name in values:
            raise invalid(name, "stands twice: send exactly one value.")
        values[name] = _text(name, after)
    return values


def _text(field: str, part: bytes) -> str:
    try:
        text = unquote_to_bytes(part.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise invalid(field, "is not UTF-8.") from None
    check_text(field, text)
    return text
