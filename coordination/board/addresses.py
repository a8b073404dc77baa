"""Where a browser's request comes from."""

from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """The address that Caddy saw. Only Caddy reaches the web processes, and it drops what a client claims."""
    forwarded: str = request.META.get("HTTP_X_FORWARDED_FOR", "")
    return forwarded.rpartition(",")[2].strip() or request.META.get("REMOTE_ADDR") or "127.0.0.1"
