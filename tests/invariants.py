"""INV1 to INV8 of every case, as queries over the whole database: each must find nothing."""

from collections.abc import Iterable
from uuid import UUID

from django.db import connection

RULES = {
    "INV1: at most one open run and one live lease per task": """
        SELECT task_id FROM coordination_run WHERE ended_at IS NULL GROUP BY task_id HAVING count(*) > 1
        UNION ALL SELECT resource_id FROM coordination_lease WHERE ended_at IS NULL GROUP BY resource_id HAVING count(*) > 1""",
    "INV1: a run and its lease end together": """
        SELECT r.id FROM coordination_run r JOIN coordination_lease l ON l.id = r.lease_id
        WHERE (r.ended_at IS NULL) <> (l.ended_at IS NULL)""",
    "INV1: no lease begins before the one before it has ended": """
        SELECT l.id FROM coordination_lease l JOIN coordination_lease m
            ON m.resource_id = l.resource_id AND m.epoch = l.epoch + 1
        WHERE l.ended_at IS NULL OR m.granted_at < l.ended_at""",
    "INV2: in progress if and only if it has an open run that is running": """
        SELECT t.id FROM coordination_task t WHERE (t.status = 'in_progress') <> EXISTS (
            SELECT FROM coordination_run r WHERE r.task_id = t.id AND r.status = 'running')""",
    "INV2: blocked if and only if it has an open blocker, and the counter says how many": """
        SELECT t.id FROM coordination_task t CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM coordination_blocker b WHERE b.task_id = t.id AND b.closed_at IS NULL) b
        WHERE (t.status = 'blocked') <> (b.n > 0) OR t.open_blockers <> b.n""",
    "INV2: the dependency counters say how many": """
        SELECT t.id FROM coordination_task t CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM coordination_taskdependency d WHERE d.task_id = t.id AND d.satisfied_at IS NULL) d
        WHERE t.open_dependencies <> d.n""",
    "INV2: open_effects counts what may have touched the world and has no outcome": """
        SELECT t.id FROM coordination_task t CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM approvals_effect e WHERE e.task_id = t.id
                AND e.kind IN ('destructive', 'outward') AND e.status IN ('authorized', 'unknown')) e
        WHERE t.open_effects <> e.n""",
    "INV2: unreported_effects counts the authorized effects of the open run; others have none, but for success": """
        SELECT t.id FROM coordination_task t CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE r.ended_at IS NULL) AS n,
                count(*) FILTER (WHERE r.ended_at IS NOT NULL AND r.status <> 'succeeded') AS lost
            FROM approvals_effect e JOIN coordination_run r ON r.id = e.run_id
            WHERE e.task_id = t.id AND e.status = 'authorized') e
        WHERE t.unreported_effects <> e.n OR e.lost > 0""",
    "INV2: unused_grants counts the grants that are neither used nor void": """
        SELECT t.id FROM coordination_task t CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM approvals_approval a
            WHERE a.task_id = t.id AND a.status = 'decided' AND a.granted) a
        WHERE t.unused_grants <> a.n""",
    "INV3: attempt_count counts the abandoned and failed runs since the last reset": """
        SELECT t.id FROM coordination_task t CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM coordination_run r WHERE r.task_id = t.id AND r.status IN ('abandoned', 'failed')
                AND r.ended_at > coalesce((SELECT max(e.created_at) FROM coordination_event e
                    WHERE e.task_id = t.id AND e.kind IN ('task.reopened', 'task.taken_over')), '-infinity')) r
        WHERE t.attempt_count <> r.n""",
    "INV4: every ended run has exactly one ending event": """
        SELECT r.id FROM coordination_run r CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM coordination_event e
            WHERE e.task_id = r.task_id AND e.run_id = r.id AND e.kind IN (
                'task.completed', 'task.failed', 'task.released', 'task.abandoned', 'task.parked', 'task.superseded',
                'task.run_cancelled', 'task.handed_off')) e
        WHERE e.n <> (r.ended_at IS NOT NULL)::int""",
    "INV4: every decided approval has exactly one decision event by its human": """
        SELECT a.id FROM approvals_approval a CROSS JOIN LATERAL (
            SELECT count(*) AS n, count(p.id) AS humans FROM coordination_event e
            LEFT JOIN coordination_principal p ON p.id = e.actor_id AND p.user_id = a.decided_by_user_id
            WHERE e.subject_id = a.id AND e.kind = 'approval.decided') e
        WHERE e.n <> (a.decision IS NOT NULL)::int OR e.humans <> e.n""",
    "INV5: epochs strictly increase per resource": """
        SELECT l.id FROM coordination_lease l JOIN coordination_lease m
            ON m.resource_id = l.resource_id AND m.epoch > l.epoch AND m.granted_at < l.granted_at
        UNION ALL SELECT l.id FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id
        WHERE l.epoch > r.epoch""",
    "INV6: no approval is both expired and decided": """
        SELECT id FROM approvals_approval WHERE status = 'expired' AND decision IS NOT NULL
        UNION ALL SELECT a.id FROM approvals_approval a JOIN coordination_event e ON e.subject_id = a.id
        WHERE e.kind IN ('approval.expired', 'approval.decided', 'approval.cancelled')
        GROUP BY a.id HAVING count(*) > 1""",
    "INV6: a grant is used once, for its action and task, after the decision and while it holds": """
        SELECT a.id FROM approvals_approval a CROSS JOIN LATERAL (
            SELECT count(*) AS n, count(*) FILTER (WHERE e.action_digest = a.action_digest AND e.task_id = a.task_id
                AND e.created_at >= a.ended_at
                AND e.created_at < a.ended_at + a.valid_for_seconds * interval '1 s') AS rightly
            FROM approvals_effect e WHERE e.approval_id = a.id AND e.status <> 'refused') e
        WHERE e.n <> (a.status = 'consumed')::int OR e.rightly <> e.n""",
    "INV6: no effect was authorized without its lease and epoch, or without the word of policy or a human": """
        SELECT e.id FROM approvals_effect e JOIN coordination_lease l ON l.id = e.lease_id
        WHERE e.status <> 'refused' AND (e.epoch <> l.epoch OR e.principal_id <> l.principal_id
            OR e.created_at >= l.ended_at OR e.verdict ->> 'decision' = 'deny'
            OR (e.verdict ->> 'decision' = 'ask') <> (e.approval_id IS NOT NULL))""",
    "INV6: every ended handoff has exactly one ending event, of its own end": """
        SELECT h.id FROM coordination_handoff h JOIN (
            SELECT subject_id, array_agg(kind ORDER BY seq) AS kinds FROM coordination_event
            WHERE kind LIKE 'handoff.%' GROUP BY subject_id) e ON e.subject_id = h.id
        WHERE e.kinds <> array_remove(ARRAY['handoff.created',
            CASE WHEN h.ended_at IS NOT NULL THEN 'handoff.' || h.status END]::varchar[], NULL)""",
    "INV6: an accepted task was handed to a run of the target": """
        SELECT h.id FROM coordination_handoff h
        JOIN coordination_event e ON e.subject_id = h.id AND e.kind = 'handoff.accepted'
        LEFT JOIN coordination_run r ON r.id = h.accepted_run_id
        WHERE h.task_id IS NOT NULL
            AND (r.id IS NULL OR r.principal_id <> h.to_principal_id OR r.task_id <> h.task_id)""",
    "INV8: positions are unique and without gaps from the floor on": """
        SELECT p.organization_id FROM coordination_event_position p
        LEFT JOIN coordination_log_floor f ON f.organization_id = p.organization_id
        WHERE p.position > coalesce(f.position, 0) GROUP BY p.organization_id, f.position
        HAVING count(*) <> max(p.position) - coalesce(f.position, 0) OR min(p.position) <> coalesce(f.position, 0) + 1""",
    "INV8: positions in documents are unique, without gaps and in the order of the organization's": """
        SELECT d.id FROM coordination_document d
        JOIN coordination_document_position p ON p.document_id = d.id AND p.position > d.floor
        GROUP BY d.id HAVING count(*) <> max(p.position) - d.floor OR min(p.position) <> d.floor + 1
        UNION ALL SELECT document_id FROM (
            SELECT d.document_id, o.position - lag(o.position) OVER (PARTITION BY d.document_id ORDER BY d.position) AS step
            FROM coordination_document_position d JOIN coordination_event_position o ON o.event_id = d.event_id) s
        WHERE step <= 0""",
    "INV8: the states rebuilt from the events are the states of the tasks": """
        SELECT t.id FROM coordination_task t LEFT JOIN LATERAL (
            SELECT e.data ->> 'status' AS status FROM coordination_event e
            WHERE e.task_id = t.id AND e.data ? 'status' ORDER BY e.seq DESC LIMIT 1) e ON true
        WHERE t.status IS DISTINCT FROM e.status
            AND EXISTS (SELECT FROM coordination_event e WHERE e.task_id = t.id)""",
}


