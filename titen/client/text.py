"""Text that the server takes: what tools and exceptions print holds what JSON columns refuse."""

import re

_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
ERROR_LIMIT = 2000
"""Characters of an exception's text that are sent; the end of a long one says less than its start."""


def one_line(text: str, limit: int) -> str:
    """`text` on one line of at most `limit` characters, without control characters."""
    line = " ".join(storable(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def storable(text: str) -> str:
    """`text` with NUL, other control characters and lone surrogates replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def error_text(error: BaseException) -> str:
    """The class and text of an exception, as an attempt's error."""
    text = storable(f"{type(error).__name__}: {error}".removesuffix(": "))
    return text if len(text) <= ERROR_LIMIT else text[: ERROR_LIMIT - 1] + "…"
