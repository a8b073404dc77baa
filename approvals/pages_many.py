"""Reading the list of an organization's approvals: what is pending by risk and age, then what is over."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.urls import reverse

from coordination.board import holds, pages
from coordination.board.holds import Hold
from coordination.board.rows import PAGE, Section
from coordination.locks import clock
from coordination.models import Organization
from coordination.participants import Card
from titen.errors import invalid, not_found
from titen.nearest import nearest

from . import cards
from .models import Approval, ApprovalStatus, Risk

PENDING_SHOWN = PAGE
ENDED_SHOWN = 50
AGENT_LENGTH = 120
PARAMETERS = ("org", "status", "risk", "agent", "page")


@dataclass(frozen=True)
class Wanted:
    """An organization's approvals, or some of them; the filters are empty for all. `agent` is a part of a name."""

    organization_id: UUID
    status: str = ""
    risk: str = ""
    agent: str = ""
    page: int = 1

    @property
    def is_filtered(self) -> bool:
        """True when not all are asked for."""
        return bool(self.status or self.risk or self.agent)


@dataclass(frozen=True)
class ListState:
    """The list as it stands; `by_risk` counts all that are pending, `due` is when time alone changes it next."""

    name: str
    slug: str
    wanted: Wanted
    notices: tuple[Card, ...]
    by_risk: tuple[tuple[str, int], ...]
    pending: Section[Card]
    holds: Mapping[str, Hold]
    ended: tuple[Card, ...]
    due: datetime | None = field(default=None, compare=False)

    @property
    def more_at(self) -> str:
        """Where the pending ones stand that are not shown."""
        filters = {"status": self.wanted.status, "risk": self.wanted.risk, "agent": self.wanted.agent}
        return pages.address(reverse("approvals"), self.pending.next_page, org=self.slug, **filters)


def wanted(organization_id: UUID, query: Mapping[str, str]) -> Wanted:
    """What `?status=&risk=&agent=` ask for; a form leaves empty what it does not ask for.

    `VALIDATION_ERROR` for a parameter, status or risk that there is not, and for an agent that is only blanks.
    """
    for name in query:
        if name not in PARAMETERS:
            raise invalid(name, f"is not a filter here.{nearest(name, PARAMETERS)}")
    status, risk, agent = (query.get(name, "") for name in ("status", "risk", "agent"))
    for name, value, known in (("status", status, ApprovalStatus), ("risk", risk, Risk)):
        if value and value not in known.values:
            raise invalid(name, f"must be one of {', '.join(known.values)}.{nearest(value, known.values)}")
    if len(agent) > AGENT_LENGTH or any(ord(each) < 32 or ord(each) == 127 for each in agent):
        raise invalid("agent", f"must be a part of a name, one line of at most {AGENT_LENGTH} characters.")
    if agent and not agent.strip():
        raise invalid("agent", "must be a part of a name, not only blanks.")
    return Wanted(organization_id, status, risk, agent.strip(), pages.page_of(query))


def read(wanted: Wanted) -> ListState:
    """The list as it stands now. `NOT_FOUND` for an unknown organization."""
    organization = Organization.objects.filter(pk=wanted.organization_id).first()
    if organization is None:
        raise not_found()
    now = clock()
    all_here = Approval.objects.filter(organization=organization)
    open_now = Q(status=ApprovalStatus.PENDING, expires_at__gt=now)
    risks = Counter(all_here.filter(open_now).order_by().values_list("risk", flat=True))
    found = _filtered(all_here, wanted)
    pending = _pending(found.filter(open_now), wanted)
    ended = tuple(_ended(found.exclude(open_now), wanted))
    return ListState(
        name=organization.name,
        slug=organization.slug,
        wanted=wanted,
        notices=tuple(cards.notices(organization.pk)),
        by_risk=tuple((risk, risks[risk]) for risk in reversed(Risk.values) if risks[risk]),
        pending=pending,
        holds=_holds(pending),
        ended=ended,
        due=min((card.until for card in (*pending.rows, *ended) if card.until), default=None),
    )


def refresh(state: ListState) -> ListState:
    """The same list with the leases read anew, in one query: heartbeats write no events."""
    return replace(state, holds=_holds(state.pending))


def _holds(pending: Section[Card]) -> dict[str, Hold]:
    return holds.read(card.task_id for card in pending.rows)


def _filtered(found: QuerySet[Approval], wanted: Wanted) -> QuerySet[Approval]:
    if wanted.risk:
        found = found.filter(risk=wanted.risk)
    if wanted.agent:
        found = found.filter(requested_by__name__icontains=wanted.agent)
    return found


def _pending(found: QuerySet[Approval], wanted: Wanted) -> Section[Card]:
    """The highest risk first, then the oldest."""
    if wanted.status not in ("", ApprovalStatus.PENDING):
        return Section()
    ranks = [When(risk=risk, then=Value(rank)) for rank, risk in enumerate(Risk.values)]
    sorted_so = found.order_by(Case(*ranks, output_field=IntegerField()).desc(), "id")
    before = PENDING_SHOWN * (wanted.page - 1)
    rows = tuple(cards.make(sorted_so[before : before + PENDING_SHOWN]))
    is_all = wanted.page == 1 and len(rows) < PENDING_SHOWN
    return Section(rows, len(rows) if is_all else found.count(), before)


def _ended(found: QuerySet[Approval], wanted: Wanted) -> list[Any]:
    """The last that ended first. What has run out and is not written down yet stands as expired, before them."""
    if wanted.status == ApprovalStatus.PENDING:
        return []
    if wanted.status == ApprovalStatus.EXPIRED:
        found = found.filter(status__in=(ApprovalStatus.EXPIRED, ApprovalStatus.PENDING))
    elif wanted.status:
        found = found.filter(status=wanted.status)
    return cards.make(found.order_by("-ended_at")[:ENDED_SHOWN])
