"""Moves times in the database, so that tests need not wait for them to pass."""

from typing import Any
from uuid import UUID

from django.db import connection

from titen.api.ids import read_id


def uuid_of(printed: str) -> UUID:
    """The UUID in a printed id of any kind."""
    found = read_id(printed.partition("_")[0], printed)
    assert found is not None, printed
    return found


def sql(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    """Run one statement; its rows, if it has any."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def let_lease_run_out(claim: dict[str, Any]) -> None:
    """The claim's lease ends now; nobody has written it down."""
    changed = sql(
        "UPDATE coordination_lease SET expires_at = clock_timestamp() WHERE id = %s AND ended_at IS NULL RETURNING 1",
        uuid_of(claim["lease"]["lease_id"]),
    )
    assert changed, "there is no live lease to run out"


def bring_into_jeopardy(claim: dict[str, Any]) -> None:
    """The last renewal is as long ago as 2/3 of the TTL; the lease still lives."""
    sql(
        "UPDATE coordination_lease SET renewed_at = clock_timestamp() - ttl_seconds * interval '0.67 s' WHERE id = %s",
        uuid_of(claim["lease"]["lease_id"]),
    )


def pass_time(task_id: str, *columns: str) -> None:
    """`backoff_until`, `reserved_until`, `avoided_until` or `not_before` of a task are over."""
    for column in columns:
        sql(f"UPDATE coordination_task SET {column} = clock_timestamp() WHERE id = %s", uuid_of(task_id))


def let_approval_run_out(approval_id: str) -> None:
    """The approval's time is over; nobody has written it down."""
    sql(
        "UPDATE approvals_approval SET expires_at = clock_timestamp() WHERE id = %s AND status = 'pending'",
        uuid_of(approval_id),
    )


_ROWS = """
SELECT jsonb_build_object(
    'task', (SELECT to_jsonb(t) FROM coordination_task t WHERE t.id = %(id)s),
    'resource', (SELECT to_jsonb(r) FROM coordination_resource r JOIN coordination_task t ON t.resource_id = r.id
        WHERE t.id = %(id)s),
    'runs', (SELECT jsonb_agg(to_jsonb(r) ORDER BY r.number) FROM coordination_run r WHERE r.task_id = %(id)s),
    'leases', (SELECT jsonb_agg(to_jsonb(l) ORDER BY l.epoch) FROM coordination_lease l
        JOIN coordination_task t ON t.resource_id = l.resource_id WHERE t.id = %(id)s),
    'blockers', (SELECT jsonb_agg(to_jsonb(b) ORDER BY b.id) FROM coordination_blocker b WHERE b.task_id = %(id)s),
    'dependencies', (SELECT jsonb_agg(to_jsonb(d) ORDER BY d.id) FROM coordination_taskdependency d
        WHERE d.task_id = %(id)s),
    'approvals', (SELECT jsonb_agg(to_jsonb(a) ORDER BY a.id) FROM approvals_approval a WHERE a.task_id = %(id)s),
    'effects', (SELECT jsonb_agg(to_jsonb(e) ORDER BY e.id) FROM approvals_effect e
        WHERE e.task_id = %(id)s AND e.status <> 'refused'),
    'comments', (SELECT jsonb_agg(to_jsonb(c) ORDER BY c.id) FROM coordination_comment c WHERE c.task_id = %(id)s)
)::text"""


def rows_of(task_id: str) -> str:
    """Everything that the database keeps about a task, as text to compare: not the log, nor the
    attempts that were refused."""
    with connection.cursor() as cursor:
        cursor.execute(_ROWS, {"id": uuid_of(task_id)})
        return str(cursor.fetchone()[0])


def kinds_since(task_id: str, seq: int) -> list[str]:
    """The kinds of the task's events after `seq`, in order."""
    found = sql(
        "SELECT kind FROM coordination_event WHERE task_id = %s AND seq > %s ORDER BY seq",
        uuid_of(task_id),
        seq,
    )
    return [kind for (kind,) in found]


def last_seq() -> int:
    """The newest event's number."""
    return int(sql("SELECT coalesce(max(seq), 0) FROM coordination_event")[0][0])
