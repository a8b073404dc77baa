"""What many viewers see at once: read once a second, rendered once per role, sent as the same bytes."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from titen.api.event_stream import frame

from .pool import Pool
from .sse import Viewer

logger = logging.getLogger("titen.live")

PERIOD_SECONDS = 1.0
RENDER_SECONDS = 20.0

type Fragments = dict[str, str]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a viewer asks to see, and the organization in which it needs a role for that."""

    key: Hashable
    organization_id: UUID


@dataclass(frozen=True, slots=True)
class Source:
    """How one kind of page is kept live. All four run on a pool thread.

    find: the query's parameters -> the subject, None when there is no such thing.
    read: a subject's key and the state read before (None at first) -> its state, in few queries.
    render: state and role -> DOM id -> outer HTML.
    message: changed fragments -> the text of one event.
    """

    find: Callable[[Mapping[str, str]], Subject | None]
    read: Callable[[Any, Any], Any]
    render: Callable[[Any, str], Fragments]
    message: Callable[[Fragments], str]


class Channel:
    """One subject of one source, while somebody looks at it."""

    def __init__(self, source: Source, subject: Subject, pool: Pool) -> None:
        self.subject = subject
        self.viewers: set[Viewer] = set()
        self._source = source
        self._pool = pool
        self._shown: dict[str, Fragments] = {}
        self._whole: dict[str, bytes] = {}
        self._arrival = asyncio.Event()
        self._state: Any = None
        self._lost = False

    def join(self, viewer: Viewer) -> None:
        """A new viewer. It gets the whole picture: the last one of its role, or the next."""
        self.viewers.add(viewer)
        if viewer.role not in self._shown:
            self._arrival.set()
        viewer.repaint()

    def whole(self, role: str) -> bytes:
        """The whole picture as it was last read; empty before the first time."""
        if role not in self._whole and role in self._shown:
            self._whole[role] = frame(self._source.message(self._shown[role]))
        return self._whole.get(role, b"")

    async def run(self) -> None:
        """Read, render and send once a second, until cancelled; at once for a role that is new here."""
        while True:
            began = time.monotonic()
            self._arrival.clear()
            await self.refresh()
            try:
                async with asyncio.timeout(max(began + PERIOD_SECONDS - time.monotonic(), 0.1)):
                    await self._arrival.wait()
            except TimeoutError:
                pass

    async def refresh(self) -> None:
        """Once. Without a database, or with a fault in the page, viewers keep what they see."""
        wanted = {viewer.role for viewer in self.viewers}
        try:
            state, rendered, messages = await self._pool.run(
                lambda: self._render(wanted), seconds=RENDER_SECONDS
            )
        except (DatabaseError, TimeoutError) as problem:
            if not self._lost:
                logger.warning("no news for %s: %s", self.subject.key, str(problem).split("\n", 1)[0])
            self._lost = True
            return
        except Exception:
            logger.exception("the page of %s cannot be rendered", self.subject.key)
            return
        self._lost = False
        self._state = state
        self._publish(rendered, messages)

    def _render(self, wanted: set[str]) -> tuple[Any, dict[str, Fragments], dict[str, bytes]]:
        state = self._source.read(self.subject.key, self._state)
        known = self._shown if state == self._state else {}
        rendered = {role: known.get(role) or self._source.render(state, role) for role in sorted(wanted)}
        messages = {}
        for role, fragments in rendered.items():
            shown = self._shown.get(role, {})
            if changed := {name: html for name, html in fragments.items() if shown.get(name) != html}:
                messages[role] = frame(self._source.message(changed))
        return state, rendered, messages

    def _publish(self, rendered: dict[str, Fragments], messages: dict[str, bytes]) -> None:
        self._shown = rendered
        for role in messages:
            self._whole.pop(role, None)
        self._whole = {role: whole for role, whole in self._whole.items() if role in rendered}
        for viewer in self.viewers:
            if viewer.behind:
                viewer.ready.set()
            elif message := messages.get(viewer.role):
                viewer.offer(message)
