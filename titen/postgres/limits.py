"""Limits in time that differ from those of the settings: for one thread's connection, or for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


def wait_for_locks(seconds: float) -> None:
    """From now on this thread's connections wait so long for a lock. It costs no round trip: they are made so."""
    known = connection.settings_dict
    options = f"{known['OPTIONS'].get('options', '')} -c lock_timeout={seconds * 1000:.0f}".strip()
    # A copy: the settings belong to all threads.
    connection.settings_dict = {**known, "OPTIONS": {**known["OPTIONS"], "options": options}}
    connection.close()


@contextmanager
def unhurried() -> Iterator[None]:
    """Statements take as long as they need: for what reads, or shortens, whole tables."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
    try:
        yield
    finally:
        # Outside a transaction; a connection that was lost has forgotten it anyway.
        if connection.connection is not None and connection.is_usable():
            with connection.cursor() as cursor:
                cursor.execute("RESET statement_timeout")
