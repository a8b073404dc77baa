"""One server under one API key: any read, any write, and what is stopped when it is closed."""

import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self

from .processes import renew_after_fork
from .transport import Transport


class Entered(Protocol):
    """A run or a lease inside its block."""

    def stop(self) -> None:
        """Stop renewing."""


class Connection:
    """See `Titen`, which adds the nouns."""

    def __init__(self, base_url: str, key: str, *, timeout: float = 10.0, retry_for: float = 30.0) -> None:
        self.base_url = base_url
        self._transport = Transport(base_url, key, timeout=timeout, retry_for=retry_for)
        self._forget_entered()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The child holds nothing that it could stop."""
        self._forget_entered()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all renewals and close the connections. Leases that are still held run out."""
        with self._entered_lock:
            entered = list(self._entered)
        self._transport.close()
        for one in entered:
            one.stop()

    def get(self, path: str, *, wait: int = 0, **params: Any) -> Any:
        """Any other read: `data` of the answer to `GET path`."""
        return self._transport.call("GET", path, params=params, wait=wait)

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> Any:
        """Any other write: `data` of the answer to `POST path`, repeated under one `Idempotency-Key`."""
        return self._transport.call("POST", path, body, key=key)

    def _each(self, path: str, noun: str, **params: Any) -> Iterator[Any]:
        """The rows of a list, page after page as they are asked for."""
        cursor: str | None = None
        while True:
            page = self.get(path, cursor=cursor, **params)
            yield from page[noun]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def _forget_entered(self) -> None:
        self._entered: weakref.WeakSet[Entered] = weakref.WeakSet()
        self._entered_lock = threading.Lock()

    def _remember(self, entered: Entered) -> None:
        with self._entered_lock:
            self._entered.add(entered)


def id_of(thing: Mapping[str, Any] | str, name: str) -> str:
    """The id of something that is named by it, or by the shape that the server answered."""
    return thing if isinstance(thing, str) else str(thing[name])
