"""The board's queries. Each is bounded: `%(limit)s` rows, counts up to `%(cap)s`."""

from coordination.statements import JEOPARDY

CERTAINTY = f"""CASE WHEN l.ended_at IS NOT NULL OR l.expires_at <= clock_timestamp() THEN 'expired'
        WHEN {JEOPARDY.format(at="clock_timestamp()")} THEN 'jeopardy' ELSE 'held' END"""

# As the claim judges it, but for whom it does not matter: a reserved task is not ready.
_IS_READY = """t.status = 'todo' AND t.open_dependencies = 0
    AND (t.not_before IS NULL OR t.not_before <= k.at) AND (t.backoff_until IS NULL OR t.backoff_until <= k.at)
    AND (t.reserved_for_id IS NULL OR t.reserved_until <= k.at)"""

_CLOCK = "clock AS MATERIALIZED (SELECT clock_timestamp() AS at)"


def _count(status: str) -> str:
    return f"""(SELECT count(*) FROM (SELECT FROM coordination_task
        WHERE organization_id = %(organization)s AND status = '{status}' LIMIT %(cap)s) x)"""


COUNTS = f"""WITH {_CLOCK}
SELECT k.at, {_count("todo")} AS todo, {_count("in_progress")} AS running, {_count("blocked")} AS blocked,
    (SELECT count(*) FROM (SELECT FROM coordination_task t
        WHERE t.organization_id = %(organization)s AND {_IS_READY} LIMIT %(cap)s) x) AS ready,
    (SELECT count(*) FROM (SELECT FROM coordination_task
        WHERE organization_id = %(organization)s AND finished_at IS NOT NULL
            AND finished_at > k.at - interval '24 hours' LIMIT %(cap)s) x) AS ended_lately
FROM clock k"""

RUNNING = f"""
SELECT t.id AS task_id, t.title, t.priority, p.name AS agent, p.kind, r.number, t.attempt_count, t.max_attempts,
    r.progress, r.status_line, r.started_at, l.renewed_at, l.expires_at, {CERTAINTY} AS certainty, t.open_effects
FROM coordination_run r JOIN coordination_lease l ON l.id = r.lease_id
JOIN coordination_task t ON t.id = r.task_id JOIN coordination_principal p ON p.id = r.principal_id
WHERE r.organization_id = %(organization)s AND r.ended_at IS NULL AND r.status = 'running'
ORDER BY r.started_at, r.id LIMIT %(limit)s"""

_QUEUED = (
    "t.id AS task_id, t.title, t.priority, f.capabilities, t.created_at, t.attempt_count, t.max_attempts,"
    " t.open_effects"
)

# The heads of all profiles' queues, merged, as a claim that could do everything would take them.
READY = f"""WITH {_CLOCK}
SELECT {_QUEUED.replace("f.capabilities", "q.capabilities")} FROM clock k CROSS JOIN LATERAL (
    SELECT h.id, f.capabilities FROM coordination_capabilityprofile f CROSS JOIN LATERAL (
        SELECT t.id, t.priority, t.created_at FROM coordination_task t
        WHERE t.organization_id = %(organization)s AND t.profile_id = f.id AND {_IS_READY}
        ORDER BY t.priority DESC, t.created_at, t.id LIMIT %(limit)s
    ) h
    WHERE f.organization_id = %(organization)s
    ORDER BY h.priority DESC, h.created_at, h.id LIMIT %(limit)s
) q JOIN coordination_task t ON t.id = q.id
ORDER BY t.priority DESC, t.created_at, t.id"""

WAITING = f"""WITH {_CLOCK}
SELECT {_QUEUED}, t.open_dependencies, t.not_before, t.backoff_until, t.reserved_until, p.name AS reserved_for,
    (SELECT jsonb_agg(jsonb_build_object('id', o.id, 'title', o.title)) FROM (
        SELECT o.id, o.title FROM coordination_taskdependency d JOIN coordination_task o ON o.id = d.depends_on_id
        WHERE d.task_id = t.id AND d.satisfied_at IS NULL ORDER BY o.id LIMIT 3) o) AS dependencies
FROM clock k CROSS JOIN coordination_task t
JOIN coordination_capabilityprofile f ON f.id = t.profile_id
LEFT JOIN coordination_principal p ON p.id = t.reserved_for_id
WHERE t.organization_id = %(organization)s AND t.status = 'todo' AND NOT ({_IS_READY})
ORDER BY t.created_at, t.id LIMIT %(limit)s"""

BLOCKED = f"""
SELECT t.id AS task_id, t.title, t.priority, t.open_effects, p.name AS agent, l.expires_at,
    CASE WHEN l.id IS NOT NULL THEN {CERTAINTY} END AS certainty,
    (SELECT jsonb_agg(jsonb_build_object('kind', b.kind, 'sentence', b.sentence, 'opened_at', b.opened_at)
        ORDER BY b.opened_at, b.id) FROM (
            SELECT * FROM coordination_blocker WHERE task_id = t.id AND closed_at IS NULL ORDER BY opened_at, id LIMIT 10
        ) b) AS blockers
FROM (
    SELECT * FROM coordination_task WHERE organization_id = %(organization)s AND status = 'blocked'
    ORDER BY created_at, id LIMIT %(limit)s
) t
LEFT JOIN coordination_run r ON r.task_id = t.id AND r.ended_at IS NULL
LEFT JOIN coordination_lease l ON l.id = r.lease_id
LEFT JOIN coordination_principal p ON p.id = r.principal_id
ORDER BY t.created_at, t.id"""

HOLDS = f"""
SELECT r.task_id, p.name AS agent, l.epoch, {CERTAINTY} AS certainty
FROM coordination_run r JOIN coordination_lease l ON l.id = r.lease_id
JOIN coordination_principal p ON p.id = r.principal_id
WHERE r.task_id = ANY (%(tasks)s::uuid[]) AND r.ended_at IS NULL"""

ENDED = """
SELECT t.id AS task_id, t.title, t.status, t.finished_at, p.name AS agent, t.run_count, left(t.summary, 300) AS summary
FROM (
    SELECT * FROM coordination_task WHERE organization_id = %(organization)s AND finished_at IS NOT NULL
    ORDER BY finished_at DESC LIMIT %(limit)s
) t
LEFT JOIN LATERAL (
    SELECT principal_id FROM coordination_run WHERE task_id = t.id ORDER BY number DESC LIMIT 1) r ON true
LEFT JOIN coordination_principal p ON p.id = r.principal_id
ORDER BY t.finished_at DESC, t.id"""
