"""Messages: a word to somebody, or to whoever holds a resource."""

from collections.abc import Iterator
from typing import Literal, cast

from .connection import Connection, id_of
from .leases import Resource
from .shapes import Message
from .transport import given


class MessageCalls(Connection):
    """What an agent says and is told through a server."""

    def send(self, body: str, *, to: str | None = None, resource: Resource | None = None) -> Message:
        """Write to a principal, by name or id, or to whoever holds a resource, a (type, id), now.

        Its holder is not named. A task is the resource `task` with its id, a section `section` with
        `slug/section`. Raises `Conflict` when nobody holds it.
        """
        if (to is None) == (resource is None):
            raise TypeError("a message goes to somebody, or to the holder of a resource")
        kind, name = resource or (None, None)
        fields = given(body=body, to_principal=to, resource_type=kind, resource_id=name)
        return cast(Message, self.post("/v1/messages", fields))

    def messages(
        self, box: Literal["inbox", "sent"] = "inbox", *, unread: bool | None = None
    ) -> Iterator[Message]:
        """What this agent has received, or sent; the newest first. `unread`: only those not yet marked, or
        with False only those that are."""
        asked = None if unread is None else str(unread).lower()
        return self._each("/v1/messages", "messages", box=box, unread=asked)

    def mark_read(self, message: Message | str) -> Message:
        """Mark a message that was received; again changes nothing. Its sender is not told."""
        return cast(Message, self.post(f"/v1/messages/{id_of(message, 'message_id')}/read"))
