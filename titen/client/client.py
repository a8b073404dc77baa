"""The way in: a server, a key, and what an agent asks of it."""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

from .hold import take
from .lease_clock import now
from .run import Run
from .shapes import Claim, Comment, Principal, Task
from .transport import Transport, given, new_key
from .waiting import LONGEST_WAIT, PAUSE
from .worker import work


class Titen:
    """A connection to one Titen server under one API key. Safe for threads; close it when done.

    base_url: where the server is, without `/v1`: `http://127.0.0.1:8000`.
    key: the API key, `titen_sk_…`.
    timeout: seconds to wait for one answer (beyond what a call asks the server to wait).
    retry_for: seconds to repeat a call that got no answer, a 5xx or 429. Every write carries an
        `Idempotency-Key`, so that the server does a repeated one once.

    All calls raise `TitenError` or one of its classes.
    """

    def __init__(self, base_url: str, key: str, *, timeout: float = 10.0, retry_for: float = 30.0) -> None:
        self.base_url = base_url
        self._transport = Transport(base_url, key, timeout=timeout, retry_for=retry_for)
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()
        self._runs_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Titen {self.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all heartbeats and close the connections. Leases that are still held run out."""
        with self._runs_lock:
            runs = list(self._runs)
        self._transport.close()
        for run in runs:
            run.stop()

    def claim(
        self,
        capabilities: Sequence[str] | None = None,
        *,
        task_id: str | None = None,
        ttl_seconds: int | None = None,
        wait: int = 0,
    ) -> Run | None:
        """Claim the most urgent ready task, or the one with `task_id`; None when there is none.

        capabilities: what to claim for, within the agent's own; all of them if not given.
        ttl_seconds: the lease's length; the task's, then the organization's, if not given.
        wait: seconds to wait for work, any number.

        Raises `NotClaimable` or `Reserved` for a `task_id` that can't be had now, and `LeaseLost` if
        the answer took so long that the lease was gone again.
        """
        body = given(capabilities=_listed(capabilities), task_id=task_id, ttl_seconds=ttl_seconds)
        until = now() + wait
        key = new_key()
        while True:
            sent_at = now()
            round_wait = min(LONGEST_WAIT, max(0, round(until - sent_at)))
            claim: Claim | None = self._transport.call(
                "POST", "/v1/tasks/claim", body, key=key, wait=round_wait
            )
            if claim is not None:
                return Run(
                    self._transport, claim, take(self._transport, claim, sent_at), opened=self._remember
                )
            if round(until - now()) < 1:
                return None
            # A front end may not pass the wait on: then this is a poll.
            self._transport.closed.wait(max(0.0, PAUSE - (now() - sent_at)))

    def work(
        self,
        handler: Callable[[Run], object],
        *,
        capabilities: Sequence[str] | None = None,
        ttl_seconds: int | None = None,
        wait: int = LONGEST_WAIT,
        stop: threading.Event | None = None,
        until_empty: bool = False,
    ) -> int:
        """Claim and handle tasks one by one until `stop` is set; returns how many were handled.

        `handler(run)` is called inside the run's block and ends it: `run.complete(...)`, `run.fail`
        or `run.release`, whose request also claims the next task. What it returns is not looked at;
        a run it leaves open is released, one it leaves by an exception fails, and the loop goes on.
        Outages are waited out. A refused claim (`Unauthenticated`, `Forbidden`, …) ends the loop.

        wait: seconds that one claim waits for work, at most how long `stop` may take.
        until_empty: return when a claim finds nothing.
        """
        names = _listed(capabilities)
        return work(
            lambda: self.claim(names, ttl_seconds=ttl_seconds, wait=0 if until_empty else wait),
            given(capabilities=names, ttl_seconds=ttl_seconds),
            handler,
            stop=stop or threading.Event(),
            until_empty=until_empty,
        )

    def create_task(self, title: str, **fields: Any) -> Task:
        """Create a task. Fields: description, priority, required_capabilities, payload, secret_refs,
        depends_on, not_before, max_attempts, lease_ttl_seconds."""
        return cast(Task, self.post("/v1/tasks", {"title": title, **fields}))

    def task(self, task_id: str) -> Task:
        """A task as it stands, with `standing` (who holds it, until when) and `waits_for`."""
        return cast(Task, self.get(f"/v1/tasks/{task_id}"))

    def comment(self, task_id: str, body: str) -> Comment:
        """Say something on a task's page. Blocks nothing."""
        return cast(Comment, self.post(f"/v1/tasks/{task_id}/comments", {"body": body}))

    def principal(self) -> Principal:
        """Who this key belongs to, and what it may do."""
        return cast(Principal, self.get("/v1/principal"))

    def events(self, *, after: str | None = None, kind: str | None = None) -> Any:
        """A page of the organization's log after a cursor, as the server gives it."""
        return self.get("/v1/events", after=after, kind=kind)

    def get(self, path: str, *, wait: int = 0, **params: Any) -> Any:
        """Any other read: `data` of the answer to `GET path`."""
        return self._transport.call("GET", path, params=params, wait=wait)

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> Any:
        """Any other write: `data` of the answer to `POST path`, repeated under one `Idempotency-Key`."""
        return self._transport.call("POST", path, body, key=key)

    def _remember(self, run: Run) -> None:
        with self._runs_lock:
            self._runs.add(run)


def _listed(names: Sequence[str] | None) -> list[str] | None:
    # A lone string is a sequence of strings too, and would ask for one capability per letter.
    if isinstance(names, str):
        raise TypeError("capabilities is a list of names")
    return None if names is None else list(names)
