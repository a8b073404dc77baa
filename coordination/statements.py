"""The SQL of the hot verbs, put together from named parts.

Each verb is one statement, so one round trip and one commit. How the parts are ordered matters:
a lock is a CTE of its own, what must come after it selects from it, and the clock is read from the
last lock. A condition that guards a move reads only the locked row: after a lock wait PostgreSQL
reads that row anew, while all else in the statement is as old as its snapshot. The table's CHECKs are
judged on the old row with the new values before PostgreSQL notices that the row has moved on: so an
UPDATE of a row that it may have waited for sets every column that a CHECK ties to what it changes, even
to the value that the guard has made sure of.
"""

from functools import cache

from django.conf import settings

# Of a lease `l`, at the moment that replaces `{at}`.
JEOPARDY = f"""(l.jeopardy_declared_at IS NOT NULL
        OR l.renewed_at + l.ttl_seconds * interval '1 s' * {settings.JEOPARDY_SHARE} <= {{at}})"""

# Who calls. No row: the key is unknown, ended, without the scope, or its principal is disabled.
CALLER_BY_KEY = """
caller AS MATERIALIZED (
    SELECT p.id AS principal_id, p.organization_id, p.name, p.max_concurrent_runs, o.lease_ttl_seconds,
        coalesce(%(capabilities)s::varchar[], p.capabilities) AS capabilities,
        coalesce(%(capabilities)s::varchar[] <@ p.capabilities, true) AS within
    FROM coordination_apikey k
    JOIN coordination_principal p ON p.id = k.principal_id
    JOIN coordination_organization o ON o.id = p.organization_id
    WHERE k.digest = %(digest)s AND k.revoked_at IS NULL AND k.scopes && %(scopes)s::varchar[]
        AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()) AND p.disabled_at IS NULL
)"""

CALLER_BY_PRINCIPAL = """
caller AS MATERIALIZED (
    SELECT p.id AS principal_id, p.organization_id, p.name, p.max_concurrent_runs, o.lease_ttl_seconds,
        coalesce(%(capabilities)s::varchar[], p.capabilities) AS capabilities,
        coalesce(%(capabilities)s::varchar[] <@ p.capabilities, true) AS within
    FROM coordination_principal p JOIN coordination_organization o ON o.id = p.organization_id
    WHERE p.id = %(principal)s AND p.disabled_at IS NULL
)"""


def steady(caller: str) -> str:
    """The same, for what grants a lease: nobody disables this principal until it has committed.

    Whoever disables takes the row FOR UPDATE: it sees the runs of all claims before it, and claims
    after it find no caller. The lease's foreign key takes this lock anyway.
    """
    return caller.removesuffix(")") + "    FOR KEY SHARE OF p\n)"


def logged(name: str, rows: str) -> str:
    """Two CTEs that write events and queue them for numbering.

    `rows` selects (organization_id, kind, actor_id, task_id, run_id, lease_id, subject_id, epoch, data).
    """
    return f"""
{name} AS (
    INSERT INTO coordination_event
        (organization_id, kind, actor_id, task_id, run_id, lease_id, subject_id, epoch, data)
    {rows}
    RETURNING seq, organization_id, id, created_at
), {name}_queued AS (
    INSERT INTO coordination_event_unnumbered (seq, organization_id, event_id, event_created_at)
    SELECT seq, organization_id, id, created_at FROM {name}
)"""


# A task that `caller` may claim now, as far as times, reservation and dependencies go.
READY = """t.status = 'todo' AND t.open_dependencies = 0
    AND (t.not_before IS NULL OR t.not_before <= b.at)
    AND (t.backoff_until IS NULL OR t.backoff_until <= b.at)
    AND (t.reserved_for_id IS NULL OR t.reserved_for_id = c.principal_id OR t.reserved_until <= b.at)
    AND (t.avoided_id IS DISTINCT FROM c.principal_id OR t.avoided_until <= b.at)"""

# The same, for a row found by its id: written so that the planner cannot take the partial index of the
# queue for that look-up, which it does while its statistics say that the queue is short.
READY_BY_ID = READY.replace("t.status = 'todo'", "coalesce(t.status, '') = 'todo'")

# Admission fits in one statement only where nothing is limited; else `claims` counts under a lock.
UNLIMITED = """c.max_concurrent_runs IS NULL AND NOT EXISTS (
        SELECT FROM coordination_capabilitylimit x
        WHERE x.organization_id = c.organization_id AND x.capability = ANY (c.capabilities))"""

ADMITTED = """(c.max_concurrent_runs IS NULL OR c.max_concurrent_runs > (
        SELECT count(*) FROM coordination_run r
        WHERE r.organization_id = c.organization_id AND r.principal_id = c.principal_id AND r.ended_at IS NULL))"""

FITTING = """f.organization_id = c.organization_id AND f.capabilities <@ c.capabilities"""

