"""Waits and streams: the hub, one asyncio process (`granian --interface asgi --workers 1`)."""

import os

# First of all: it sets Django up.
import titen.wsgi  # noqa: F401
from titen.live.boards import SOURCES
from titen.live.hub import Hub

# How many waiting requests and streams may be open at once; one more gets OVERLOADED with Retry-After.
LIMIT = int(os.environ.get("TITEN_HUB_LIMIT", "2000"))

# How pg_stat_activity names the hub's connections.
os.environ.setdefault("PGAPPNAME", "titen hub")

application = Hub(SOURCES, limit=LIMIT)
