"""JSON as agents should send it: anything that two readers could take differently is refused."""

import json
import math
from typing import Any, NoReturn

from django.conf import settings
from rest_framework.parsers import BaseParser

from titen.errors import Refused, invalid

MAX_DEPTH = 64
TOO_DEEP = f"is nested deeper than {MAX_DEPTH}."


def bad(problem: str) -> Refused:
    """A `VALIDATION_ERROR` about the body as a whole."""
    return invalid("body", problem)


def _no_constants(name: str) -> NoReturn:
    raise bad(f"holds {name}, which is not JSON.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise bad("holds a number that is too large.")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise bad(f"holds the key {twice!r:.80} twice in one object.")
    return found


def loads(raw: bytes) -> Any:
    """Parse a body. Refuses duplicate keys, NaN, infinities, NUL, lone surrogates and deep nesting."""
    try:
        content = json.loads(
            raw.decode(), parse_constant=_no_constants, parse_float=_finite, object_pairs_hook=_unique
        )
    except UnicodeDecodeError:
        raise bad("is not UTF-8.") from None
    except json.JSONDecodeError as problem:
        raise bad(f"is not JSON ({problem.msg} at character {problem.pos}).") from None
    except ValueError:
        raise bad("holds a number with too many digits.") from None
    except RecursionError:
        raise bad(TOO_DEEP) from None
    # Raw NUL and surrogates cannot pass the decoder; only escapes can bring them in.
    if b"\\u" in raw or raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _walk(content)
    return content


def _walk(content: Any) -> None:
    stack: list[tuple[str, Any, int]] = [("body", content, 1)]
    while stack:
        field, value, depth = stack.pop()
        if isinstance(value, str):
            check_text(field, value)
        elif isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise invalid(field, TOO_DEEP)
            if isinstance(value, dict):
                for key, item in value.items():
                    # What is wrong inside a field is said of the field; a wrong name, of its object.
                    check_text(field, key)
                    stack.append((key if depth == 1 else field, item, depth + 1))
            else:
                stack.extend((field, item, depth + 1) for item in value)


def check_text(field: str, text: str) -> None:
    """Refuse what PostgreSQL cannot store or UTF-8 cannot say."""
    if "\0" in text:
        raise invalid(field, "holds a NUL character.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise invalid(field, "holds half of a surrogate pair.")


class StrictJSONParser(BaseParser):
    """DRF's parser for `application/json`."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """The parsed body, an object. `PAYLOAD_TOO_LARGE` beyond 1 MiB."""
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        try:
            length = int(stream.META.get("CONTENT_LENGTH") or 0)
        except ValueError:
            length = 0
        raw = b"" if length > limit else stream.read(limit + 1)
        if length > limit or len(raw) > limit:
            raise Refused("PAYLOAD_TOO_LARGE", limit=limit)
        if not raw.strip():
            return {}
        content = loads(raw)
        if not isinstance(content, dict):
            raise bad("must be a JSON object.")
        return content