PROFILE_ADMITTED = """NOT EXISTS (
        SELECT FROM coordination_capabilitylimit x
        WHERE x.organization_id = f.organization_id AND x.capability = ANY (f.capabilities)
            AND x.max_concurrent_runs <= (
                SELECT count(*) FROM coordination_run r
                JOIN coordination_capabilityprofile g ON g.id = r.profile_id
                WHERE r.organization_id = f.organization_id AND r.ended_at IS NULL AND x.capability = ANY (g.capabilities)))"""


# How many heads of the queue a claim looks at before it gives up passing over locked rows. A literal: with
# LIMIT as a parameter PostgreSQL plans the statement anew each time.
DEPTH = "16"


def candidates(*, depth: str, admission: str) -> str:
    """The heads of the fitting profiles' queues, merged: highest priority, then oldest."""
    return f"""
        SELECT t.id FROM coordination_capabilityprofile f
        CROSS JOIN LATERAL (
            SELECT t.id, t.priority, t.created_at FROM coordination_task t
            WHERE t.organization_id = c.organization_id AND t.profile_id = f.id AND {READY}
            ORDER BY t.priority DESC, t.created_at, t.id LIMIT {depth}
        ) t
        WHERE {FITTING} AND {admission}
        ORDER BY t.priority DESC, t.created_at, t.id LIMIT {depth}"""


def claim_parts(*, by_id: bool = False, patient: bool = False, limited: bool = False, after: str = "") -> str:
    """The CTEs that claim a task for `caller`, ending in `claimed` (no row: nothing was).

    by_id: claim `%(task)s` and nothing else: lock it whatever its state, then judge. A condition beside
        the lock would be judged by the snapshot first, and miss a task that is just being released.
    patient: wait for the first candidate, and for no other: a lock that turned out useless is kept until
        the statement ends, and waiting for a second one in the order of the queue would deadlock with
        whoever locks tasks in the order of their ids.
    limited: judge admission; the caller holds the locks that keep the counts true.
    after: the name of a CTE that must have a row, for complete-and-claim in one statement.
    """
    admission = f"{ADMITTED} AND {PROFILE_ADMITTED}" if limited else UNLIMITED
    if by_id:
        named = """named AS MATERIALIZED (
    SELECT t.* FROM caller c JOIN coordination_task t ON t.organization_id = c.organization_id
    WHERE t.id = %(task)s FOR NO KEY UPDATE OF t
),"""
        source = f"""CROSS JOIN named t
        JOIN coordination_capabilityprofile f ON f.id = t.profile_id AND {FITTING}
        WHERE {READY} AND {admission} AND c.within"""
    else:
        named = ""
        depth = "1" if patient else DEPTH
        source = f"""CROSS JOIN LATERAL ({candidates(depth=depth, admission=admission)}) n
        JOIN coordination_task t ON t.id = n.id
        WHERE {READY_BY_ID} AND c.within
        ORDER BY t.priority DESC, t.created_at, t.id LIMIT 1
        FOR NO KEY UPDATE OF t {"" if patient else "SKIP LOCKED"}"""
    condition = f"WHERE EXISTS (SELECT FROM {after})" if after else ""
    if by_id:
        condition = "FROM named"
    return f"""
{named}
begun AS MATERIALIZED (SELECT clock_timestamp() AS at {condition}),
picked AS MATERIALIZED (
    SELECT t.id, t.resource_id, t.profile_id,
        coalesce(%(ttl)s::int, t.lease_ttl_seconds, c.lease_ttl_seconds) AS ttl_seconds,
        CASE t.last_run_end WHEN 'abandoned' THEN 'after_expiry' WHEN 'failed' THEN 'after_failure'
            ELSE 'claim' END AS because
    FROM caller c CROSS JOIN begun b {source}
), clock AS MATERIALIZED (SELECT p.*, clock_timestamp() AS at FROM picked p),
moved AS (
    UPDATE coordination_task t SET status = 'in_progress', open_blockers = 0, finished_at = NULL, run_count = t.run_count + 1,
        reserved_for_id = NULL, reserved_until = NULL, avoided_id = NULL, avoided_until = NULL, backoff_until = NULL
    FROM clock WHERE t.id = clock.id
    RETURNING t.*
), granted AS (
    UPDATE coordination_resource r SET epoch = r.epoch + 1,
        previous_lease_id = r.last_lease_id, last_lease_id = titen_uuid7()
    FROM clock WHERE r.id = clock.resource_id
    RETURNING r.id, r.epoch, r.last_lease_id AS lease_id, r.previous_lease_id
), lease AS (
    INSERT INTO coordination_lease (id, organization_id, resource_id, principal_id, epoch, ttl_seconds,
        granted_because, previous_lease_id, granted_at, renewed_at, expires_at)
    SELECT g.lease_id, c.organization_id, g.id, c.principal_id, g.epoch, k.ttl_seconds,
        k.because, g.previous_lease_id, k.at, k.at, k.at + k.ttl_seconds * interval '1 s'
    FROM granted g CROSS JOIN caller c CROSS JOIN clock k
    RETURNING id, epoch, ttl_seconds, expires_at, granted_because, granted_at
), claimed AS (
    INSERT INTO coordination_run (organization_id, task_id, profile_id, principal_id, lease_id, number, epoch, started_at)
    SELECT c.organization_id, m.id, m.profile_id, c.principal_id, l.id, m.run_count, l.epoch, l.granted_at
    FROM moved m CROSS JOIN lease l CROSS JOIN caller c
    RETURNING *
), {
        logged(
            "claim_event",
            '''
    SELECT r.organization_id, 'task.claimed', r.principal_id, r.task_id, r.id, r.lease_id, NULL::uuid, r.epoch,
        jsonb_build_object('status', 'in_progress', 'run', r.number, 'because', l.granted_because)
    FROM claimed r CROSS JOIN lease l''',
        )
    }"""


