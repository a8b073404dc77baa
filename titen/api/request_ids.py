"""Ids for answers, so that a log line and an answer can be brought together."""

import secrets


def new_request_id() -> str:
    """`req_` and 24 hexadecimal digits."""
    return f"req_{secrets.token_hex(12)}"
