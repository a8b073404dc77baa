"""Followers of the log for tests: one stream read by a thread, and one that comes again whenever it is cut."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import httpx
import psycopg
from httpx_sse import EventSource, ServerSentEvent

from .cast import Agent, Company
from .clockwork import sql

STREAM = "/v1/events/stream"
SIGNS = ("cursor", "resync", "closed", "error")


@dataclass(frozen=True)
class Message:
    """One server-sent event."""

    id: str
    event: str
    data: Any


class Follower:
    """A stream, read by a thread. `messages`: all that came; `pings`: how many comments."""

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        session: str = "",
        path: str = STREAM,
        last: str | None = None,
        **query: str,
    ) -> None:
        self.messages: list[Message] = []
        self.pings = 0
        self.ended = threading.Event()
        self._client = httpx.Client(timeout=httpx.Timeout(20, read=40))
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= {} if last is None else {"Last-Event-ID": last}
        cookies = {"sessionid": session} if session else {}
        request = self._client.build_request(
            "GET", url + path, params=query, headers=headers, cookies=cookies
        )
        self.answer = self._client.send(request, stream=True)
        if self.answer.status_code != 200:
            self.answer.read()
            self.ended.set()
            return
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(httpx.HTTPError, OSError):
            for message in EventSource(cast(Any, _Counted(self))).iter_sse():
                if message.data:
                    self.messages.append(_message(message))
        self.ended.set()

    @property
    def events(self) -> list[Any]:
        """The lines of the log among the messages."""
        return [message.data for message in list(self.messages) if message.event not in SIGNS]

    @property
    def last(self) -> str:
        """What its reader would send as `Last-Event-ID`."""
        return self.messages[-1].id if self.messages else ""

    def signs(self, event: str) -> list[Message]:
        """The messages of one name."""
        return [message for message in list(self.messages) if message.event == event]

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *error: object) -> None:
        # Closed under its reader, the socket's number could be another stream's next.
        if not self.ended.is_set():
            with contextlib.suppress(OSError):
                stream = self.answer.extensions["network_stream"]
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            assert self.ended.wait(10)
        self._client.close()


class _Counted:
    """An answer whose comments are counted on their way to the parser, which drops them."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.headers = follower.answer.headers

    def iter_bytes(self) -> Any:
        for chunk in self._follower.answer.iter_bytes():
            self._follower.pings += chunk.count(b": alive\n\n")
            yield chunk

    def iter_text(self) -> Any:
        for chunk in self.iter_bytes():
            yield chunk.decode()

    def iter_lines(self) -> Any:
        raise AssertionError("lines end where JSON does not")


def follow(agent: Agent, hub: str, **query: str) -> Follower:
    """A stream of an agent's, through the hub at a URL; it must open."""
    stream = Follower(hub, agent.secret, **query)
    assert stream.answer.status_code == 200, stream.answer.text
    return stream


def write_events(company: Company, count: int, kind: str = "test.happened", **data: Any) -> None:
    """Commit `count` events of one kind at once; nobody has numbered them."""
    sql(
        "WITH e AS (INSERT INTO coordination_event (organization_id, kind, data)"
        " SELECT %s, %s, %s::jsonb || jsonb_build_object('number', n) FROM generate_series(1, %s) n ORDER BY n"
        " RETURNING seq, organization_id, id, created_at)"
        " INSERT INTO coordination_event_unnumbered (seq, organization_id, event_id, event_created_at)"
        " SELECT * FROM e",
        company.organization.pk,
        kind,
        json.dumps(data),
        count,
    )


@contextlib.contextmanager
def floor_at(company: Company, position: int) -> Any:
    """The log up to a position counts as given up, inside the block."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        owner.execute(
            "INSERT INTO coordination_log_floor (organization_id, position, digest) VALUES (%s, %s, %s)",
            [company.organization.pk, position, bytes(32)],
        )
        try:
            yield
        finally:
            owner.execute(
                "DELETE FROM coordination_log_floor WHERE organization_id = %s", [company.organization.pk]
            )


def log_of(company: Company) -> list[str]:
    """The ids of all events of an organization in the order of their positions, from the tables themselves."""
    found = sql(
        "SELECT 'evt_' || replace(event_id::text, '-', '') FROM coordination_event_position"
        " WHERE organization_id = %s ORDER BY position",
        company.organization.pk,
    )
    return [row[0] for row in found]


def messages_of(body: bytes) -> Sequence[Message]:
    """The messages of a stream that has ended."""
    answer = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=body)
    return [_message(one) for one in EventSource(answer).iter_sse() if one.data]


def _message(one: ServerSentEvent) -> Message:
    return Message(one.id, one.event, json.loads(one.data))
