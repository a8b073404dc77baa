"""The installation's settings with the floor view, for the server that `manage.py bench` starts."""

from titen.settings import *  # noqa: F403

ROOT_URLCONF = "titen.bench.urls"
