"""What the hub asks the database ten times a second while somebody waits: a statement for each sort of wish.

What makes a task ready is the claim's own condition, imported from where the claim has it, and judged
by the database's clock: so times that pass wake waiters as moves do.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from coordination.statements import ADMITTED, FITTING, PROFILE_ADMITTED, READY, candidates

from .waiters import ClaimWish, Found, LeaseWish, Looking

_ADMISSION = f"{ADMITTED} AND {PROFILE_ADMITTED}"

# One row for each (wish, ready task), and one with wish -1 that says in how many seconds the next open
# run's lease runs out, when that is asked for. A task that is over wakes who waits for it by its id.
_READY = f"""WITH callers AS MATERIALIZED (
    SELECT w.number, w.task, w.most, p.id AS principal_id, p.organization_id, p.max_concurrent_runs,
        coalesce(w.capabilities, p.capabilities) AS capabilities
    FROM jsonb_to_recordset(%(wishes)s::jsonb)
        AS w (number int, digest text, capabilities varchar[], task uuid, most int)
    JOIN coordination_apikey k ON k.digest = decode(w.digest, 'hex') AND k.revoked_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
    JOIN coordination_principal p ON p.id = k.principal_id AND p.disabled_at IS NULL
), b AS MATERIALIZED (SELECT clock_timestamp() AS at)
SELECT c.number, n.id, NULL::float AS seconds
FROM callers c CROSS JOIN b CROSS JOIN LATERAL ({candidates(depth="c.most", admission=_ADMISSION)}) n
WHERE c.task IS NULL
UNION ALL
SELECT c.number, t.id, NULL
FROM callers c CROSS JOIN b
CROSS JOIN LATERAL (SELECT * FROM coordination_task WHERE id = c.task OFFSET 0) t
JOIN coordination_capabilityprofile f ON f.id = t.profile_id AND {FITTING}
WHERE c.task IS NOT NULL AND t.organization_id = c.organization_id
    AND (t.status IN ('done', 'cancelled') OR ({READY} AND {_ADMISSION}))
UNION ALL
SELECT -1, NULL, extract(epoch FROM min(l.expires_at) - clock_timestamp())::float
FROM coordination_run r JOIN coordination_lease l ON l.id = r.lease_id
WHERE %(expiries)s AND r.ended_at IS NULL"""

_ENDED = """
SELECT id FROM approvals_approval
WHERE id = ANY (%(ids)s::uuid[]) AND (status <> 'pending' OR expires_at <= clock_timestamp())
UNION ALL
SELECT id FROM coordination_comment
WHERE id = ANY (%(ids)s::uuid[]) AND (answered_at IS NOT NULL OR withdrawn_at IS NOT NULL)"""

# The wishes whose resources nobody else holds now. What has run out is free, whoever wrote it down.
_FREE = """
SELECT w.number, p.organization_id
FROM jsonb_to_recordset(%(wishes)s::jsonb) AS w (number int, digest text, types varchar[], ids varchar[])
JOIN coordination_apikey k ON k.digest = decode(w.digest, 'hex') AND k.revoked_at IS NULL
    AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
JOIN coordination_principal p ON p.id = k.principal_id AND p.disabled_at IS NULL
WHERE NOT EXISTS (
    SELECT FROM unnest(w.types, w.ids) n (resource_type, resource_id)
    JOIN coordination_resource r ON r.organization_id = p.organization_id
        AND r.resource_type = n.resource_type AND r.resource_id = n.resource_id
    JOIN coordination_lease l ON l.resource_id = r.id AND l.ended_at IS NULL
    WHERE l.principal_id <> p.id AND l.expires_at > clock_timestamp())"""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw. `next_expiry`: seconds until a lease runs out, None if not asked or there is none."""

    found: Found
    next_expiry: float | None


async def look(connection: AsyncConnection[Any], looking: Looking, *, expiries: bool) -> Look:
    """Look once. Raises psycopg's errors."""
    claims, ends = looking.claims, looking.ends
    wishes = list(claims)
    ready: dict[ClaimWish, list[UUID]] = {}
    next_expiry = None
    ended: frozenset[UUID] = frozenset()
    free: dict[LeaseWish, UUID] = {}
    async with connection.cursor(row_factory=tuple_row) as cursor:
        if wishes:
            described = [
                {
                    "number": number,
                    "digest": wish.digest,
                    "capabilities": wish.capabilities,
                    "task": wish.task_id and str(wish.task_id),
                    "most": claims[wish],
                }
                for number, wish in enumerate(wishes)
            ]
            params = {"wishes": json.dumps(described), "expiries": expiries}
            await cursor.execute(_READY, params, prepare=True)
            for number, task, seconds in await cursor.fetchall():
                if number < 0:
                    next_expiry = seconds
                else:
                    ready.setdefault(wishes[number], []).append(task)
        if ends:
            await cursor.execute(_ENDED, {"ids": ends}, prepare=True)
            ended = frozenset(row[0] for row in await cursor.fetchall())
        if looking.leases:
            await cursor.execute(_FREE, {"wishes": json.dumps(_described(looking.leases))}, prepare=True)
            free = {looking.leases[number]: organization for number, organization in await cursor.fetchall()}
    return Look(Found(ready, ended, free), next_expiry)


def _described(leases: list[LeaseWish]) -> list[dict[str, Any]]:
    return [
        {
            "number": number,
            "digest": wish.digest,
            "types": [resource_type for resource_type, _ in wish.resources],
            "ids": [resource_id for _, resource_id in wish.resources],
        }
        for number, wish in enumerate(leases)
    ]
