"""Section leases: who says that they are editing which section of a document now.

They are a signal between agents and hold nobody up: no write is ever checked against them. A section is
the resource (`section`, `<slug>/<section id>`), so its epochs rise like those of any other; its document
appears on first use.
"""

import unicodedata
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any
from uuid import UUID

from titen.errors import Refused, invalid, not_found

from . import events, leasing, leasing_statements
from . import section_statements as sql
from .callers import Caller
from .database import Row, fetch, fetch_all
from .models import Document
from .models.fields import ClockNow
from .times import stamp

SHORTEST_SECONDS, LONGEST_SECONDS = 1, 300
SLUG_LENGTH, ID_LENGTH = 100, 255


@dataclass(frozen=True)
class Section:
    """A section of a document. Its id is opaque: equal ids are the same text, character by character."""

    slug: str
    sid: str

    @property
    def resource_id(self) -> str:
        """Its name as a resource; a slug has no slash, so two sections never share one."""
        return f"{self.slug}/{self.sid}"


class SectionLeased(Refused):
    """Somebody else's lease is live. `details` has `holder` (a name) and `expires_at`."""

    def __init__(self, holder: str, until: datetime, now: datetime) -> None:
        super().__init__(
            "CONFLICT",
            f"The section is leased by {holder} until {stamp(until)}. Wait until then, or ask the holder.",
            details={"holder": holder, "expires_at": stamp(until)},
            retry_after=max(ceil((until - now).total_seconds()), 1),
        )


class NoActiveLease(Refused):
    """Nobody's lease on the section is live."""

    def __init__(self) -> None:
        super().__init__("NOT_FOUND", "No lease on this section is live. Acquire one.")


def name_section(slug: str, sid: str) -> Section:
    """The section of these names. `VALIDATION_ERROR` for `slug` or `sid` that is empty, too long or unprintable."""
    check_slug(slug)
    _check_name("sid", sid, ID_LENGTH)
    return Section(slug, sid)


def check_slug(slug: str) -> str:
    """The same slug. `VALIDATION_ERROR` for one with a slash, or beyond 1 to 100 characters."""
    _check_name("slug", slug, SLUG_LENGTH)
    if "/" in slug:
        raise invalid("slug", "may not hold a slash.")
    return slug


def _check_name(field: str, text: str, longest: int) -> None:
    if not 1 <= len(text) <= longest:
        raise invalid(field, f"must be 1 to {longest} characters.")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise invalid(field, "may not hold control characters.")


def acquire(caller: Caller, section: Section, *, seconds: int, reason: str | None = None) -> Row:
    """Lease a section; `lease_id`, `expires_at`. The caller's own live lease stays and ends `seconds` from now.

    Raises `SectionLeased` while somebody else's is live.
    """
    document = _keep_document(caller.organization_id, section.slug)
    resources, _ = leasing.lock(caller, [(leasing.SECTION, section.resource_id)])
    own = fetch(
        sql.RENEW,
        {"resource": resources[0], "principal": caller.principal_id, "ttl": seconds, "purpose": reason},
    )
    if own is not None and own["mine"]:
        return own
    (row,) = fetch_all(
        leasing_statements.grant(section=True),
        {
            "organization": caller.organization_id,
            "principal": caller.principal_id,
            "holder": caller.name,
            "document": document,
            "resources": resources,
            "ttl": seconds,
            "purpose": reason or "",
        },
    )
    if row["busy_until"] is not None:
        raise SectionLeased(row["holder"], row["busy_until"], row["at"])
    return row


def read(organization_id: UUID, section: Section) -> Row:
    """The live lease: `lease_id`, `holder` (a name), `expires_at`. Raises `NoActiveLease`."""
    row = fetch(sql.LIVE, {"organization": organization_id, "name": section.resource_id})
    if row is None:
        raise NoActiveLease
    return row


def renew(caller: Caller, section: Section, *, seconds: int) -> Row:
    """Have one's own live lease end `seconds` from now, which may be earlier than before.

    `FORBIDDEN` for another's, `NoActiveLease` where none is live.
    """
    return _change(sql.RENEW, caller, section, ttl=seconds, purpose=None)


def release(caller: Caller, section: Section) -> Row:
    """End one's own live lease. Refuses like `renew`."""
    return _change(
        sql.RELEASE,
        caller,
        section,
        organization=caller.organization_id,
        actor_name=caller.name,
        slug=section.slug,
        sid=section.sid,
    )


def _change(statement: str, caller: Caller, section: Section, **more: Any) -> Row:
    # With the resource no new lease can appear, so what this answers is how the section stands.
    held = fetch(sql.LOCK, {"organization": caller.organization_id, "name": section.resource_id})
    row = held and fetch(statement, {"resource": held["id"], "principal": caller.principal_id, **more})
    if not row:
        raise NoActiveLease
    if not row["mine"]:
        raise Refused("FORBIDDEN", "Another principal holds this lease. Only its holder can change it.")
    return row


def _keep_document(organization_id: UUID, slug: str) -> UUID:
    """The document's id; nobody deletes it until this transaction ends. Makes it, or revives a deleted one."""
    params = {"organization": organization_id, "slug": slug}
    row = fetch(sql.KEEP_DOCUMENT, params) or fetch(sql.MAKE_DOCUMENT, params)
    assert row is not None
    kept: UUID = row["id"]
    return kept


def find_document(organization_id: UUID, slug: str) -> UUID:
    """The id of a document, which may be deleted. `NOT_FOUND` for an unknown one."""
    found = Document.objects.filter(organization_id=organization_id, slug=check_slug(slug))
    document: UUID | None = found.values_list("pk", flat=True).first()
    if document is None:
        raise not_found()
    return document


def delete_document(caller: Caller, slug: str) -> Document:
    """End a document's live leases and mark it deleted; its next use revives it, with its epochs and positions.

    `NOT_FOUND` for an unknown or deleted one.
    """
    # FOR UPDATE waits for those who are acquiring: their leases are seen below. Later ones wait for this end.
    document = (
        Document.objects.select_for_update()
        .filter(organization_id=caller.organization_id, slug=slug, deleted_at=None)
        .first()
    )
    if document is None:
        raise not_found()
    fetch_all(
        leasing_statements.REVOKE_ALL_OF_DOCUMENT,
        {
            "organization": caller.organization_id,
            "slug": slug,
            "actor": caller.principal_id,
            "actor_name": caller.name,
            "note": "The document was deleted.",
        },
    )
    Document.objects.filter(pk=document.pk).update(deleted_at=ClockNow())
    events.record(
        "document.deleted",
        organization_id=caller.organization_id,
        actor_id=caller.principal_id,
        subject_id=document.pk,
    )
    return document
