"""The installation's settings, except that tests hold locks until they have seen who waits, on busy machines."""

from titen.settings import *  # noqa: F403
from titen.settings import DATABASES

DATABASES["default"]["OPTIONS"]["options"] += " -c lock_timeout=15s"
