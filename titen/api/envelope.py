"""The envelope: `{"data": …, "meta": …}` or `{"error": …, "meta": …}`, for every answer of `/v1`."""

import json
import logging
from typing import Any

import psycopg
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DatabaseError, IntegrityError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response

from titen.errors import Refused

from .constraints import refusal_for
from .request_ids import new_request_id

logger = logging.getLogger("titen.api")


class JsonOnly(BaseContentNegotiation):
    """There is one parser and one renderer; `Accept` has no say."""

    def select_parser(self, request: Any, parsers: Any) -> Any:
        """The strict JSON parser, when the body says it is JSON."""
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return parsers[0] if kind == "application/json" else None

    def select_renderer(self, request: Any, renderers: Any, format_suffix: Any = None) -> Any:
        """The envelope."""
        return renderers[0], renderers[0].media_type


def dump(content: Any) -> bytes:
    """Compact JSON, UTF-8."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


class EnvelopeRenderer(BaseRenderer):
    """Wraps what a view returns."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """An error body is passed on as it is; an answer without a body stays empty."""
        response = renderer_context["response"] if renderer_context else None
        if response is not None and response.status_code == 204:
            return b""
        meta = {"request_id": new_request_id()}
        if response is not None and getattr(response, "is_refusal", False):
            return dump({"error": data, "meta": meta})
        return dump({"data": data, "meta": meta})


def error_body(refused: Refused) -> dict[str, Any]:
    """`{"code", "message", "details"?}`."""
    body: dict[str, Any] = {"code": refused.code, "message": refused.message}
    if refused.details:
        body["details"] = refused.details
    return body


def refusal_response(refused: Refused) -> Response:
    """A DRF response for a refusal."""
    response = Response(error_body(refused), status=refused.kind.status)
    response.is_refusal = True  # type: ignore[attr-defined]
    if refused.retry_after is not None:
        response["Retry-After"] = str(refused.retry_after)
    if refused.code == "UNAUTHENTICATED":
        response["WWW-Authenticate"] = "Bearer"
    return response


def refusal_page(refused: Refused) -> HttpResponse:
    """The same answer outside DRF."""
    response = HttpResponse(
        dump({"error": error_body(refused), "meta": {"request_id": new_request_id()}}),
        content_type="application/json",
        status=refused.kind.status,
    )
    if refused.retry_after is not None:
        response["Retry-After"] = str(refused.retry_after)
    return response


def as_refusal(problem: Exception, request: HttpRequest | None = None) -> Refused:
    """Every exception as one of the codes. What nobody foresaw is logged and answered as `INTERNAL`."""
    match problem:
        case Refused():
            return problem
        case Http404() | exceptions.NotFound():
            return Refused("NOT_FOUND")
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return Refused("UNAUTHENTICATED")
        case exceptions.MethodNotAllowed():
            return Refused(
                "METHOD_NOT_ALLOWED",
                method=getattr(request, "method", "This method"),
                allowed="see the Allow header",
            )
        case exceptions.UnsupportedMediaType():
            return Refused("UNSUPPORTED_MEDIA_TYPE")
        case PermissionDenied() | exceptions.PermissionDenied():
            return Refused("FORBIDDEN", "This needs a human's browser session with a valid CSRF token.")
        case exceptions.ParseError() | SuspiciousOperation():
            return Refused("VALIDATION_ERROR", summary=f"{problem}.")
        case IntegrityError():
            found = refusal_for(problem)
            if found is not None:
                return found
        case DatabaseError() if isinstance(problem.__cause__, psycopg.errors.DataError):
            logger.warning("a value reached the database that it cannot hold: %s", problem)
            return Refused("VALIDATION_ERROR", summary="a value is out of range.")
        case DatabaseError() if is_away(problem):
            return _unavailable(problem)
    logger.error("unexpected error", exc_info=problem)
    return Refused("INTERNAL")


# Why the database did not do it although it answers: `details.reason`, and a sentence in place of the table's.
_BUSY: dict[type[psycopg.Error], tuple[str, str]] = {
    psycopg.errors.DeadlockDetected: ("deadlock", ""),
    psycopg.errors.LockNotAvailable: (
        "locked",
        "Another request holds what this one needs and has not finished. Wait 1 s, then try again.",
    ),
    psycopg.errors.QueryCanceled: (
        "too_slow",
        "The database took too long for this. Wait 1 s, then try again, or ask for less.",
    ),
}
READ_ONLY = "read_only"


def is_away(problem: BaseException | None) -> bool:
    """True for an error that says nothing about the request: the database is away, busy, or takes no writes."""
    if isinstance(problem, OperationalError):
        return True
    if not isinstance(problem, DatabaseError):
        return False
    text = str(problem)
    return (
        isinstance(
            problem.__cause__,
            psycopg.errors.ReadOnlySqlTransaction | psycopg.errors.IdleInTransactionSessionTimeout,
        )
        or "connection is closed" in text
        or "connection is lost" in text
    )


def takes_no_writes() -> Refused:
    """The answer while the database can be read, but not written."""
    return Refused(
        "NOT_READY",
        "The database takes no writes at the moment. Reading works. Wait 2 s, then try again.",
        details={"reason": READ_ONLY},
        retry_after=2,
    )


def _unavailable(problem: Exception) -> Refused:
    cause = problem.__cause__
    busy = next((words for kind, words in _BUSY.items() if isinstance(cause, kind)), None)
    logger.warning(
        "the database is %s: %s",
        "busy" if busy else "away",
        str(problem).splitlines()[0] if str(problem) else cause,
    )
    if isinstance(cause, psycopg.errors.ReadOnlySqlTransaction):
        return takes_no_writes()
    if busy is None:
        return Refused("NOT_READY", retry_after=1)
    reason, sentence = busy
    return Refused("OVERLOADED", sentence, details={"reason": reason}, retry_after=1)


def answer_exception(problem: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler."""
    refused = as_refusal(problem, context.get("request"))
    if refused.code == "METHOD_NOT_ALLOWED":
        allowed = ", ".join(context["view"].allowed_methods)
        refused = Refused(
            refused.code,
            method=context["request"].method,
            allowed=allowed,
            details={"allowed": allowed.split(", ")},
        )
    response = refusal_response(refused)
    if refused.code == "METHOD_NOT_ALLOWED":
        response["Allow"] = refused.details["allowed"] and ", ".join(refused.details["allowed"])
    return response
