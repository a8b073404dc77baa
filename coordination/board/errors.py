"""Refusals as people see them: a page, or in answer to htmx a message; the envelope for the API."""

import logging
import sys
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from titen.api.envelope import as_refusal, is_away
from titen.api.plain import refusal_page
from titen.errors import Refused
from titen.redaction import redact

logger = logging.getLogger("titen.board")

TITLES = {
    400: "That cannot be read",
    401: "You are logged out",
    403: "You may not do that",
    404: "There is nothing here",
    405: "That is not offered here",
    409: "That did not happen",
    413: "That is too large",
    429: "Too many attempts",
    500: "Something broke on the server",
    503: "The server is busy",
}
# What the table says to agents, said to people.
SENTENCES = {
    "NOT_FOUND": "It may have been removed, or it belongs to an organization that you are not a member of.",
    "NOT_HOLDER": "Somebody else holds this run.",
    "LEASE_EXPIRED": "The lease ran out, and this run is over.",
    "LEASE_SUPERSEDED": "This run is over: the task was taken over.",
    "ALREADY_COMPLETED": "This run has succeeded already.",
    "TASK_CANCELLED": "The task was cancelled.",
    "STALE_EPOCH": "It has moved on since this page was shown. Look at it again, then decide.",
    "APPROVAL_EXPIRED": "The approval expired before anybody decided.",
    "DIGEST_MISMATCH": "What this page showed is not what stands now. Look at it again, then decide.",
    "INTERNAL": "Nothing was changed. Try again in a while.",
    "NOT_READY": "The database does not answer. Nothing was changed; try again in a moment.",
    "OVERLOADED": "Nothing was changed; try again in a moment.",
}


def sentence(refused: Refused) -> str:
    """What to tell a person. A rule's own words stand; the table's, which are for agents, are replaced."""
    fields = refused.details.get("fields")
    if refused.code == "VALIDATION_ERROR" and fields:
        return " ".join(f"{name}: {' '.join(problems)}" for name, problems in fields.items())
    return SENTENCES.get(refused.code, refused.message)


def refuse(request: HttpRequest, refused: Refused) -> HttpResponse:
    """A refusal by a board view."""
    return problem(request, refused.kind.status, sentence(refused), retry_after=refused.retry_after)


def problem(
    request: HttpRequest,
    status: int,
    text: str,
    *,
    title: str = "",
    reload: bool = False,
    retry_after: int | None = None,
) -> HttpResponse:
    """A page, or for htmx a message, that says what is wrong. Renders without a database."""
    title, text = title or TITLES.get(status, "That did not work"), redact(text)
    if getattr(request, "htmx", False):
        html = toast("bad", title, text, reload=reload)
    else:
        words = {"title": title, "text": text, "status": status, "reload": request.path if reload else ""}
        html = render_to_string("pages/problem.html", words)
    response = HttpResponse(html, status=status)
    response["Cache-Control"] = "no-store"
    if retry_after is not None:
        response["Retry-After"] = str(retry_after)
    return response


def toast(mood: str, title: str, text: str, *, reload: bool = False) -> str:
    """A message in the page's corner, as a part of an htmx answer. `mood` is good or bad."""
    words = {"mood": mood, "title": f"{title}." if text else title, "text": text, "reload": reload}
    html = render_to_string("toast.html", words)
    return f'<hx-partial hx-target="#toasts" hx-swap="beforeend">{html}</hx-partial>'


def not_allowed(request: HttpRequest, methods: Sequence[str]) -> HttpResponse:
    """405."""
    response = problem(request, 405, f"{request.method} is not offered here, only {', '.join(methods)}.")
    response["Allow"] = ", ".join(methods)
    return response


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith(("/v1/", "/api/"))


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404."""
    if _is_api(request):
        return refusal_page(
            request, Refused("NOT_FOUND", "There is no such route. The routes are listed at /api/docs.")
        )
    return refuse(request, Refused("NOT_FOUND"))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400, or 413 for a body beyond the limit."""
    too_large = isinstance(exception, RequestDataTooBig)
    if _is_api(request):
        if too_large:
            return refusal_page(request, Refused("PAYLOAD_TOO_LARGE", limit="1048576"))
        return refusal_page(request, Refused("VALIDATION_ERROR", summary="the request cannot be read."))
    if too_large:
        return problem(request, 413, "The server reads at most 1 MiB. Nothing was changed.")
    return problem(request, 400, "Nothing was changed.")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403."""
    if _is_api(request):
        return refusal_page(request, Refused("FORBIDDEN", "This is not allowed here."))
    return problem(request, 403, "Your role does not allow it.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403 for a POST without the page's token: the session ended, or began anew in another tab."""
    if _is_api(request):
        return refusal_page(
            request, Refused("FORBIDDEN", "This needs a human's browser session with a valid CSRF token.")
        )
    from .doors import here, login_url

    text = (
        "You have logged in again since this page was loaded, so it cannot act for you. Nothing was changed."
    )
    text = f"{text} Reload it, then try again."
    response = problem(request, 403, text, title="This page is out of date", reload=True)
    user = getattr(request, "user", None)
    if getattr(request, "htmx", False) and not (user and user.is_authenticated):
        response["HX-Redirect"] = login_url(here(request) or "/")
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    """500, or 503 while the database is away or takes no writes."""
    raised = sys.exc_info()[1]
    refused = (
        as_refusal(raised) if isinstance(raised, DatabaseError) and is_away(raised) else Refused("INTERNAL")
    )
    if _is_api(request):
        return refusal_page(request, refused)
    try:
        return refuse(request, refused)
    except Exception:
        logger.exception("the error page cannot be rendered")
        return HttpResponse(sentence(refused), status=refused.kind.status, content_type="text/plain")


def locked_out(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    """429 after too many wrong passwords."""
    if _is_api(request):
        return refusal_page(request, Refused("RATE_LIMITED", retry_after=300))
    text = "Too many wrong passwords for this address. Wait five minutes, then log in again."
    return problem(request, 429, text, retry_after=300)
