"""HTTP to one server: the envelope, typed errors, and the retries of what is safe to repeat."""

import contextlib
import json
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import httpx_sse

from .errors import NotReady, TitenError, UnexpectedAnswer, Unreachable, WrongProcess, for_code
from .lease_clock import now
from .processes import renew_after_fork

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
INTERRUPTED_BUDGET = 2.0
"""Seconds to try to give a task or a lease back after Ctrl-C."""
CLAIM = "/v1/tasks/claim"
"""The only route that answers 204: nothing is ready."""

_left_to_the_parent: list[object] = []
"""What was open at a fork, kept in the child so that nothing closes it."""


class Pauses:
    """The pauses between the attempts of one call: doubling with jitter, never shorter than the
    server's `Retry-After`, and over when `budget` seconds are spent or the client is closed.

    outlast: a server that says that it is not ready, and when to come again, is waited for without end.
    """

    def __init__(
        self,
        budget: float,
        closed: threading.Event,
        *,
        longest: float = LONGEST_PAUSE,
        outlast: bool = False,
    ) -> None:
        self._until = now() + budget
        self._outlast = outlast
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
        outlasts = self._outlast and isinstance(error, NotReady) and error.retry_after is not None
        return (outlasts or pause < self.left) and not self._closed.wait(pause)


class Transport:
    """One pooled HTTP client, shared by all threads of a `Titen`; a child of a fork gets its own."""

    def __init__(self, base_url: str, key: str, *, timeout: float, retry_for: float) -> None:
        url = httpx.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"base_url must look like https://titen.example.com, not {base_url!r}")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("key must be an API key (titen_sk_…)")
        self.timeout = timeout
        self.retry_for = retry_for
        self.closed = threading.Event()
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        self._client: httpx.Client | None = None
        self._one_client = threading.Lock()
        renew_after_fork(self)

    def close(self) -> None:
        self.closed.set()
        with self._one_client:
            if self._client is not None:
                self._client.close()

    def after_fork(self) -> None:
        """Begin without connections in the child: an answer on a shared one would be read by whoever comes
        first. They are not closed here: another thread may have held the pool's lock at the fork."""
        closed, self.closed = self.closed.is_set(), threading.Event()
        if closed:
            self.closed.set()
        self._one_client = threading.Lock()
        _left_to_the_parent.append(self._client)
        self._client = None

    @property
    def _http(self) -> httpx.Client:
        with self._one_client:
            if self._client is None:
                self._client = httpx.Client(
                    base_url=self._url,
                    headers=self._headers,
                    # Waits and heartbeats of many runs share the pool: a full one must not delay a heartbeat.
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
                )
            return self._client

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
        outlast: bool = False,
        before: Callable[[], None] | None = None,
    ) -> Any:
        """Send until it is answered and return the answer's `data` (None for 204).

        key: the `Idempotency-Key` of a write, a fresh one if not given; every attempt carries the
        same, so that the server does it once.
        wait: seconds (at most 25) the server may hold the request, sent as `?wait=`.
        budget: seconds to go on trying, `retry_for` if not given.
        outlast: go on beyond them while the server says that it is not ready, and when to come again.
        before: called before every attempt; what it raises ends the call.
        """
        if method != "GET":
            key = key or new_key()
        pauses = Pauses(self.retry_for if budget is None else budget, self.closed, outlast=outlast)
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
        owner = os.getpid()
        try:
            with contextlib.ExitStack() as opened:
                response = opened.enter_context(
                    self._http.stream("GET", path, params=params, headers=wanted, timeout=timeout)
                )
                if not response.is_success or _media_type(response) != "text/event-stream":
                    response.read()
                    _opened(response)
                    raise _unexpected(response)
                for one in httpx_sse.EventSource(response).iter_sse():
                    if not one.data:
                        continue  # it only sets how soon to come again
                    yield one
                    if os.getpid() != owner:
                        _left_to_the_parent.append(opened.pop_all())
                        raise WrongProcess(
                            "This stream belongs to the process that this one was forked from."
                        )
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
    if response.status_code == 204 and response.request.url.path.endswith(CLAIM):
        return None
    envelope = _envelope(response)
    if response.is_success and "data" in envelope:
        return envelope["data"]
    error = envelope.get("error")
    if response.is_success or not isinstance(error, dict) or not isinstance(error.get("code"), str):
        raise _unexpected(response)
    details = error.get("details")
    details = details if isinstance(details, dict) else {}
    raise for_code(error["code"], details.get("reason"))(
        str(error.get("message", "")),
        code=error["code"],
        details=details,
        status=response.status_code,
        request_id=envelope["meta"]["request_id"],
        retry_after=_seconds(response.headers.get("Retry-After")),
    )


def _envelope(response: httpx.Response) -> dict[str, Any]:
    """The envelope that every answer of Titen has. A refusal ends a lease, so only the server's own words
    count: a proxy's page is no refusal, whatever its status, and nor is somebody else's JSON."""
    try:
        envelope = json.loads(response.content) if _media_type(response) == "application/json" else None
    except (ValueError, RecursionError):
        envelope = None
    if not isinstance(envelope, dict):
        raise _unexpected(response)
    meta = envelope.get("meta")
    if not isinstance(meta, dict) or not isinstance(meta.get("request_id"), str):
        raise _unexpected(response)
    return envelope


def _unexpected(response: httpx.Response) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"{response.status_code} from {response.request.url.host} ({_media_type(response) or 'no content type'}) "
        "is not an answer of Titen's. Look at what stands between this agent and the server, or at base_url.",
        status=response.status_code,
        retry_after=_seconds(response.headers.get("Retry-After")),
    )


def _media_type(response: httpx.Response) -> str:
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


def _seconds(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds. The other form, a date, would need a clock that agrees: ignored."""
    if retry_after is None or not retry_after.strip().isdecimal():
        return None
    return float(retry_after)
