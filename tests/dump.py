"""The whole database as one checksum per table, to show that a request changed nothing."""

from django.db import connection

# A session row is not state of the product: reading a page may touch it.
IGNORED = ("django_session",)

_TABLES = """
SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
    AND relnamespace = 'public'::regnamespace ORDER BY relname"""


def table_digests() -> dict[str, tuple[int, int]]:
    """Table -> number of rows and the sum of their hashes. Equal dumps hold equal rows."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        for (table,) in cursor.fetchall():
            if table in IGNORED:
                continue
            cursor.execute(
                f'SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM "{table}" t'
            )
            count, digest = cursor.fetchone()
            found[table] = (count, int(digest))
    return found


def changed_since(before: dict[str, tuple[int, int]]) -> list[str]:
    """The tables that differ from an earlier dump."""
    now = table_digests()
    return [table for table in now if now[table] != before[table]]
