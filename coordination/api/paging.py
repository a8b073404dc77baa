"""Lists: filters of django-filter made strict, and opaque cursors."""

import base64
import binascii
from collections.abc import Callable
from typing import Any
from uuid import UUID

import django_filters
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from titen.api.answers import Shape, choice, ident, integer, text
from titen.api.ids import read_id
from titen.api.queries import single_values
from titen.api.schema import query_parameters
from titen.errors import Refused, invalid
from titen.nearest import nearest

LIMIT = 50
LIMIT_MAX = 200
LIMIT_SHAPE = integer(f"How many rows, {LIMIT} by default.", 1, LIMIT_MAX)


def one_line(text: str) -> None:
    """What bodies take for a `Line`."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValidationError("must be one line without control characters.")


class LineFilter(django_filters.CharFilter):
    """A filter by a text, exactly as it was sent."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"strip": False, "validators": [one_line], **options})


class IdFilter(django_filters.CharFilter):
    """A filter by a printed id; one of another organization is as unknown as a random one."""

    def __init__(self, prefix: str, **options: Any) -> None:
        self.prefix = prefix
        super().__init__(strip=False, **options)

    def filter(self, queryset: Any, value: str) -> Any:
        """Exact match."""
        if not value:
            return queryset
        found = read_id(self.prefix, value)
        if found is None:
            mine = next(name for name, item in self.parent.filters.items() if item is self)
            raise invalid(mine, f"must be an id such as {self.prefix}_0123….")
        return queryset.filter(**{str(self.field_name): found})


def list_parameters(filters: type[django_filters.FilterSet]) -> list[OpenApiParameter]:
    """The query parameters of a list, for the OpenAPI document."""
    shapes = {name: _filter_shape(item) for name, item in filters.base_filters.items()}
    shapes["cursor"] = text("`next_cursor` of the page before.", pattern="^[A-Za-z0-9_-]{22}$")
    shapes["limit"] = LIMIT_SHAPE
    return query_parameters(shapes)


def _filter_shape(item: django_filters.Filter) -> Shape:
    if isinstance(item, IdFilter):
        return ident(item.prefix, f"Only those with this id: {item.prefix}_0123….")
    if isinstance(item, django_filters.ChoiceFilter):
        return choice("Only those in this state.", [value for value, _ in item.extra["choices"]])
    return text("Only those with exactly this.", maxLength=item.extra["max_length"])


def encode_cursor(value: UUID) -> str:
    """An opaque cursor."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_cursor(text: str) -> UUID:
    """The id in a cursor; `VALIDATION_ERROR` when it is none of ours."""
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        raise invalid("cursor", "is not a cursor that this list gave.") from None


def read_limit(text: str | None) -> int:
    """1 to 200, 50 by default."""
    if text is None:
        return LIMIT
    if not text.isascii() or not text.isdigit() or len(text) > 3 or not 1 <= int(text) <= LIMIT_MAX:
        raise invalid("limit", f"must be a whole number from 1 to {LIMIT_MAX}.")
    return int(text)


def page[M: Model](
    request: Request,
    queryset: QuerySet[M],
    filters: type[django_filters.FilterSet],
    shape: Callable[[M], dict[str, Any]],
    noun: str,
    *,
    number: str | None = None,
) -> dict[str, Any]:
    """`{noun: [...], next_cursor}`: newest first, filtered. A parameter that is no filter is refused.

    The highest id is the newest, or the highest `number` where the rows have one.
    """
    values = single_values(request)
    cursor, limit = values.pop("cursor", None), read_limit(values.pop("limit", None))
    known = filters.base_filters
    for name in values:
        if name not in known:
            raise Refused(
                "VALIDATION_ERROR",
                summary=f"{name}: is not a filter here.",
                details={
                    "fields": {
                        name: [f"is not a filter here. Known: {', '.join([*known, 'cursor', 'limit'])}."]
                    }
                },
            )
        if values[name] == "":
            raise invalid(name, "may not be empty.")
    chosen = filters(data=values, queryset=queryset)
    if not chosen.is_valid():
        fields = {name: _problems(known[name], values[name], found) for name, found in chosen.errors.items()}
        first = next(iter(fields))
        raise Refused("VALIDATION_ERROR", summary=f"{first}: {fields[first][0]}", details={"fields": fields})
    found = chosen.qs.order_by(f"-{number or 'pk'}")
    if cursor is not None:
        before = decode_cursor(cursor)
        found = found.filter(**({f"{number}__lt": before.int} if number else {"pk__lt": before}))
    rows = list(found[: limit + 1])
    more = len(rows) > limit
    return {
        noun: [shape(row) for row in rows[:limit]],
        "next_cursor": encode_cursor(_place(rows[limit - 1], number)) if more else None,
    }


def _problems(item: django_filters.Filter, value: str, found: Any) -> list[str]:
    if isinstance(item, django_filters.ChoiceFilter):
        choices = [each for each, _ in item.extra["choices"]]
        return [f"must be one of {', '.join(choices)}.{nearest(value, choices)}"]
    return [str(problem) for problem in found]


def _place(row: Model, number: str | None) -> UUID:
    place: UUID = UUID(int=getattr(row, number)) if number else row.pk
    return place
