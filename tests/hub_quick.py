"""The hub that looks after its streams more often than in production, and lets a reader leave less unread."""

from titen.asgi import application
from titen.live import event_streams, followers

event_streams.CHECK_SECONDS = 1.0
event_streams.PING_SECONDS = 0.5
event_streams.PRINCIPAL_LIMIT = 5
followers.QUEUE_BYTES = 16 * 1024

__all__ = ["application"]
