"""The installation's settings, except that tests hold locks until they have seen who waits, on busy machines."""

from titen.settings import *  # noqa: F403
from titen.settings import DATABASES

# Whoever only hands tests out to workers has no database.
for database in DATABASES.values():
    database["OPTIONS"]["options"] += " -c lock_timeout=15s"
