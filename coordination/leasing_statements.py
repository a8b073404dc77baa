"""The SQL of leases on resources other than tasks: acquire, renew, release, revoke, run out.

Whoever grants holds the resource's row first, so a lease cannot appear between the look and the
grant. Whoever only renews or ends takes the lease's row alone.
"""

from functools import cache

from .statements import logged

SWEEP_BATCH = 2000

# The caller's row is shared first, as a claim does: nobody disables a principal that is just being granted.
# Locks all of them or, while one is still to be made, none: who makes a row waits for others that make it,
# and must not hold what they want next.
LOCK = """
WITH me AS MATERIALIZED (
    SELECT p.id, o.lease_ttl_seconds FROM coordination_principal p
    JOIN coordination_organization o ON o.id = p.organization_id
    WHERE p.id = %(principal)s AND p.disabled_at IS NULL FOR KEY SHARE OF p
), known AS MATERIALIZED (
    SELECT r.id FROM unnest(%(types)s::varchar[], %(ids)s::varchar[]) w (resource_type, resource_id)
    JOIN coordination_resource r ON r.organization_id = %(organization)s
        AND r.resource_type = w.resource_type AND r.resource_id = w.resource_id
)
SELECT r.id, m.lease_ttl_seconds
FROM me m CROSS JOIN known k JOIN coordination_resource r ON r.id = k.id
WHERE (SELECT count(*) FROM known) = cardinality(%(types)s::varchar[])
ORDER BY r.id FOR NO KEY UPDATE OF r"""

# In the order of their names, so that two who make the same ones do not wait for each other.
MAKE = """
INSERT INTO coordination_resource (organization_id, resource_type, resource_id, epoch)
SELECT %(organization)s::uuid, w.resource_type, w.resource_id, 0
FROM unnest(%(types)s::varchar[], %(ids)s::varchar[]) w (resource_type, resource_id)
ORDER BY w.resource_type, w.resource_id
ON CONFLICT DO NOTHING RETURNING id"""

RESOURCE = "jsonb_build_object('resource_type', {r}.resource_type, 'resource_id', {r}.resource_id)"
STAMP = """to_char({at} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""
# The id of a section: what follows the slug and its slash.
SECTION = "substr({r}.resource_id, strpos({r}.resource_id, '/') + 1)"

# An event of a lease: the columns that `logged` takes. `v` has kind, actor_id, lease_id, epoch, data.
_EVENT = """SELECT {organization}, v.kind, v.actor_id, NULL::uuid, NULL::uuid, v.lease_id, v.subject_id, v.epoch, v.data"""


def _acquired_event(*, section: bool) -> str:
    if section:
        return f"""SELECT g.id, 2, 'section.edited', %(principal)s::uuid, l.id, l.epoch, %(document)s::uuid,
        jsonb_build_object('event', 'SECTION_LEASED', 'leaseId', l.id, 'sectionId', {SECTION.format(r="g")},
            'holder', %(holder)s::text, 'expiresAt', {STAMP.format(at="l.expires_at")})
    FROM granted g JOIN lease l ON l.resource_id = g.id"""
    return f"""SELECT g.id, 2, 'lease.acquired', %(principal)s::uuid, l.id, l.epoch, NULL::uuid,
        {RESOURCE.format(r="g")} || jsonb_build_object('because', l.granted_because)
    FROM granted g JOIN lease l ON l.resource_id = g.id"""


def _expired_events(*, section: bool) -> str:
    if section:
        return f"""SELECT g.id, 1, 'section.edited', NULL::uuid, e.id, e.epoch, %(document)s::uuid,
        jsonb_build_object('event', 'SECTION_LEASE_EXPIRED', 'leaseId', e.id,
            'sectionId', {SECTION.format(r="g")}, 'holder', p.name)
    FROM granted g JOIN ended e ON e.resource_id = g.id JOIN coordination_principal p ON p.id = e.principal_id
    WHERE e.end_reason = 'expired'"""
    return f"""SELECT g.id, 1, 'lease.expired', NULL::uuid, e.id, e.epoch, NULL::uuid, {RESOURCE.format(r="g")}
    FROM granted g JOIN ended e ON e.resource_id = g.id WHERE e.end_reason = 'expired'"""


@cache
def grant(*, section: bool) -> str:
    """Grant all of `%(resources)s`, which the caller has locked, or none.

    Rows: the leases that were granted; or, with `busy_until` and `holder`, what somebody else holds.
    What has run out is written down first, and its event stands before the new holder's.
    """
    return f"""WITH current AS MATERIALIZED (
    SELECT l.id, l.resource_id, l.principal_id, l.epoch, l.expires_at FROM coordination_lease l
    WHERE l.resource_id = ANY (%(resources)s::uuid[]) AND l.ended_at IS NULL
    ORDER BY l.id FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at, count(*) FROM current
), busy AS MATERIALIZED (
    SELECT c.resource_id, c.expires_at, c.principal_id FROM current c CROSS JOIN clock k
    WHERE c.principal_id <> %(principal)s AND c.expires_at > k.at
), free AS MATERIALIZED (
    SELECT k.at FROM clock k WHERE NOT EXISTS (SELECT FROM busy)
), ended AS (
    UPDATE coordination_lease l SET ended_at = least(c.expires_at, f.at),
        end_reason = CASE WHEN c.expires_at <= f.at THEN 'expired' ELSE 'superseded' END
    FROM current c CROSS JOIN free f WHERE l.id = c.id
    RETURNING l.id, l.resource_id, l.principal_id, l.epoch, l.end_reason
), granted AS (
    UPDATE coordination_resource r SET epoch = r.epoch + 1,
        previous_lease_id = r.last_lease_id, last_lease_id = titen_uuid7()
    FROM free f WHERE r.id = ANY (%(resources)s::uuid[])
    RETURNING r.id, r.resource_type, r.resource_id, r.epoch, r.last_lease_id AS lease_id, r.previous_lease_id, f.at
), lease AS (
    INSERT INTO coordination_lease (id, organization_id, resource_id, principal_id, purpose, epoch, ttl_seconds,
        granted_because, previous_lease_id, granted_at, renewed_at, expires_at)
    SELECT g.lease_id, %(organization)s::uuid, g.id, %(principal)s::uuid, %(purpose)s, g.epoch, %(ttl)s::int,
        CASE coalesce(e.end_reason, p.end_reason, CASE WHEN p.expires_at <= g.at THEN 'expired' END)
            WHEN 'superseded' THEN 'reacquire' WHEN 'expired' THEN 'after_expiry' ELSE 'claim' END,
        g.previous_lease_id, g.at, g.at, g.at + %(ttl)s::int * interval '1 s'
    FROM granted g LEFT JOIN ended e ON e.resource_id = g.id LEFT JOIN coordination_lease p ON p.id = g.previous_lease_id
    RETURNING id, resource_id, epoch, ttl_seconds, expires_at, granted_at, granted_because
), {
        logged(
            "event",
            f'''
    {_EVENT.format(organization="%(organization)s::uuid")} FROM (
        {_expired_events(section=section)}
        UNION ALL {_acquired_event(section=section)}
    ) v (resource, n, kind, actor_id, lease_id, epoch, subject_id, data) ORDER BY v.resource, v.n''',
        )
    }
