"""The one place that hides secrets which came in where none belongs: a name, a path, a header, a log line.

`Refused` (every error message and its details), `events.record` and the log's formatter use it.
"""

import logging
import re
from typing import Any

# API keys and webhooks' secrets in any case, also percent-encoded.
SECRET = re.compile(r"(titen_sk_|whsec_)[a-z0-9_+/=%-]+", re.IGNORECASE)


def redact(text: str) -> str:
    """The text without what looks like a secret; what sort of secret it was stays."""
    return SECRET.sub(r"\1[redacted]", text)


def redacted(value: Any) -> Any:
    """A JSON value with all of its texts redacted, names of fields too."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redacted(name): redacted(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


class RedactingFormatter(logging.Formatter):
    """Redacts whole lines, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return redact(super().format(record))
