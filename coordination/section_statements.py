"""The SQL of documents and of the leases on their sections, where it differs from other leases."""

from .statements import logged

# Whoever acquires shares the document's row, and whoever deletes takes it FOR UPDATE. With FOR SHARE two that
# revive the same document would wait for each other.
KEEP_DOCUMENT = """
SELECT id FROM coordination_document
WHERE organization_id = %(organization)s AND slug = %(slug)s AND deleted_at IS NULL FOR KEY SHARE"""
MAKE_DOCUMENT = """
INSERT INTO coordination_document (organization_id, slug) VALUES (%(organization)s::uuid, %(slug)s)
ON CONFLICT (organization_id, slug) DO UPDATE SET deleted_at = NULL RETURNING id"""

_NAMED = "r.organization_id = %(organization)s AND r.resource_type = 'section' AND r.resource_id = %(name)s"
LOCK = f"SELECT r.id FROM coordination_resource r WHERE {_NAMED} FOR NO KEY UPDATE"
LIVE = f"""
SELECT l.id AS lease_id, l.expires_at, p.name AS holder
FROM coordination_resource r JOIN coordination_lease l ON l.resource_id = r.id AND l.ended_at IS NULL
JOIN coordination_principal p ON p.id = l.principal_id
WHERE {_NAMED} AND l.expires_at > clock_timestamp()"""


def _change(changes: str, more: str = "") -> str:
    """Change the live lease of a locked resource, if it is the caller's. No row: none is live."""
    return f"""WITH held AS MATERIALIZED (
    SELECT l.id, l.principal_id, l.expires_at FROM coordination_lease l
    WHERE l.resource_id = %(resource)s AND l.ended_at IS NULL FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT h.*, h.principal_id = %(principal)s::uuid AS mine, clock_timestamp() AS at FROM held h
), changed AS (
    UPDATE coordination_lease l SET {changes}
    FROM clock k WHERE l.id = k.id AND k.mine AND k.expires_at > k.at
    RETURNING l.id, l.epoch, l.renewed_at, l.expires_at
), {more}
SELECT k.mine, c.id AS lease_id, c.epoch, c.expires_at FROM clock k LEFT JOIN changed c ON c.id = k.id
WHERE k.expires_at > k.at"""


# A renewal sets the end anew and is no news to the document's readers.
RENEW = _change(
    """renewed_at = k.at, jeopardy_declared_at = NULL, answer = '', renewal_count = l.renewal_count + 1,
        ttl_seconds = %(ttl)s::int, expires_at = k.at + %(ttl)s::int * interval '1 s',
        purpose = coalesce(%(purpose)s::varchar, l.purpose)""",
    """kept AS (
    INSERT INTO coordination_renewal (lease_id, renewed_at, expires_at) SELECT c.id, c.renewed_at, c.expires_at FROM changed c
)""",
)
RELEASE = _change(
    "ended_at = k.at, end_reason = 'released'",
    logged(
        "event",
        """
    SELECT %(organization)s::uuid, 'section.edited', %(principal)s::uuid, NULL::uuid, NULL::uuid, c.id, d.id, c.epoch,
        jsonb_build_object('event', 'SECTION_LEASE_RELEASED', 'leaseId', c.id, 'sectionId', %(sid)s::text,
            'releasedBy', %(actor_name)s::text)
    FROM changed c JOIN coordination_document d ON d.organization_id = %(organization)s AND d.slug = %(slug)s""",
    ),
)
