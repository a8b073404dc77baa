"""HTTP to one server: the envelope, typed errors, and the retries of what is safe to repeat."""

import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import httpx_sse

from .errors import TitenError, UnexpectedAnswer, Unreachable, for_code
from .lease_clock import now

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
INTERRUPTED_BUDGET = 2.0
"""Seconds to try to give a task or a lease back after Ctrl-C."""


class Pauses:
    """The pauses between the attempts of one call: doubling with jitter, never shorter than the
    server's `Retry-After`, and over when `budget` seconds are spent or the client is closed."""

    def __init__(self, budget: float, closed: threading.Event, *, longest: float = LONGEST_PAUSE) -> None:
        self._until = now() + budget
        self._closed = closed
        self._longest = longest
        self._pause = FIRST_PAUSE

    @property
    def left(self) -> float:
        """Seconds of the budget that are left, never below 0."""
        return max(0.0, self._until - now())

    def wait(self, error: TitenError) -> bool:
        """Sleep before the next attempt; False, at once, when there is to be none."""
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311
        self._pause = min(self._pause * 2, self._longest)
        pause = max(pause, error.retry_after or 0.0)
        return pause < self.left and not self._closed.wait(pause)


class Transport:
    """One pooled HTTP client, shared by all threads of a `Titen`."""

    def __init__(self, base_url: str, key: str, *, timeout: float, retry_for: float) -> None:
        url = httpx.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"base_url must look like https://titen.example.com, not {base_url!r}")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("key must be an API key (titen_sk_…)")
        self.timeout = timeout
        self.retry_for = retry_for
        self.closed = threading.Event()
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}", "Accept": "application/json"},
            # Waits and heartbeats of many runs share the pool: a full one must not delay a heartbeat.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    def close(self) -> None:
        self.closed.set()
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        wait: int = 0,
        budget: float | None = None,
        before: Callable[[], None] | None = None,
    ) -> Any:
        """Send until it is answered and return the answer's `data` (None for 204).

        key: the `Idempotency-Key` of a write, a fresh one if not given; every attempt carries the
        same, so that the server does it once.
        wait: seconds (at most 25) the server may hold the request, sent as `?wait=`.
        budget: seconds to go on trying, `retry_for` if not given.
        before: called before every attempt; what it raises ends the call.
        """
        if method != "GET":
            key = key or new_key()
        pauses = Pauses(self.retry_for if budget is None else budget, self.closed)
        unanswered: TitenError | None = None
        while True:
            try:
                if before is not None:
                    before()
                return self.once(method, path, body, params=params, key=key, wait=wait)
            except TitenError as error:
                if not error.retryable and unanswered is not None:
                    error.add_note(f"titen: an earlier attempt may have been done ({unanswered})")
                if not error.retryable or not pauses.wait(error):
                    raise
                unanswered = error

    def once(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        wait: int = 0,
        timeout: float | None = None,
    ) -> Any:
        """One attempt. Raises a `TitenError` unless the answer is a success of the server's own."""
        if self.closed.is_set():
            raise RuntimeError("This Titen client is closed.")
        query = given(**(params or {}))
        if wait > 0:
            query["wait"] = wait
        try:
            response = self._http.request(
                method,
                path,
                params=query,
                headers={"Idempotency-Key": key} if key else None,
                json=None if method == "GET" else dict(body or {}),
                timeout=(timeout or self.timeout) + wait,
            )
        except httpx.RequestError as error:
            raise Unreachable(f"No answer to {method} {path}: {error or type(error).__name__}") from error
        return _opened(response)

    def stream(
        self, path: str, *, params: Mapping[str, Any], headers: Mapping[str, str], silence: float
    ) -> Iterator[httpx_sse.ServerSentEvent]:
        """The server-sent events of one stream until it ends; `Unreachable` when it is cut, or silent for
        `silence` seconds. Raises a `TitenError` unless it opens."""
        if self.closed.is_set():
            raise RuntimeError("This Titen client is closed.")
        timeout = httpx.Timeout(self.timeout, read=silence)
        wanted = {**headers, "Accept": "text/event-stream"}
        try:
            with self._http.stream("GET", path, params=params, headers=wanted, timeout=timeout) as response:
                if response.headers.get("Content-Type", "").partition(";")[0] != "text/event-stream":
                    response.read()
                    _opened(response)
                # What has no data only sets how soon to come again.
                yield from (one for one in httpx_sse.EventSource(response).iter_sse() if one.data)
        except httpx.RequestError as error:
            raise Unreachable(f"{path} was cut: {error or type(error).__name__}") from error


def new_key() -> str:
    """A fresh `Idempotency-Key`."""
    return uuid.uuid4().hex


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None, as a body: what is not given is the server's to choose."""
    return {name: value for name, value in fields.items() if value is not None}


def _opened(response: httpx.Response) -> Any:
    """The `data` of the envelope, or the error it holds, raised."""
    if response.status_code == 204:
        return None
    try:
        envelope = json.loads(response.content)
    except ValueError:
        envelope = None
    if isinstance(envelope, dict) and response.is_success and "data" in envelope:
        return envelope["data"]
    retry_after = _seconds(response.headers.get("Retry-After"))
    error = envelope.get("error") if isinstance(envelope, dict) else None
    # A refusal ends a lease, so only the server's own words count: a proxy's 404 page is no refusal.
    if response.is_success or not isinstance(error, dict) or not isinstance(error.get("code"), str):
        raise UnexpectedAnswer(
            f"{response.status_code} from {response.request.url.host} is not an answer of Titen's.",
            status=response.status_code,
            retry_after=retry_after,
        )
    details = error.get("details")
    details = details if isinstance(details, dict) else {}
    meta = envelope.get("meta")
    raise for_code(error["code"], details.get("reason"))(
        str(error.get("message", "")),
        code=error["code"],
        details=details,
        status=response.status_code,
        request_id=meta.get("request_id") if isinstance(meta, dict) else None,
        retry_after=retry_after,
    )


def _seconds(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds. The other form, a date, would need a clock that agrees: ignored."""
    if retry_after is None or not retry_after.strip().isdecimal():
        return None
    return float(retry_after)
