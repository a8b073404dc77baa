"""Where a login comes from, and whose it is: what its throttle counts by."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """The address that Caddy saw. Only Caddy reaches the web processes, and it drops what a client claims."""
    forwarded: str = request.META.get("HTTP_X_FORWARDED_FOR", "")
    return forwarded.rpartition(",")[2].strip() or request.META.get("REMOTE_ADDR") or "127.0.0.1"


def login_name(request: HttpRequest, credentials: Mapping[str, Any] | None = None) -> str:
    """The address that somebody tries to log in with, by whichever form: they call it `username` or `email`."""
    given = credentials or request.POST
    return str(given.get("email") or given.get("username") or "").strip().lower()
