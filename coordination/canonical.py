"""One text for one JSON value (RFC 8785), so that equal values have equal hashes."""

import hashlib
from decimal import Decimal
from typing import Any

import rfc8785

# Beyond it a double no longer tells one whole number from the next, and the RFC would round two ids into one.
EXACT = 2**53 - 1
# No text that came in holds a NUL character; one that begins with it all the same gets a second one.
TAG = "\0int:"


def canonical(value: Any) -> bytes:
    """`value` as RFC 8785 writes it: keys in order, no blanks, numbers as ECMAScript prints them.

    A whole number beyond ±(2^53-1) enters as the string `"\\u0000int:<all its digits>"`, whether it was
    written 1e20 or 100000000000000000000. `value` is JSON as Python has it, without NaN and infinities.
    """
    return rfc8785.dumps(_exact(value))


def digest(value: Any) -> str:
    """SHA-256 over `canonical(value)`, as 64 hexadecimal digits."""
    return digest_of(canonical(value))


def digest_of(text: bytes) -> str:
    """The same for a text that is canonical already."""
    return hashlib.sha256(text).hexdigest()


def _exact(value: Any) -> Any:
    match value:
        case dict():
            return {name: _exact(item) for name, item in value.items()}
        case list() | tuple():
            return [_exact(item) for item in value]
        case str() if value.startswith("\0"):
            return "\0" + value
        case float() if abs(value) > EXACT and value.is_integer():
            # The digits that the database keeps of it, not those of the nearest double.
            return f"{TAG}{int(Decimal(repr(value)))}"
        case int() if abs(value) > EXACT:
            return f"{TAG}{value}"
        case _:
            return value
