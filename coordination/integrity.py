"""Checking the log: the chain of digests, its positions, and the places in documents.

It finds a line that was changed, dropped, swapped, added or renumbered. What holds together all the same is a
log that was cut off at its end, or written anew from some position on by somebody who may write the tables:
only a head that was kept elsewhere shows that.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from titen.api.ids import public_id

from .database import Row, fetch_all
from .events import OF_DOCUMENTS, digest

# Read in pages instead of by a cursor: no snapshot stays open, which would hold up the clean-up of hot tables.
# Each is planned anew: it is long, and a plan from when the tables were small would make it longer.
PAGE = 2000

type Report = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of a log; its digest stands for all before it. Printed as `slug:position:digest`."""

    slug: str
    position: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.slug}:{self.position}:{self.digest.hex()}"


def read_head(text: str) -> Head:
    """A head as it was printed. Raises ValueError."""
    slug, position, digits = text.rsplit(":", 2)
    if not slug or len(digits) != 64:
        raise ValueError
    return Head(slug, int(position), bytes.fromhex(digits))


_FLOOR = "SELECT position, digest FROM coordination_log_floor WHERE organization_id = %(organization)s"

_FLOORS_OF_DOCUMENTS = """
SELECT id, floor FROM coordination_document WHERE organization_id = %(organization)s AND floor > 0"""

_PAGE = f"""
SELECT p.position, p.digest, p.event_id, p.event_created_at, e.id AS found, e.organization_id, e.kind, e.actor_id,
    e.task_id, e.run_id, e.lease_id, e.subject_id, e.epoch, e.data,
    d.document_id, d.position AS place, d.event_created_at AS place_created_at
FROM coordination_event_position p
LEFT JOIN coordination_event e ON e.id = p.event_id AND e.created_at = p.event_created_at
LEFT JOIN coordination_document_position d ON d.event_id = p.event_id
WHERE p.organization_id = %(organization)s AND p.position > %(after)s
ORDER BY p.position LIMIT {PAGE}"""


@dataclass
class _Walk:
    """How far one log has been looked through."""

    position: int
    digest: bytes
    report: Report
    places: Counter[UUID] = field(default_factory=Counter)

    def take(self, row: Row) -> None:
        """Judge the next entry. The one after it is judged by what this one says, so that each fault counts once."""
        position, stored = row["position"], bytes(row["digest"])
        if position != self.position + 1:
            more = f", with all up to {position - 1}" if position > self.position + 2 else ""
            self.report(self.position + 1, f"it is missing{more}")
        elif row["found"] is None:
            self.report(position, "its event is missing, or has another time")
        elif digest(self.digest, position, row) != stored:
            self.report(position, "event, position and digest do not belong together")
        self.position, self.digest = position, stored
        if row["found"] is not None:
            self._check_place(row)

    def _check_place(self, row: Row) -> None:
        """Its place in the log of a document: the next one if its kind has a place there, else none."""
        wanted = None
        if row["kind"] in OF_DOCUMENTS:
            self.places[row["subject_id"]] += 1
            wanted = (row["subject_id"], self.places[row["subject_id"]], row["event_created_at"])
        if row["place"] is None and wanted is None:
            return
        if (row["document_id"], row["place"], row["place_created_at"]) != wanted:
            document = public_id("doc", row["document_id"] or row["subject_id"])
            self.report(row["position"], f"its place {row['place']} in {document} is wrong")
            if row["place"] is not None and row["document_id"] in self.places:
                self.places[row["document_id"]] = row["place"]


def verify(
    organization_id: UUID,
    slug: str,
    *,
    expected: Mapping[int, bytes],
    report: Report,
    looked_at: Callable[[int], None],
) -> Head:
    """Recompute an organization's chain from its floor on; its head.

    Each fault is reported with its position, each page with the position reached. `expected` are digests
    that were kept elsewhere, by position. Call it inside `retention.undisturbed()`.
    """
    key = {"organization": organization_id}
    floor = fetch_all(_FLOOR, key)
    walk = _Walk(
        floor[0]["position"] if floor else 0, bytes(floor[0]["digest"]) if floor else bytes(32), report
    )
    walk.places.update({row["id"]: row["floor"] for row in fetch_all(_FLOORS_OF_DOCUMENTS, key)})
    for position in expected:
        if position < walk.position:
            report(
                position,
                f"the log begins behind position {walk.position}, so what was kept cannot be compared",
            )
    _compare(walk, expected)
    while rows := fetch_all(_PAGE, {**key, "after": walk.position}, prepare=False):
        for row in rows:
            walk.take(row)
            _compare(walk, expected)
        looked_at(walk.position)
    for position in expected:
        if position > walk.position:
            report(position, f"the log ends at position {walk.position}, before the one that was kept")
    return Head(slug, walk.position, walk.digest)


def _compare(walk: _Walk, expected: Mapping[int, bytes]) -> None:
    if expected.get(walk.position, walk.digest) != walk.digest:
        walk.report(walk.position, "its digest is not the one that was kept: the log was rewritten before it")


# Lines that no reader of positions sees, but every page that shows a task's history would.
_STRAYS = """
SELECT e.organization_id, e.id FROM coordination_event e
WHERE (%(organization)s::uuid IS NULL OR e.organization_id = %(organization)s)
    AND NOT EXISTS (
        SELECT FROM coordination_event_position p WHERE p.event_id = e.id AND p.event_created_at = e.created_at)
    -- NOT IN, since that is hashed whatever the statistics say of a table that is filled and emptied all day.
    AND e.id NOT IN (SELECT u.event_id FROM coordination_event_unnumbered u)
LIMIT 100"""

_STRAY_PLACES = """
SELECT d.document_id, d.event_id FROM coordination_document_position d
WHERE NOT EXISTS (SELECT FROM coordination_event_position p WHERE p.event_id = d.event_id)
LIMIT 100"""


def strays(organization_id: UUID | None = None) -> list[str]:
    """The first of what was added beside all positions, of one organization or of all: a sentence for each."""
    found = [
        f"{public_id('evt', row['id'])} stands in the log without a position"
        for row in fetch_all(_STRAYS, {"organization": organization_id}, prepare=False)
    ]
    if organization_id is None:
        found += [
            f"{public_id('evt', row['event_id'])} has a place in {public_id('doc', row['document_id'])}"
            " but no position in the log"
            for row in fetch_all(_STRAY_PLACES, {})
        ]
    return found
