"""The one table of refusals: code -> HTTP status and the sentence a model reads.

A rule raises `Refused(code, …)`; a door turns it into an answer. Messages are short, final and
name the next step. `{name}` parts are filled from the keyword arguments of `Refused`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .redaction import redact, redacted


@dataclass(frozen=True)
class Kind:
    """How one code is answered: `status` is HTTP's, `message` is the default sentence."""

    status: int
    message: str


CODES: dict[str, Kind] = {
    "VALIDATION_ERROR": Kind(
        400, "The request is not valid: {summary} Correct the named fields and send it again."
    ),
    "UNAUTHENTICATED": Kind(
        401, "Send a valid API key as 'Authorization: Bearer titen_sk_…'. Do not retry with this one."
    ),
    "FORBIDDEN": Kind(403, "This key lacks the scope '{scope}'. Ask an admin for a key that has it."),
    "POLICY_DENIED": Kind(
        403, "Policy rule {rule} denies this. Do not retry; choose another way or ask a human."
    ),
    "NOT_FOUND": Kind(404, "Nothing with this id exists in your organization. Check the id."),
    "METHOD_NOT_ALLOWED": Kind(405, "{method} is not offered here. Allowed: {allowed}."),
    "CURSOR_TOO_OLD": Kind(
        410,
        "Events before position {floor} are no longer kept. Read the state anew and continue from the newest position.",
    ),
    "PAYLOAD_TOO_LARGE": Kind(413, "The body is larger than {limit} bytes. Send less."),
    "UNSUPPORTED_MEDIA_TYPE": Kind(415, "Send JSON with 'Content-Type: application/json'."),
    "IDEMPOTENCY_MISMATCH": Kind(
        422, "This Idempotency-Key was used with another request. Use a new key for a new request."
    ),
    "RATE_LIMITED": Kind(429, "Too many requests. Wait {retry_after} s, then try again."),
    "CONFLICT": Kind(409, "Not possible while the {object} is {state}. Read it again and act on that."),
    "NOT_HOLDER": Kind(409, "This run belongs to another principal. Claim work of your own."),
    "ALREADY_COMPLETED": Kind(
        409, "This run has already succeeded. Nothing is left to do; claim the next task."
    ),
    "LEASE_EXPIRED": Kind(409, "The lease ran out and this run is over. Stop the work and claim again."),
    "LEASE_SUPERSEDED": Kind(
        409, "The lease was ended ({reason}) and this run is over. Stop the work and claim again."
    ),
    "TASK_CANCELLED": Kind(409, "The task was cancelled. Stop the work; do not claim it again."),
    "STALE_EPOCH": Kind(409, "The epoch does not match this run. Send the epoch that your claim returned."),
    "LEASE_IN_JEOPARDY": Kind(
        409, "The lease is in jeopardy: {why}. {remedy} first; when that is accepted, try again."
    ),
    "NOT_CLAIMABLE": Kind(
        409, "The task cannot be claimed now: {why} Claim without task_id to get other work."
    ),
    "RESERVED": Kind(409, "The task is kept for another principal until {until}. Claim other work."),
    "APPROVAL_REQUIRED": Kind(
        409, "A human must approve this first. Request an approval, then wait for its decision."
    ),
    "APPROVAL_PENDING": Kind(409, "The approval is not decided yet. Keep heartbeating and wait for it."),
    "APPROVAL_DENIED": Kind(409, "A human denied this. It is final; do not ask again."),
    "APPROVAL_EXPIRED": Kind(
        409, "The approval expired before it was decided. Request a new one if it is still needed."
    ),
    "APPROVAL_VOID": Kind(409, "The approval no longer holds. Request a new one."),
    "ALREADY_CONSUMED": Kind(409, "The approval was used already. Request a new one for another use."),
    "DIGEST_MISMATCH": Kind(409, "What was shown is not what stands now. Read it again and decide on that."),
    "EFFECTS_UNRECONCILED": Kind(
        409, "{count} effects have no outcome yet. Report each outcome, then complete."
    ),
    "VERSION_MISMATCH": Kind(409, "The version is {current}. Read it again and apply your change to that."),
    "INTERNAL": Kind(500, "An unexpected error on the server. Nothing was changed; try again later."),
    "NOT_READY": Kind(503, "The server is not ready. Wait {retry_after} s, then try again."),
    "OVERLOADED": Kind(503, "The server is busy. Wait {retry_after} s, then try again."),
}


class Refused(Exception):
    """A domain error: the request was understood and is refused, and nothing was changed.

    `details` are printed beside the message; `words` fill the message of the table, unless
    `message` replaces it. Both are redacted: they may quote what was sent.
    """

    def __init__(
        self, code: str, message: str = "", *, details: dict[str, Any] | None = None, **words: Any
    ) -> None:
        self.code = code
        self.kind = CODES[code]
        self.details: dict[str, Any] = redacted(dict(details or {}))
        self.message = redact(message or self.kind.message.format(**words))
        self.retry_after: int | None = words.get("retry_after")
        # What an audit keeps of the attempt, written by the door once the transaction is undone.
        self.trace: tuple[dict[str, Any], str] | None = None
        # What is true all the same, written by the door in a transaction of its own after that.
        self.afterwards: Callable[[], Any] | None = None
        super().__init__(f"{code}: {self.message}")


def invalid(field: str, problem: str) -> Refused:
    """A `VALIDATION_ERROR` that names one field. `problem` is a sentence without the field's name."""
    return Refused("VALIDATION_ERROR", details={"fields": {field: [problem]}}, summary=f"{field}: {problem}")


def not_found() -> Refused:
    """The answer for an id that does not exist here, whoever else may own it."""
    return Refused("NOT_FOUND")
