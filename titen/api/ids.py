"""Ids as they are printed: a prefix and the 32 hex digits of a UUID."""

import re
from uuid import UUID

from titen.errors import invalid, not_found

_HEX = re.compile(r"[0-9a-f]{32}")


def public_id(prefix: str, value: UUID) -> str:
    """`task_018f…`."""
    return f"{prefix}_{value.hex}"


def maybe_id(prefix: str, value: UUID | None) -> str | None:
    """`public_id`, or None."""
    return None if value is None else public_id(prefix, value)


def read_id(prefix: str, text: str) -> UUID | None:
    """The UUID in `task_018f…`, or None when it is not an id of this kind."""
    head, _, digits = text.partition("_")
    return UUID(digits) if head == prefix and _HEX.fullmatch(digits) else None


def path_id(prefix: str, text: str) -> UUID:
    """An id from a URL. One of another kind is as unknown as a random one: `NOT_FOUND`."""
    value = read_id(prefix, text)
    if value is None:
        raise not_found()
    return value


def field_id(prefix: str, field: str, text: str) -> UUID:
    """An id from a body or a filter; malformed is a `VALIDATION_ERROR` that names the field."""
    value = read_id(prefix, text)
    if value is None:
        raise invalid(field, f"must be an id such as {prefix}_0123… with 32 hexadecimal digits.")
    return value
