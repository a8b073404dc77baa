"""Approvals as cards for the board, the task page and the list."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, CharField, JSONField, QuerySet, TextField, When
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Length
from django.utils.safestring import SafeString

from coordination.locks import clock
from coordination.models import LONG_COLUMNS, Organization, Principal, Role
from coordination.models.fields import ClockNow
from coordination.participants import Card
from titen.api.ids import maybe_id, public_id

from . import grants, options
from .deciders import self_approval_is_forbidden
from .legible import pretty_html
from .models import Approval, ApprovalStatus

TEMPLATE = "approvals/card.html"
# Longer arguments are read on the approval's own page, and decided there.
SHOWN_CHARACTERS = 2000
SHOWN_LINES = 80


@dataclass(frozen=True)
class Choice:
    """One button: what it decides, the agent's words for it, and whether it lets an action happen.

    `first` and `last` are what the keys `a` and `d` go to: on an action the first that runs it and the last
    that does not, in whatever order the agent put them.
    """

    value: str
    label: str
    grants: bool | None
    first: bool
    last: bool

    @property
    def does(self) -> str:
        """The server's words for it; nothing on a mere question."""
        return {True: "Runs it once", False: "Refuses it", None: ""}[self.grants]


@dataclass(frozen=True)
class Call:
    """The tool that is asked about. `arguments` is empty where they are longer than a card has room for."""

    tool: str
    server: str
    kind: str
    characters: int
    arguments: SafeString


def with_action(found: QuerySet[Any]) -> QuerySet[Any]:
    """Rows with `tool`, `server` and `characters` of their action, and its `arguments` unless they are long:
    a megabyte that nobody is shown here is not read."""
    arguments = KeyTransform("arguments", "action")
    annotated: QuerySet[Any] = found.defer("action").annotate(
        tool=KeyTextTransform("tool", "action", output_field=CharField()),
        server=KeyTextTransform("server", "action", output_field=CharField()),
        characters=Length(Cast(arguments, TextField())),
        arguments=Case(
            When(characters__lte=SHOWN_CHARACTERS, then=arguments),
            default=None,
            output_field=JSONField(null=True),
        ),
    )
    return annotated


def call(row: Any) -> Call | None:
    """The action of a row of `with_action`; None without one."""
    if row.tool is None:
        return None
    arguments = pretty_html(row.arguments) if row.characters <= SHOWN_CHARACTERS else SafeString()
    if arguments.count("\n") >= SHOWN_LINES:
        arguments = SafeString()
    return Call(row.tool, row.server or "", row.kind, row.characters, arguments)


def needs_you(organization_id: UUID, limit: int) -> tuple[list[Card], int]:
    """What is pending and not over, oldest first: at most `limit` cards, and how many there are."""
    found = Approval.objects.filter(
        organization_id=organization_id, status=ApprovalStatus.PENDING, expires_at__gt=ClockNow()
    ).order_by("id")
    cards = make(found[:limit])
    return cards, len(cards) if len(cards) < limit else found.count()


def task_cards(task_id: UUID) -> list[Card]:
    """All approvals of a task, oldest first."""
    return make(Approval.objects.filter(task_id=task_id).order_by("created_at", "id"))


def make(found: QuerySet[Approval]) -> list[Card]:
    """Cards of the approvals of one organization, in their order, as they stand now."""
    cards = with_action(found).select_related("task", "requested_by", "decided_by_user", "organization")
    rows = list(cards.defer(*(f"task__{name}" for name in LONG_COLUMNS)))
    now, barred = clock(), owners_barred(rows)
    return [_card(row, now, barred.get(row.pk, "")) for row in rows]


def owners_barred(approvals: Iterable[Approval]) -> dict[UUID, str]:
    """Approval -> the printed principal of the one person who must not decide it: who owns who asks.

    Without those that anybody of the role may decide.
    """
    pending = [each for each in approvals if each.requested_by.owner_id]
    forbidden: dict[tuple[UUID, str], bool] = {}
    for each in pending:
        key = (each.organization_id, each.required_role)
        if key not in forbidden:
            forbidden[key] = self_approval_is_forbidden(each.organization, Role(each.required_role))
    barred = [each for each in pending if forbidden[each.organization_id, each.required_role]]
    if not barred:
        return {}
    owners = [each.requested_by.owner_id for each in barred if each.requested_by.owner_id]
    found = Principal.objects.filter(organization_id=barred[0].organization_id, user_id__in=owners)
    people = dict(found.values_list("user_id", "pk"))
    return {
        each.pk: public_id("agent", people[each.requested_by.owner_id])
        for each in barred
        if each.requested_by.owner_id in people
    }


def status_at(approval: Approval, now: datetime) -> ApprovalStatus:
    """A pending approval whose time is over has expired, whether or not that is written down."""
    ran_out = approval.status == ApprovalStatus.PENDING and approval.expires_at <= now
    return ApprovalStatus.EXPIRED if ran_out else ApprovalStatus(approval.status)


def mark(status: ApprovalStatus, granted: bool | None) -> str:
    """The state whose drawing stands before an approval: a denial looks like the refusal that it is."""
    return "refused" if granted is False else str(status)


def choices(approval: Approval, *, for_action: bool) -> tuple[Choice, ...]:
    """The buttons. On an action the server says what each does; the label is only the agent's word for it."""
    found = options.read(approval.options, for_action=for_action)
    first = next(each for each in found if each.grants is not False)
    last = next(each for each in reversed(found) if not each.grants)
    return tuple(Choice(each.value, each.label, each.grants, each is first, each is last) for each in found)


def words(approval: Any, now: datetime, barred: str) -> dict[str, Any]:
    """What every view of an approval shows, as plain values. `barred` must not decide it."""
    status, tool = status_at(approval, now), call(approval)
    decider = approval.decided_by_user
    return {
        "approval_id": public_id("appr", approval.pk),
        "task_id": maybe_id("task", approval.task_id),
        "title": approval.task.title if approval.task else "",
        "agent": approval.requested_by.name,
        "epoch": approval.epoch,
        "question": approval.question,
        "about": approval.context,
        "call": tool,
        "risk": approval.risk,
        "choices": choices(approval, for_action=tool is not None),
        "barred": barred,
        "digest": approval.digest,
        "on_expiry": approval.on_expiry or "",
        "valid_for": approval.valid_for_seconds,
        "status": str(status),
        "mark": mark(status, approval.granted),
        "decision": approval.decision,
        "granted": approval.granted,
        "usable": grants.is_usable(approval, now),
        "decided_by": decider.email if decider else "",
        "reason": approval.reason,
        "since": approval.created_at,
        "until": approval.expires_at,
        "ended_at": approval.ended_at or approval.expires_at,
    }


def _card(approval: Any, now: datetime, barred: str) -> Card:
    shown = words(approval, now, barred)
    pending = shown["status"] == ApprovalStatus.PENDING
    usable_until = grants.good_until(approval) if shown["usable"] else None
    return Card(
        key=shown["approval_id"],
        template=TEMPLATE,
        context=shown,
        since=approval.created_at,
        role=approval.required_role,
        until=approval.expires_at if pending else usable_until,
        open=pending,
        task_id=shown["task_id"] or "",
    )


def notices(organization_id: UUID) -> list[Card]:
    """That self-approval is forbidden and off all the same, since one person alone can decide."""
    organization = Organization.objects.get(pk=organization_id)
    if not organization.forbid_self_approval or self_approval_is_forbidden(organization):
        return []
    return [
        Card(
            key="self-approval",
            template="approvals/self-approval.html",
            context={},
            since=organization.created_at,
            role=Role.APPROVER,
        )
    ]
