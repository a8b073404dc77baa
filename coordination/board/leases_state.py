"""Reading the leases of an organization on anything but tasks, whose leases stand on the board."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from coordination.database import Row, fetch_all
from coordination.models import LeaseEnd, Organization
from titen.api.ids import public_id
from titen.errors import not_found

from .rows import PAGE, Section
from .statements import CERTAINTY

SHOWN = PAGE
ENDED_SHOWN = 20
CAP = 10_000

_LIVE = "l.ended_at IS NULL AND r.organization_id = %(organization)s AND r.resource_type <> 'task'"

COUNT = f"""SELECT count(*) AS live FROM (
    SELECT FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id WHERE {_LIVE} LIMIT {CAP}) x"""

LIVE = f"""SELECT l.id AS lease_id, r.resource_type, r.resource_id, p.name AS holder, l.purpose, l.epoch, l.ttl_seconds,
    l.granted_because AS because, l.granted_at, l.renewed_at, l.renewal_count AS renewals, l.expires_at,
    l.jeopardy_declared_at AS declared_at, {CERTAINTY} AS certainty
FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id
JOIN coordination_principal p ON p.id = l.principal_id
WHERE {_LIVE} ORDER BY l.granted_at, l.id LIMIT {SHOWN} OFFSET %(before)s"""

# Who revoked it stands in its last event, which has no task: that is how the index on leases' events is found.
_ENDED = """SELECT l.id AS lease_id, r.resource_type, r.resource_id, p.name AS holder, l.purpose, l.epoch,
    l.end_reason AS reason, l.end_note AS note, l.ended_at, coalesce(b.name, '') AS ended_by, b.id AS ended_by_id
FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id
JOIN coordination_principal p ON p.id = l.principal_id
LEFT JOIN LATERAL (
    SELECT e.actor_id FROM coordination_event e
    WHERE e.lease_id = l.id AND e.task_id IS NULL AND l.end_reason = 'revoked' ORDER BY e.seq DESC LIMIT 1
) e ON true
LEFT JOIN coordination_principal b ON b.id = e.actor_id"""
ENDED = f"""{_ENDED}
WHERE l.organization_id = %(organization)s AND r.resource_type <> 'task'
    AND l.end_reason IN ('released', 'expired', 'revoked', 'superseded')
ORDER BY l.ended_at DESC, l.id LIMIT {ENDED_SHOWN}"""
ONE_ENDED = f"{_ENDED} WHERE l.id = %(lease)s AND l.ended_at IS NOT NULL"


@dataclass(frozen=True)
class LeaseRow:
    """One lease that nobody has ended. `declared_at`: since when its holder says that it is in jeopardy."""

    lease_id: str
    resource_type: str
    resource_id: str
    holder: str
    purpose: str
    epoch: int
    ttl_seconds: int
    because: str
    granted_at: datetime
    renewed_at: datetime
    renewals: int
    expires_at: datetime
    declared_at: datetime | None
    certainty: str


@dataclass(frozen=True)
class EndedLease:
    """One lease that is over; `ended_by` took it from its holder, with a `note`."""

    lease_id: str
    resource_type: str
    resource_id: str
    holder: str
    purpose: str
    epoch: int
    reason: str
    note: str
    ended_at: datetime
    ended_by: str


@dataclass(frozen=True)
class LeasesState:
    """One organization's page of leases."""

    name: str
    slug: str
    live: Section[LeaseRow]
    ended: tuple[EndedLease, ...]


def read(organization_id: UUID, page: int = 1) -> LeasesState:
    """The leases as they stand now, with a page of the live ones, judged by the database's clock.

    `NOT_FOUND` for an unknown organization.
    """
    organization = Organization.objects.filter(pk=organization_id).first()
    if organization is None:
        raise not_found()
    params = {"organization": organization_id, "before": SHOWN * (page - 1)}
    return LeasesState(
        name=organization.name,
        slug=organization.slug,
        live=_live(params, fetch_all(COUNT, params)[0]["live"]),
        ended=tuple(_ended(row) for row in fetch_all(ENDED, params)),
    )


def refresh(organization_id: UUID, state: LeasesState) -> LeasesState:
    """The same page with its live leases read anew, in one query: jeopardy comes with time alone."""
    live = _live({"organization": organization_id, "before": 0}, 0)
    if len(live.rows) == SHOWN:
        live = replace(live, total=max(SHOWN, state.live.total))
    return replace(state, live=live)


def _live(params: dict[str, Any], total: int) -> Section[LeaseRow]:
    rows = [
        LeaseRow(**{**row, "lease_id": public_id("lease", row["lease_id"])})
        for row in fetch_all(LIVE, params)
    ]
    return Section(tuple(rows), max(total, len(rows)), params["before"])


def _ended(row: Row) -> EndedLease:
    shown = {name: value for name, value in row.items() if name != "ended_by_id"}
    return EndedLease(**{**shown, "lease_id": public_id("lease", row["lease_id"])})


def how_it_ended(lease_id: UUID, reader_id: UUID) -> str:
    """A sentence for a person who came too late: what ended the lease, who did it, and when."""
    rows = fetch_all(ONE_ENDED, {"lease": lease_id})
    if not rows:
        return "It has run out."
    row = rows[0]
    ended = f"{row['ended_at'].astimezone(UTC):%H:%M:%S} UTC"
    match row["reason"]:
        case LeaseEnd.REVOKED:
            who = "You" if row["ended_by_id"] == reader_id else row["ended_by"] or "The server"
            return f"{who} released it by force at {ended}."
        case LeaseEnd.RELEASED:
            return f"{row['holder']} gave it back at {ended}."
        case LeaseEnd.SUPERSEDED:
            return f"{row['holder']} acquired it anew at {ended}: the row shows the lease that stands now."
        case _:
            return f"It ran out at {ended}."
