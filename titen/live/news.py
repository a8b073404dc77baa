"""What the hub asks the database for its followers: the new lines of all followed logs, in one statement."""

import json
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from coordination.database import Row
from coordination.following import Log, lines

# Lines of one log that one look reads.
LINES = 200


def _new_lines(kind: str) -> str:
    new = lines(kind, log="w.log", after="w.after", limit=LINES)
    return f"""
SELECT w.number, n.* FROM jsonb_to_recordset(%({kind})s::jsonb) AS w (number int, log uuid, after bigint)
CROSS JOIN LATERAL ({new}) n"""


_NEWS = f"{_new_lines('organization')}\nUNION ALL{_new_lines('document')}\nORDER BY number, position"
_UNNUMBERED = "SELECT EXISTS (SELECT FROM coordination_event_unnumbered) AS some"


@dataclass(frozen=True, slots=True)
class News:
    """New lines of each log, in order, after the position that was asked with; whether some events are still
    to be numbered."""

    asked: dict[Log, int]
    rows: dict[Log, list[Row]] = field(default_factory=dict)
    unnumbered: bool = False

    @property
    def more(self) -> bool:
        """True when some log has more lines than one look reads."""
        return any(len(rows) == LINES for rows in self.rows.values())


async def read_news(connection: AsyncConnection[Any], asked: dict[Log, int]) -> News:
    """Look once. Raises psycopg's errors."""
    logs = list(asked)
    wanted: dict[str, list[dict[str, Any]]] = {"organization": [], "document": []}
    for number, log in enumerate(logs):
        wanted[log.kind].append({"number": number, "log": str(log.id), "after": asked[log]})
    rows: dict[Log, list[Row]] = {}
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_UNNUMBERED, prepare=True)
        found = await cursor.fetchone()
        params = {kind: json.dumps(described) for kind, described in wanted.items()}
        await cursor.execute(_NEWS, params, prepare=True)
        for row in await cursor.fetchall():
            rows.setdefault(logs[row["number"]], []).append(row)
    return News(asked, rows, bool(found and found["some"]))