SELECT g.resource_type, g.resource_id, l.id AS lease_id, l.epoch, l.ttl_seconds, l.expires_at, l.granted_at,
    l.granted_because, NULL::timestamptz AS busy_until, NULL::text AS holder, l.granted_at AS at
FROM lease l JOIN granted g ON g.id = l.resource_id
UNION ALL
SELECT r.resource_type, r.resource_id, NULL, NULL, NULL, NULL, NULL, NULL, b.expires_at, p.name, k.at
FROM busy b CROSS JOIN clock k JOIN coordination_resource r ON r.id = b.resource_id
JOIN coordination_principal p ON p.id = b.principal_id
ORDER BY resource_type, resource_id"""


# A holder's own live lease, found by its id (and not a task's or a section's), with the moment after the lock.
_MINE = """mine AS MATERIALIZED (
    SELECT l.id, l.ended_at, l.expires_at, l.epoch, r.resource_type, r.resource_id
    FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id
    WHERE l.id = %(lease)s AND l.organization_id = %(organization)s AND l.principal_id = %(principal)s
        AND r.resource_type NOT IN ('task', 'section')
    FOR NO KEY UPDATE OF l
), clock AS MATERIALIZED (
    SELECT m.*, clock_timestamp() AS at FROM mine m
)"""
_LIVE = "l.id = k.id AND k.ended_at IS NULL AND k.expires_at > k.at"
_ANSWER = "l.id, l.id AS lease_id, l.epoch, l.ttl_seconds, l.expires_at, l.granted_at, l.granted_because"


def _mine(changes: str, kind: str, more: str = "") -> str:
    event = logged(
        "event",
        f"""
    {_EVENT.format(organization="%(organization)s::uuid")} FROM (
        SELECT '{kind}', %(principal)s::uuid, c.id, c.epoch, NULL::uuid, {RESOURCE.format(r="c")} FROM changed c
    ) v (kind, actor_id, lease_id, epoch, subject_id, data)""",
    )
    return f"""WITH {_MINE}, changed AS (
    UPDATE coordination_lease l SET {changes}
    FROM clock k WHERE {_LIVE}
    RETURNING {_ANSWER}, k.resource_type, k.resource_id, k.at, l.ended_at
), {more}{event}
SELECT * FROM changed"""


RENEW = _mine(
    """renewed_at = k.at, jeopardy_declared_at = NULL, answer = '', renewal_count = l.renewal_count + 1,
        ttl_seconds = coalesce(%(ttl)s::int, l.ttl_seconds),
        expires_at = greatest(l.expires_at, k.at + coalesce(%(ttl)s::int, l.ttl_seconds) * interval '1 s')""",
    "lease.renewed",
    more="""kept AS (
    INSERT INTO coordination_renewal (lease_id, renewed_at, expires_at) SELECT c.id, c.at, c.expires_at FROM changed c
), """,
)
RELEASE = _mine("ended_at = k.at, end_reason = 'released'", "lease.released")
JEOPARDY = _mine("jeopardy_declared_at = coalesce(l.jeopardy_declared_at, k.at)", "lease.jeopardy_declared")

# How a lease of the caller's stands, for who came too late.
OVER = """
SELECT coalesce(l.end_reason, 'expired') AS reason
FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id
WHERE l.id = %(lease)s AND l.organization_id = %(organization)s AND l.principal_id = %(principal)s
    AND r.resource_type NOT IN ('task', 'section')"""


def _ended(due: str, *, reason: str, ended_at: str, note: str, actor: str) -> str:
    """End the leases of `due` (id, at): with `lease.<reason>`, or with what a document's log says of it."""
    section_event = "SECTION_LEASE_EXPIRED" if reason == "expired" else "SECTION_LEASE_RELEASED"
    who = (
        "jsonb_build_object('holder', p.name)"
        if reason == "expired"
        else f"jsonb_build_object('releasedBy', %(actor_name)s::text, 'code', '{reason}')"
    )
    event = logged(
        "event",
        f"""
    {_EVENT.format(organization="e.organization_id")}
    FROM ended e JOIN coordination_resource r ON r.id = e.resource_id
    JOIN coordination_principal p ON p.id = e.principal_id
    LEFT JOIN coordination_document d ON r.resource_type = 'section' AND d.organization_id = r.organization_id
        AND d.slug = split_part(r.resource_id, '/', 1)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN d.id IS NULL THEN 'lease.{reason}' ELSE 'section.edited' END, {actor}, e.id, e.epoch, d.id,
            CASE WHEN d.id IS NULL THEN {RESOURCE.format(r="r")} ELSE jsonb_build_object('event', '{section_event}',
                'leaseId', e.id, 'sectionId', {SECTION.format(r="r")}) || {who} END
    ) v (kind, actor_id, lease_id, epoch, subject_id, data) ORDER BY e.id""",
    )
    return f"""WITH due AS MATERIALIZED ({due}), ended AS (
    UPDATE coordination_lease l SET ended_at = {ended_at}, end_reason = '{reason}', end_note = {note}
    FROM due d WHERE l.id = d.id AND l.ended_at IS NULL
    RETURNING l.id, l.organization_id, l.resource_id, l.principal_id, l.epoch, l.ended_at
), {event}
SELECT id, ended_at FROM ended"""


