"""Everything the SDK raises on purpose: one class per code of the server, under `TitenError`.

Those about approvals and effects stand in `effect_errors`.

The classes under `LeaseLost` all mean the same to a worker: this run is over for it, stop the work.
A code that this version does not know is raised as `TitenError` itself.
"""

from collections.abc import Mapping
from typing import Any

_CLASSES: dict[tuple[str, str | None], type["TitenError"]] = {}


class TitenError(Exception):
    """A call that did not succeed.

    code: the server's stable code, or one of the SDK's own (`UNREACHABLE`, `UNEXPECTED_ANSWER`,
    `LEASE_LOST`, `RUN_ENDED`, `WRONG_PROCESS`).
    message: the server's sentence, written for a model to read.
    details: what the server added, `{}` if nothing.
    status: the HTTP status; None when no answer came or nothing was sent.
    request_id: the server's name for the request, for its operator; None when no answer came.
    retry_after: seconds the server asked to wait, None if it did not.
    """

    code: str = "UNKNOWN"
    retryable: bool = False
    """The same request may succeed later, unchanged. True for every 5xx and 429, and where Titen did not answer."""
    reason: str | None = None
    """`details["reason"]` of a class for only this reason of its code."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.details = dict(details or {})
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.retryable = type(self).retryable or status == 429 or (status or 0) >= 500

    def __init_subclass__(cls) -> None:
        _CLASSES[cls.code, cls.reason] = cls

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def for_code(code: str, reason: object = None) -> type[TitenError]:
    """The class for a code of the server, and for its reason; `TitenError` for a code that is unknown here."""
    special = _CLASSES.get((code, reason)) if isinstance(reason, str) else None
    return special or _CLASSES.get((code, None), TitenError)


class Unreachable(TitenError):
    """No answer: refused or cut connection, or a timeout. The server may have done it or not."""

    code = "UNREACHABLE"
    retryable = True


class UnexpectedAnswer(TitenError):
    """An answer that is not Titen's: most likely a proxy in between gave it, or `base_url` is wrong. As good
    as no answer: the server may have done it or not."""

    code = "UNEXPECTED_ANSWER"
    retryable = True


class RunEnded(TitenError):
    """This run was already completed, failed or released through this object. Nothing was sent."""

    code = "RUN_ENDED"


class ValidationError(TitenError):
    """400: the request is malformed; the message names the field."""

    code = "VALIDATION_ERROR"


class Unauthenticated(TitenError):
    """401: the key is missing, unknown, expired or revoked."""

    code = "UNAUTHENTICATED"


class Forbidden(TitenError):
    """403: the key lacks a scope; the message names it."""

    code = "FORBIDDEN"


class NotFound(TitenError):
    """404: no such thing in the key's organization."""

    code = "NOT_FOUND"


class MethodNotAllowed(TitenError):
    """405."""

    code = "METHOD_NOT_ALLOWED"


class CursorTooOld(TitenError):
    """410: the events after this cursor are no longer kept; read the state anew."""

    code = "CURSOR_TOO_OLD"


class PayloadTooLarge(TitenError):
    """413: the body is over the server's limit."""

    code = "PAYLOAD_TOO_LARGE"


class UnsupportedMediaType(TitenError):
    """415."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class IdempotencyMismatch(TitenError):
    """422: the `Idempotency-Key` was used before with another body."""

    code = "IDEMPOTENCY_MISMATCH"


class RateLimited(TitenError):
    """429: too many requests; see `retry_after`."""

    code = "RATE_LIMITED"
    retryable = True


class Conflict(TitenError):
    """409: the state does not allow this; `details` has the current one."""

    code = "CONFLICT"


class InFlight(Conflict):
    """409: an earlier request with the same `Idempotency-Key` is still being worked on."""

    reason = "in_flight"
    retryable = True


class LeaseInJeopardy(TitenError):
    """No renewal was acknowledged for 2/3 of the lease, or its holder declared it: somebody else may hold it soon.

    Raised by the local clock before anything is sent (`status` None), or by the server (409), whose
    `details` have `because` (`silence`, `declared`), `renewed_at`, and what is still `allowed` and what is
    `refused`. A good heartbeat ends it.
    """

    code = "LEASE_IN_JEOPARDY"


class LeaseLost(TitenError):
    """The lease is gone and the run is over for this process. Stop the work, send nothing.

    Raised by the local clock before anything is sent (`status` None), or, as one of the classes
    below, by the server.
    """

    code = "LEASE_LOST"


class WrongProcess(LeaseLost):
    """This run, lease or effect belongs to the process that this one was forked from. Nothing was sent."""

    code = "WRONG_PROCESS"


class LeaseExpired(LeaseLost):
    """409: the lease ran out on the server."""

    code = "LEASE_EXPIRED"


class LeaseSuperseded(LeaseLost):
    """409: taken over, revoked or handed off; `details` has the reason."""

    code = "LEASE_SUPERSEDED"


class HandedOff(LeaseSuperseded):
    """409: somebody accepted the task that this run had offered. The run has ended well; stop the work."""

    reason = "handed_off"


class NotHolder(LeaseLost):
    """409: the run belongs to another principal."""

    code = "NOT_HOLDER"


class AlreadyCompleted(LeaseLost):
    """409: the run has already succeeded."""

    code = "ALREADY_COMPLETED"


class StaleEpoch(LeaseLost):
    """409: the epoch is not the current one."""

    code = "STALE_EPOCH"


class TaskCancelled(LeaseLost):
    """409: the task was cancelled."""

    code = "TASK_CANCELLED"


class NotClaimable(TitenError):
    """409: the task asked for by id is not ready; `details["waits_for"]` says what it waits for."""

    code = "NOT_CLAIMABLE"


class Reserved(TitenError):
    """409: the task is reserved for somebody else for a while."""

    code = "RESERVED"


class VersionMismatch(TitenError):
    """409: somebody else wrote a newer version."""

    code = "VERSION_MISMATCH"


class Internal(TitenError):
    """500: a fault of the server."""

    code = "INTERNAL"
    retryable = True


class NotReady(TitenError):
    """503: the server is starting or stopping; see `retry_after`."""

    code = "NOT_READY"
    retryable = True


class Overloaded(TitenError):
    """503: the server sheds load; see `retry_after`."""

    code = "OVERLOADED"
    retryable = True


def not_of_the_work(error: BaseException) -> TitenError | None:
    """The `TitenError` that kept the work from going on, if nothing else went wrong: Titen did not answer or
    could not do it now, or the lease was lost or in jeopardy. Such a run has not failed."""
    if isinstance(error, BaseExceptionGroup):
        found = [not_of_the_work(each) for each in error.exceptions]
        return None if None in found else found[0]
    if isinstance(error, TitenError) and (error.retryable or isinstance(error, LeaseLost | LeaseInJeopardy)):
        return error
    return None
