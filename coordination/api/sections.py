"""`/api/v1/documents/:slug/sections/:sid/lease`: section leases, in shapes and errors of their own.

An `Idempotency-Key` has no say here: a holder that repeats its POST has the same lease.
"""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from coordination import sections
from coordination.database import Row
from coordination.sections import NoActiveLease, Section, SectionLeased
from coordination.times import stamp
from titen.api import plain
from titen.api.doors import transact
from titen.api.fields import Integer, StrictSerializer, Text
from titen.errors import Refused, invalid

from . import bodies


def duration() -> Integer:
    """Whole seconds; out of range is refused, never clamped."""
    return Integer(min_value=sections.SHORTEST_SECONDS, max_value=sections.LONGEST_SECONDS)


class SectionLeaseBody(StrictSerializer):
    """`POST …/lease`."""

    leaseDurationSeconds = duration()
    reason = Text(required=False, allow_blank=True, max_length=400)


class SectionRenewBody(StrictSerializer):
    """`PATCH …/lease`."""

    leaseDurationSeconds = duration()


def lease_json(row: Row, holder: str) -> dict[str, Any]:
    """A live lease, as its holder and everybody else see it."""
    return {"leaseId": str(row["lease_id"]), "holder": holder, "expiresAt": stamp(row["expires_at"])}


def answer_exception(problem: Exception, context: dict[str, Any]) -> Response:
    """The two answers that clients of this door decide by say no more than that."""
    response = plain.answer_exception(problem, context)
    match problem:
        case NoActiveLease():
            response.data = {"error": "NO_ACTIVE_LEASE"}
        case SectionLeased(details=known):
            response.data = {
                "error": "SECTION_LEASED",
                "holder": known["holder"],
                "expiresAt": known["expires_at"],
            }
        case Refused(code="CURSOR_TOO_OLD", details=known):
            response.data.update(known)
    return response


class DocumentView(plain.PlainView):
    """What both routes share."""

    def get_exception_handler(self) -> Any:
        """Errors as clients of this door know them."""
        return answer_exception

    def check_text(self, request: Request) -> None:
        """Refuse bytes that are no text, which would look like another name's text."""
        path: str = request._request.META.get("titen.path", "")
        try:
            path.encode("latin-1").decode()
        except UnicodeDecodeError:
            raise invalid("path", "is not UTF-8.") from None

    def check_path(self, request: Request) -> None:
        """Refuse such bytes, and any query."""
        self.check_text(request)
        self.nothing_else(request)


class DocumentDetail(DocumentView):
    """A document."""

    scopes = {"DELETE": "leases:admin"}

    def delete(self, request: Request, slug: str) -> Response:
        """End its leases and forget it until its next use."""
        self.check_path(request)
        self.body(request, bodies.NoBody)
        caller = self.caller(request)
        transact(lambda: sections.delete_document(caller, sections.check_slug(slug)))
        return Response({"deleted": True})


class SectionLease(DocumentView):
    """The lease of a section."""

    grants = True
    scopes = {
        "GET": "leases:read",
        "POST": "leases:write",
        "PATCH": "leases:write",
        "DELETE": "leases:write",
    }

    def section(self, request: Request, slug: str, sid: str) -> Section:
        """The section that the path names."""
        self.check_path(request)
        return sections.name_section(slug, sid)

    def get(self, request: Request, slug: str, sid: str) -> Response:
        """The live lease."""
        section = self.section(request, slug, sid)
        row = sections.read(self.caller(request).organization_id, section)
        return Response(lease_json(row, row["holder"]))

    def post(self, request: Request, slug: str, sid: str) -> Response:
        """Acquire it; one's own live lease is kept and renewed."""
        section, caller = self.section(request, slug, sid), self.caller(request)
        body = self.body(request, SectionLeaseBody)
        row = transact(
            lambda: sections.acquire(
                caller, section, seconds=body["leaseDurationSeconds"], reason=body.get("reason")
            )
        )
        return Response(lease_json(row, caller.name))

    def patch(self, request: Request, slug: str, sid: str) -> Response:
        """Renew one's own."""
        section, caller = self.section(request, slug, sid), self.caller(request)
        body = self.body(request, SectionRenewBody)
        row = transact(lambda: sections.renew(caller, section, seconds=body["leaseDurationSeconds"]))
        return Response(lease_json(row, caller.name))

    def delete(self, request: Request, slug: str, sid: str) -> Response:
        """Release one's own."""
        section, caller = self.section(request, slug, sid), self.caller(request)
        self.body(request, bodies.NoBody)
        transact(lambda: sections.release(caller, section))
        return Response({"released": True})
