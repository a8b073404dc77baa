"""A request that may wait, and what its view's answers mean for that."""

import asyncio
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from coordination.leases import answer_lost
from titen.api import strict_json
from titen.api.ids import read_id
from titen.errors import Refused

from .doors import call
from .http import Answer, GoneError
from .waiters import ClaimWish, EndWish, LeaseWish, Wish

CLAIM = "/v1/tasks/claim"
LEASE, LEASES = "/v1/leases", "/v1/leases/batch"
APPROVAL = re.compile(r"/v1/approvals/appr_([0-9a-f]{32})")
QUESTION = re.compile(r"/v1/tasks/task_[0-9a-f]{32}/comments/cmt_([0-9a-f]{32})")


@dataclass(slots=True)
class Request:
    """A request as its view gets it, again and again.

    `gone`: nobody reads its answer any more. `given_up`: its client was answered before the last attempt ended.
    """

    environ: dict[str, Any]
    body: bytes
    gone: bool = False
    given_up: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self) -> None:
        """The client has left."""
        self.gone = True
        self.woken.set()

    def attempt(self) -> Answer:
        """Run the view on a pool thread, unless the client has left: nothing is claimed for somebody gone."""
        if self.gone:
            raise GoneError
        answer = call(self.environ, self.body)
        if self.given_up and answer.granted:
            answer_lost(list(answer.granted))
        return answer

    def seconds(self) -> int:
        """How long the client wants to wait. The view has judged the value, or will: a bad one is 0."""
        (value, *_) = parse_qs(self.environ["QUERY_STRING"]).get("wait", ["0"])
        return int(value) if re.fullmatch(r"[0-9]{1,2}", value) and int(value) <= 25 else 0

    def wish(self) -> Wish | None:
        """What the client waits for; None for a request that no view makes wait."""
        method, path = self.environ["REQUEST_METHOD"], self.environ["PATH_INFO"]
        if method == "POST" and path == CLAIM:
            return self._claim_wish()
        if method == "POST" and path in (LEASE, LEASES):
            return self._lease_wish(path)
        found = APPROVAL.fullmatch(path) or QUESTION.fullmatch(path)
        return EndWish(UUID(found[1])) if found and method == "GET" else None

    def _claim_wish(self) -> ClaimWish | None:
        try:
            body = strict_json.loads(self.body) if self.body.strip() else {}
            wanted, task = body.get("capabilities"), body.get("task_id")
            return ClaimWish(
                self._digest(),
                None if wanted is None else tuple(sorted(wanted)),
                None if task is None else read_id("task", task),
            )
        except (Refused, AttributeError, TypeError):
            return None  # the database was away, so no view has judged the body yet

    def _lease_wish(self, path: str) -> LeaseWish | None:
        try:
            body = strict_json.loads(self.body)
            wanted = [body] if path == LEASE else body["resources"]
            names = [(str(item["resource_type"]), str(item["resource_id"])) for item in wanted]
        except (Refused, KeyError, TypeError):
            return None
        return LeaseWish(self._digest(), tuple(names))

    def _digest(self) -> str:
        secret = self.environ.get("HTTP_AUTHORIZATION", "").partition(" ")[2].strip()
        return hashlib.sha256(secret.encode()).hexdigest()

    def repeats(self) -> tuple[str, str] | None:
        """Equal for two requests of which the second repeats the first."""
        key = self.environ.get("HTTP_IDEMPOTENCY_KEY")
        return (self._digest(), key) if key and self.environ["REQUEST_METHOD"] == "POST" else None


def _error(answer: Answer) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(answer.body)["error"]
    return error


def is_unsettled(answer: Answer) -> bool:
    """True for an answer that says nothing about the wish: the database is away, or a repeat is in flight."""
    if answer.status == 409:
        return bool(_error(answer).get("details", {}).get("reason") == "in_flight")
    return answer.status == 503 and not _is_locked(answer)


def _is_locked(answer: Answer) -> bool:
    """True when the attempt gave up waiting for a row that somebody else has locked."""
    return answer.status == 503 and bool(_error(answer).get("details", {}).get("reason") == "locked")


def is_nothing_yet(wish: Wish, answer: Answer) -> bool:
    """True for an answer that may become another one by waiting.

    A locked row counts as taken: its waiters are then sent one at a time, with pauses, not all at once.
    """
    if _is_locked(answer):
        return True
    if isinstance(wish, ClaimWish):
        if answer.status == 409 and wish.task_id:
            return _may_be_claimable(_error(answer))
        return answer.status == 204
    if isinstance(wish, LeaseWish):
        return answer.status == 409 and "expires_at" in _error(answer).get("details", {})
    if answer.status != 200:
        return False
    data = json.loads(answer.body)["data"]
    if "blocking" in data:
        return bool(data["blocking"] and data["answer"] is None and not data["withdrawn"])
    return bool(data["status"] == "pending")


def _may_be_claimable(error: dict[str, Any]) -> bool:
    if error["code"] == "RESERVED":
        return True
    details = error.get("details", {})
    final = details.get("state") in ("done", "cancelled")
    unfit = any(wait["kind"] == "capabilities" for wait in details.get("waits_for", ()))
    return error["code"] == "NOT_CLAIMABLE" and not final and not unfit