# What a claim answers with, beside the caller's own columns.
CLAIM_COLUMNS = """
    m.id AS task_id, m.title, m.description, m.priority, m.payload, m.secret_refs, m.max_attempts, m.attempt_count,
    m.created_at, m.not_before, m.run_count, m.last_error, f.capabilities AS required_capabilities,
    r.id AS run_id, r.number, r.status AS run_status, r.started_at,
    l.id AS lease_id, l.epoch, l.ttl_seconds, l.expires_at, l.granted_because, l.granted_at AS server_time,
    (m.run_count > 1
        OR EXISTS (SELECT FROM coordination_taskdependency d WHERE d.task_id = m.id)
        OR EXISTS (SELECT FROM coordination_comment o WHERE o.task_id = m.id)) AS has_context"""

CLAIM_FROM = """claimed r CROSS JOIN moved m CROSS JOIN lease l
    JOIN coordination_capabilityprofile f ON f.id = m.profile_id"""


@cache
def claim(*, caller: str, by_id: bool = False, patient: bool = False, limited: bool = False) -> str:
    """One claim. Always answers one row for a good caller: its columns are null when nothing was claimed.

    A patient one says in `missed` that there was a candidate, and it is gone.
    """
    parts = claim_parts(by_id=by_id, patient=patient, limited=limited)
    missed = "false"
    if patient and not by_id:
        admission = f"{ADMITTED} AND {PROFILE_ADMITTED}" if limited else UNLIMITED
        head = candidates(depth="1", admission=admission)
        missed = f"x.run_id IS NULL AND EXISTS (SELECT FROM begun b CROSS JOIN LATERAL ({head}) n)"
    return f"""WITH {steady(caller)}, {parts}
    SELECT c.principal_id AS caller_id, c.organization_id, c.within, ({UNLIMITED}) AS unlimited,
        {missed} AS missed, x.*
    FROM caller c LEFT JOIN (SELECT {CLAIM_COLUMNS} FROM {CLAIM_FROM}) x ON true"""


@cache
def heartbeat(*, caller: str) -> str:
    """Renew a lease and note progress: lease and run only, so that nothing else waits for it."""
    return f"""WITH {caller}, mine AS MATERIALIZED (
    SELECT r.id, r.lease_id, r.task_id FROM coordination_run r JOIN caller c
        ON r.organization_id = c.organization_id AND r.principal_id = c.principal_id
    WHERE r.id = %(run)s
), held AS MATERIALIZED (
    SELECT l.id, l.ended_at, l.expires_at, l.epoch, l.renewed_at FROM coordination_lease l
    WHERE l.id = (SELECT lease_id FROM mine) FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT held.*, clock_timestamp() AS at FROM held
), renewed AS (
    UPDATE coordination_lease l SET renewed_at = k.at, jeopardy_declared_at = NULL, answer = '',
        renewal_count = l.renewal_count + 1, ttl_seconds = coalesce(%(ttl)s::int, l.ttl_seconds),
        expires_at = greatest(l.expires_at, k.at + coalesce(%(ttl)s::int, l.ttl_seconds) * interval '1 s')
    FROM clock k WHERE l.id = k.id AND k.ended_at IS NULL AND k.expires_at > k.at AND k.epoch = %(epoch)s
    RETURNING l.id, l.epoch, l.ttl_seconds, l.expires_at, l.granted_because, k.at, k.renewed_at AS previous_at
), beat AS (
    UPDATE coordination_run r SET progress = coalesce(%(progress)s::smallint, r.progress),
        status_line = coalesce(%(status)s::varchar, r.status_line)
    FROM renewed WHERE r.id = %(run)s
    RETURNING r.id, r.task_id, r.status, r.progress, r.status_line, r.has_asked, r.pause_requested_at
), kept AS (
    INSERT INTO coordination_renewal (lease_id, renewed_at, expires_at, progress)
    SELECT n.id, n.at, n.expires_at, b.progress FROM renewed n CROSS JOIN beat b
)
SELECT c.principal_id AS caller_id, c.organization_id,
    n.id AS lease_id, n.epoch, n.ttl_seconds, n.expires_at, n.granted_because, n.at AS server_time, n.previous_at,
    b.id AS run_id, b.task_id, b.status AS run_status, b.progress, b.status_line, b.has_asked, b.pause_requested_at
FROM renewed n CROSS JOIN beat b CROSS JOIN caller c"""
