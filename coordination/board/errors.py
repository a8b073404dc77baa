"""Errors: pages for browsers, the envelope for the API."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from titen.api.envelope import refusal_page
from titen.errors import Refused


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith(("/v1/", "/api/"))


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404."""
    if _is_api(request):
        return refusal_page(Refused("NOT_FOUND", "There is no such route. The routes are listed at /api/docs."))
    return HttpResponse("not found", status=404)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400."""
    return refusal_page(Refused("VALIDATION_ERROR", summary="the request cannot be read."))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403."""
    return HttpResponse("forbidden", status=403)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403 for a POST without a valid token."""
    return HttpResponse("forbidden", status=403)


def server_error(request: HttpRequest) -> HttpResponse:
    """500."""
    return refusal_page(Refused("INTERNAL"))


def locked_out(request: HttpRequest, credentials: Any, *args: Any, **kwargs: Any) -> HttpResponse:
    """429 after too many wrong passwords."""
    return HttpResponse("too many attempts", status=429)
