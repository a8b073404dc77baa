"""Waits and streams: the hub, one asyncio process (`granian --interface asgi --workers 1`)."""

import os

from django.conf import settings

# First of all: it sets Django up.
import titen.wsgi  # noqa: F401
from titen.live.boards import SOURCES
from titen.live.hub import Hub

# How pg_stat_activity names the hub's connections.
os.environ.setdefault("PGAPPNAME", "titen hub")

application = Hub(SOURCES, limit=settings.HUB_LIMIT)
