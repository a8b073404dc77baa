"""Running one prepared statement on Django's connection."""

import re
from functools import lru_cache
from typing import Any

import psycopg
from django.db import connection
from psycopg.rows import dict_row
from psycopg.types.json import JsonbLoader

Row = dict[str, Any]

# After so many runs of a statement psycopg prepares it by itself: never.
ONLY_WHEN_ASKED = 2**31


def fetch_all(sql: str, params: dict[str, Any], *, prepare: bool = True) -> list[Row]:
    """Run `sql` as a statement prepared on the server and return its rows.

    Django's own cursor binds on the client and has every statement planned anew; for the hot verbs
    planning costs more than running. Outside a transaction the statement is its own.
    """
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    if connection.connection.prepare_threshold is None:
        # Django's default, under which psycopg ignores `prepare=True` as well.
        connection.connection.prepare_threshold = ONLY_WHEN_ASKED
    text, names = _numbered(sql)
    with (
        connection.wrap_database_errors,
        psycopg.RawCursor(connection.connection, row_factory=dict_row) as cursor,
    ):
        # Django has its connection answer JSON as text, for its own field to read.
        cursor.adapters.register_loader("jsonb", JsonbLoader)
        return cursor.execute(text, [params[name] for name in names], prepare=prepare).fetchall()


@lru_cache(maxsize=512)
def _numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """`sql` with PostgreSQL's own `$1` for the first name, and so on, and the names in that order.

    psycopg does the same, but parses a text of more than 4 KiB anew each time.
    """
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return re.sub(r"%\((\w+)\)s|%%", number, sql).encode(), tuple(names)


def fetch(sql: str, params: dict[str, Any], *, prepare: bool = True) -> Row | None:
    """The first row of `fetch_all`, or None."""
    rows = fetch_all(sql, params, prepare=prepare)
    return rows[0] if rows else None
