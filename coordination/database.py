"""Running one prepared statement on Django's connection."""

from typing import Any

import psycopg
from django.db import connection
from psycopg.rows import dict_row
from psycopg.types.json import JsonbLoader

Row = dict[str, Any]


def fetch_all(sql: str, params: dict[str, Any], *, prepare: bool = True) -> list[Row]:
    """Run `sql` as a statement prepared on the server and return its rows.

    Django's own cursor binds on the client and has every statement planned anew; for the hot verbs
    planning costs more than running. Outside a transaction the statement is its own.
    """
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    with (
        connection.wrap_database_errors,
        psycopg.Cursor(connection.connection, row_factory=dict_row) as cursor,
    ):
        # Django has its connection answer JSON as text, for its own field to read.
        cursor.adapters.register_loader("jsonb", JsonbLoader)
        return cursor.execute(sql, params, prepare=prepare).fetchall()


def fetch(sql: str, params: dict[str, Any], *, prepare: bool = True) -> Row | None:
    """The first row of `fetch_all`, or None."""
    rows = fetch_all(sql, params, prepare=prepare)
    return rows[0] if rows else None
