"""Telling others which section of a document one is editing."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import httpx

SECONDS = 120


@contextmanager
def editing(base_url: str, key: str, document: str, section: str, reason: str) -> Iterator[None]:
    """Lease the section while the block runs. Raises `httpx.HTTPStatusError` when somebody else edits it."""
    path = f"/api/v1/documents/{document}/sections/{quote(section, safe='')}/lease"
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=base_url, headers=headers, timeout=30) as http:
        body = {"leaseDurationSeconds": SECONDS, "reason": reason}
        http.post(path, json=body).raise_for_status()
        try:
            yield
        finally:
            http.delete(path)  # one that has run out has ended too