# The tables that rules begin with. Narrowed to some organizations they stand before the rule under their own
# names: so a rule is written once, and costs as much as those organizations have.
NARROWED = (
    "coordination_task",
    "coordination_run",
    "coordination_lease",
    "coordination_handoff",
    "coordination_event_position",
    "approvals_approval",
    "approvals_effect",
)
DOCUMENTS = """coordination_document_position AS NOT MATERIALIZED (
    SELECT p.* FROM public.coordination_document_position p JOIN public.coordination_document d ON d.id = p.document_id
    WHERE d.organization_id = ANY ({some}))"""
# By the primary key, whose ids are in the order of time: without it every look would read the whole log.
TOUCHED = """
SELECT DISTINCT organization_id, (SELECT titen_uuid7()) FROM coordination_event WHERE id > %s"""


def broken(organizations: Iterable[UUID] | None = None) -> dict[str, list[str]]:
    """The promises that do not hold now, in these organizations or in all, each with the ids that break it."""
    found = {}
    with connection.cursor() as cursor:
        for promise, query in RULES.items():
            cursor.execute(query if organizations is None else narrowed(query, organizations))
            rows = [str(row[0]) for row in cursor.fetchmany(5)]
            if rows:
                found[promise] = rows
    return found


def narrowed(query: str, organizations: Iterable[UUID]) -> str:
    """The same rule about some organizations."""
    some = f"ARRAY[{', '.join(repr(str(organization)) for organization in organizations)}]::uuid[]"
    tables = [
        f"{table} AS NOT MATERIALIZED (SELECT * FROM public.{table} WHERE organization_id = ANY ({some}))"
        for table in NARROWED
    ]
    return f"WITH {', '.join([*tables, DOCUMENTS.format(some=some)])} {query}"


class Watch:
    """Checks what happened since it last looked; at the end, everything: also what a transaction wrote that
    was open meanwhile."""

    def __init__(self) -> None:
        self._last = UUID(int=0)

    def check(self) -> None:
        """Fail, naming every promise that does not hold in an organization where something happened."""
        with connection.cursor() as cursor:
            cursor.execute(TOUCHED, [self._last])
            touched = cursor.fetchall()
        if touched:
            self._last = touched[0][1]
            found = broken([organization for organization, _ in touched])
            assert not found, found
