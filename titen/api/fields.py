"""Serializer fields that take a value as what it is: no number in quotes, no boolean as a number."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from titen.errors import Refused

from .answers import text

INT_MAX = 2**31 - 1


class StrictSerializer(serializers.Serializer[Any]):
    """A body or a query: unknown fields are refused by name."""

    def to_internal_value(self, data: Any) -> Any:
        """The validated fields."""
        if isinstance(data, dict):
            unknown = sorted(set(data) - set(self.fields))
            if unknown:
                known = ", ".join(sorted(self.fields)) or "none"
                raise serializers.ValidationError(
                    {name: [f"is not a field here. Known: {known}."] for name in unknown}
                )
        return super().to_internal_value(data)


class Integer(serializers.IntegerField):
    """A JSON integer within 32 bits unless said otherwise."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("min_value", -INT_MAX - 1)
        options.setdefault("max_value", INT_MAX)
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> int:
        """Refuses strings, booleans and fractions."""
        if isinstance(data, bool) or not isinstance(data, int):
            raise serializers.ValidationError("must be an integer.")
        return data


class Text(serializers.CharField):
    """A JSON string, kept as it is."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("trim_whitespace", False)
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> str:
        """Refuses numbers and booleans."""
        if not isinstance(data, str):
            raise serializers.ValidationError("must be a string.")
        return super().to_internal_value(data)


class Line(Text):
    """A string without line breaks or other control characters."""

    def to_internal_value(self, data: Any) -> str:
        """Refuses control characters."""
        text = super().to_internal_value(data)
        if any(ord(character) < 32 or ord(character) == 127 for character in text):
            raise serializers.ValidationError("must be one line without control characters.")
        return text


class Flag(serializers.BooleanField):
    """A JSON boolean."""

    def to_internal_value(self, data: Any) -> bool:
        """Refuses strings and numbers."""
        if not isinstance(data, bool):
            raise serializers.ValidationError("must be true or false.")
        return data


@extend_schema_field(
    text("An ISO-8601 time with its zone, such as 2026-07-30T10:58:13Z.", format="date-time", maxLength=40)
)
class Moment(serializers.Field[Any, Any, Any, Any]):
    """An ISO-8601 time with an explicit zone, between the years 1970 and 9998."""

    def to_internal_value(self, data: Any) -> datetime:
        """The moment in UTC. A time without a zone is refused: nobody can tell what it means."""
        problem = serializers.ValidationError("must be a time such as 2026-07-30T10:58:13Z, with its zone.")
        if not isinstance(data, str) or "T" not in data or len(data) > 40:
            raise problem
        try:
            moment = datetime.fromisoformat(data)
            if moment.tzinfo is None:
                raise problem
            moment = moment.astimezone(UTC)
        except (ValueError, OverflowError):
            raise problem from None
        if not 1970 <= moment.year <= 9998:
            raise problem
        return moment

    def to_representation(self, value: Any) -> Any:
        """Never used: answers are built by the shape functions."""
        return value


class Json(serializers.JSONField):
    """Any JSON value."""


def read(serializer: type[StrictSerializer], content: Any) -> dict[str, Any]:
    """Validate with one serializer; a `VALIDATION_ERROR` names every field that is wrong."""
    try:
        return dict(_shared(serializer).run_validation(content))
    except serializers.ValidationError as problem:
        fields = {
            name: _sentences(problems) for name, problems in serializers.as_serializer_error(problem).items()
        }
    first, problems = next(iter(fields.items()))
    raise Refused("VALIDATION_ERROR", summary=f"{first}: {problems[0]}", details={"fields": fields})


@cache
def _shared(serializer: type[StrictSerializer]) -> StrictSerializer:
    """One instance for all requests: a new one copies every field, which costs a fifth of a hot request.

    Validating keeps nothing in it.
    """
    return serializer()


def _sentences(problems: Any) -> list[str]:
    if isinstance(problems, dict):
        return [f"{key}: {sentence}" for key, inner in problems.items() for sentence in _sentences(inner)]
    return [str(problem) for problem in problems]