# By the index of the live leases, which has no history in it. It waits for nobody, so its order is no matter.
SWEEP = _ended(
    f"""
    SELECT l.id FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id
    WHERE l.ended_at IS NULL AND l.expires_at <= clock_timestamp() AND r.resource_type <> 'task'
    ORDER BY l.resource_id LIMIT {SWEEP_BATCH} FOR NO KEY UPDATE OF l SKIP LOCKED""",
    reason="expired",
    ended_at="l.expires_at",
    note="''",
    actor="NULL::uuid",
)

_LIVE_LEASES = """
    WITH held AS MATERIALIZED (
        SELECT l.id, l.expires_at FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id
        WHERE {which} AND l.ended_at IS NULL AND r.resource_type <> 'task'
        ORDER BY l.id FOR NO KEY UPDATE OF l
    ), moment AS MATERIALIZED (
        SELECT clock_timestamp() AS at, count(*) FROM held
    )
    SELECT held.id, moment.at FROM held CROSS JOIN moment WHERE held.expires_at > moment.at"""
REVOKE = _ended(
    _LIVE_LEASES.format(which="l.id = %(lease)s"),
    reason="revoked",
    ended_at="d.at",
    note="%(note)s",
    actor="%(actor)s::uuid",
)
REVOKE_ALL_OF = _ended(
    _LIVE_LEASES.format(which="l.principal_id = %(principal)s AND l.organization_id = %(organization)s"),
    reason="revoked",
    ended_at="d.at",
    note="%(note)s",
    actor="%(actor)s::uuid",
)
REVOKE_ALL_OF_DOCUMENT = _ended(
    _LIVE_LEASES.format(
        which="""r.organization_id = %(organization)s AND r.resource_type = 'section'
            AND split_part(r.resource_id, '/', 1) = %(slug)s"""
    ),
    reason="revoked",
    ended_at="d.at",
    note="%(note)s",
    actor="%(actor)s::uuid",
)
