"""Approvals live: an organization's list, as it is filtered, and the page of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from approvals import pages_fragments, pages_many, pages_one
from approvals.models import Approval
from approvals.pages_many import ListState, Wanted
from approvals.pages_one import ApprovalState
from coordination.board.fragments import as_message
from coordination.models import Organization
from titen.api.ids import read_id
from titen.errors import Refused

from .channels import Fragments, Source, Subject
from .positions import is_due, newest


@dataclass(frozen=True, slots=True)
class ListSight:
    """The list as it was read, and the position of the newest event then."""

    page: ListState
    position: int


@dataclass(frozen=True, slots=True)
class ApprovalKey:
    """An approval's page, as a channel's key."""

    organization_id: UUID
    approval_id: UUID


@dataclass(frozen=True, slots=True)
class ApprovalSight:
    """An approval's page as it was read, and the position of the newest event then."""

    page: ApprovalState | None
    position: int


def find_list(query: Mapping[str, str]) -> Subject | None:
    """`?org=<slug>`, and the filters of the page."""
    pk = Organization.objects.filter(slug=query.get("org", "")).values_list("pk", flat=True).first()
    if pk is None:
        return None
    try:
        return Subject(pages_many.wanted(pk, query), pk)
    except Refused:
        return None


def read_list(key: Wanted, before: ListSight | None) -> ListSight:
    """The list as it stands. When no event came and nothing fell due, only the leases are read."""
    position = newest(key.organization_id)
    if before is None or before.position != position or is_due(before.page.due):
        return ListSight(pages_many.read(key), position)
    return ListSight(pages_many.refresh(before.page), position)


def render_list(sight: ListSight, role: str) -> Fragments:
    """The list's sections for one role."""
    return pages_fragments.render_list(sight.page, role)


def find_approval(query: Mapping[str, str]) -> Subject | None:
    """`?id=appr_…`."""
    if (approval_id := read_id("appr", query.get("id", ""))) is None:
        return None
    organization = Approval.objects.filter(pk=approval_id).values_list("organization_id", flat=True).first()
    return Subject(ApprovalKey(organization, approval_id), organization) if organization else None


def read_approval(key: ApprovalKey, before: ApprovalSight | None) -> ApprovalSight:
    """The page as it stands. When no event came and nothing fell due, only the lease is read."""
    position = newest(key.organization_id)
    page = before.page if before is not None and before.position == position else None
    if page is None or is_due(page.due):
        return ApprovalSight(pages_one.read(key.organization_id, key.approval_id), position)
    return ApprovalSight(pages_one.refresh(key.organization_id, key.approval_id, page), position)


def render_approval(sight: ApprovalSight, role: str) -> Fragments:
    """The page's sections for one role."""
    return pages_fragments.render_page(sight.page, role) if sight.page else {}


SOURCES = {
    "/live/approvals": Source(find_list, read_list, render_list, as_message),
    "/live/approval": Source(find_approval, read_approval, render_approval, as_message),
}
