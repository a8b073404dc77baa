"""Where a logged-in user sits: in which organizations, with which role, looking at which."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest

from coordination.api.humans import require_role
from coordination.callers import Caller
from coordination.models import Membership, Organization, Role
from titen.api.authentication import human
from titen.api.ids import public_id
from titen.errors import not_found

from .passing_state import waiting_for


@dataclass(frozen=True)
class Seat:
    """A user as a caller in one organization, and the others that they may switch to."""

    caller: Caller
    organization: Organization
    others: tuple[Organization, ...] = ()

    @property
    def caller_id(self) -> str:
        """The printed id of the user's principal here."""
        return public_id("agent", self.caller.principal_id)

    @property
    def role(self) -> str:
        """The user's role here."""
        return self.caller.role or Role.VIEWER

    @property
    def waiting(self) -> int:
        """How much waits for the user here. Looked up when a page asks."""
        return waiting_for(self.caller.principal_id)

    @property
    def name(self) -> str:
        """The organization's name."""
        return self.organization.name

    @property
    def slug(self) -> str:
        """The organization's slug, for links."""
        return self.organization.slug


def _organizations(user: Any) -> list[Organization]:
    memberships = Membership.objects.filter(user=user, ended_at=None).select_related("organization")
    return [
        membership.organization
        for membership in memberships.order_by("organization__name", "organization__slug")
    ]


def take(request: HttpRequest, role: Role = Role.VIEWER) -> Seat | None:
    """The seat that `?org=` names, else the first. None without any; `NOT_FOUND` for another's slug."""
    mine = _organizations(request.user)
    if not mine:
        return None
    slug = request.GET.get("org")
    chosen = next((each for each in mine if each.slug == slug), None) if slug else mine[0]
    if chosen is None:
        raise not_found()
    return _sit(request, chosen, mine, role)


def at(request: HttpRequest, organization_id: UUID | None, role: Role = Role.VIEWER) -> Seat:
    """The seat in the organization of an object. `NOT_FOUND` without a membership there."""
    mine = _organizations(request.user)
    chosen = next((each for each in mine if each.pk == organization_id), None)
    if chosen is None:
        raise not_found()
    return _sit(request, chosen, mine, role)


def _sit(request: HttpRequest, chosen: Organization, mine: list[Organization], role: Role) -> Seat:
    caller = human(request.user, chosen.pk)
    if caller is None:
        raise not_found()
    require_role(caller, role)
    return Seat(caller, chosen, tuple(each for each in mine if each.pk != chosen.pk))
