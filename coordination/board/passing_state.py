"""Reading what is passed between people and agents: handoffs and messages, as plain values."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from coordination import handoffs
from coordination.locks import clock
from coordination.models import Handoff, HandoffStatus, Membership, Message, Organization, Principal
from coordination.models.fields import ClockNow
from titen.api.ids import maybe_id, public_id
from titen.errors import not_found

from .rows import PAGE, Section

PENDING_SHOWN = PAGE
ENDED_SHOWN = 20
MESSAGES_SHOWN = 50
PEOPLE_SHOWN = 500


@dataclass(frozen=True)
class Party:
    """Who sends or gets something; `person` for a human, who may have buttons for it."""

    id: str
    name: str
    person: bool


@dataclass(frozen=True)
class HandoffRow:
    """One offer. `title` is its task's, when it offers one."""

    handoff_id: str
    status: str
    sender: Party
    target: Party
    subject: str
    task_id: str | None
    title: str
    checkpoint_id: str | None
    checkpoint_version: int | None
    message: str
    reason: str
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class MessageRow:
    """One message. With a `resource` it went to who held that; with `task_id`, a task's."""

    message_id: str
    sender: Party
    recipient: Party
    resource: str
    task_id: str
    title: str
    body: str
    created_at: datetime
    read_at: datetime | None


@dataclass(frozen=True)
class PassingState:
    """One organization's handoffs and messages; `due` is when time alone ends an offer next."""

    name: str
    slug: str
    pending: Section[HandoffRow]
    ended: tuple[HandoffRow, ...]
    messages: tuple[MessageRow, ...]
    due: datetime | None = field(default=None, compare=False)


def read(organization_id: UUID, page: int = 1) -> PassingState:
    """Handoffs and messages as they stand now, a page of the pending handoffs. `NOT_FOUND` for an unknown organization."""
    organization = Organization.objects.filter(pk=organization_id).first()
    if organization is None:
        raise not_found()
    now = clock()
    found = Handoff.objects.filter(organization=organization)
    open_now = found.filter(status=HandoffStatus.PENDING, expires_at__gt=now)
    before = PENDING_SHOWN * (page - 1)
    pending = handoff_rows(open_now.order_by("-id")[before : before + PENDING_SHOWN], now)
    is_all = page == 1 and len(pending) < PENDING_SHOWN
    over = found.exclude(status=HandoffStatus.PENDING, expires_at__gt=now)
    return PassingState(
        name=organization.name,
        slug=organization.slug,
        pending=Section(pending, len(pending) if is_all else open_now.count(), before),
        ended=handoff_rows(over.order_by("-id")[:ENDED_SHOWN], now),
        messages=_messages(organization_id),
        due=min((row.expires_at for row in pending), default=None),
    )


def refresh(organization_id: UUID, state: PassingState) -> PassingState:
    """The same page with its messages read anew: that somebody has read one is no event."""
    return replace(state, messages=_messages(organization_id))


def handoff_rows(found: QuerySet[Handoff], now: datetime) -> tuple[HandoffRow, ...]:
    """Handoffs as they stand at `now`, in one query."""
    return tuple(
        HandoffRow(
            handoff_id=public_id("hoff", each.pk),
            status=handoffs.status_at(each, now),
            sender=_party(each.from_principal),
            target=_party(each.to_principal),
            subject=each.subject_id,
            task_id=maybe_id("task", each.task_id),
            title=each.task.title if each.task else "",
            checkpoint_id=maybe_id("ckpt", each.checkpoint_id),
            checkpoint_version=each.checkpoint_version,
            message=each.message,
            reason=each.reason,
            created_at=each.created_at,
            expires_at=each.expires_at,
            ended_at=each.ended_at or (each.expires_at if each.expires_at <= now else None),
        )
        for each in found.select_related("from_principal", "to_principal", "task")
    )


def _messages(organization_id: UUID) -> tuple[MessageRow, ...]:
    return message_rows(
        Message.objects.filter(organization_id=organization_id).order_by("-id")[:MESSAGES_SHOWN]
    )


def message_rows(found: QuerySet[Message]) -> tuple[MessageRow, ...]:
    """Messages with whom they went to, in one query."""
    return tuple(
        MessageRow(
            message_id=public_id("msg", each.pk),
            sender=_party(each.sender),
            recipient=_party(each.recipient),
            resource=str(each.resource or ""),
            task_id=public_id("task", task.pk) if task else "",
            title=task.title if task else "",
            body=each.body,
            created_at=each.created_at,
            read_at=each.read_at,
        )
        for each in found.select_related("sender", "recipient", "resource__task")
        for task in [getattr(each.resource, "task", None)]
    )


def _party(principal: Principal) -> Party:
    return Party(public_id("agent", principal.pk), principal.name, principal.kind == "human")


def waiting_for(principal_id: UUID) -> int:
    """How much waits for one person: offers to them that stand, and messages that they have not read."""
    offers = Handoff.objects.filter(
        to_principal_id=principal_id, status=HandoffStatus.PENDING, expires_at__gt=ClockNow()
    )
    unread = Message.objects.filter(recipient_id=principal_id, read_at=None)
    return offers.order_by().values("pk").union(unread.order_by().values("pk"), all=True).count()


def people(organization_id: UUID, *, besides: UUID) -> tuple[list[Party], list[Party]]:
    """Whom one can write to: agents and services, and humans who are members still."""
    found = Principal.objects.filter(organization_id=organization_id, disabled_at=None).exclude(pk=besides)
    members = Membership.objects.filter(organization_id=organization_id, ended_at=None).values("user_id")
    agents = found.exclude(kind="human").order_by("name_key")[:PEOPLE_SHOWN]
    humans = found.filter(kind="human", user_id__in=members).order_by("name_key")[:PEOPLE_SHOWN]
    return [_party(each) for each in agents], [_party(each) for each in humans]
