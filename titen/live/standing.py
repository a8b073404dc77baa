"""Who looks on: from a browser's session to a role in one organization, and API keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.db.models import Q
from django.http import parse_cookie
from django.utils.crypto import constant_time_compare

from coordination.models import ApiKey, Membership, User
from coordination.models.fields import ClockNow

from .http import Scope


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a viewer shows: its session's key, and whose board it wants."""

    session: str
    organization_id: UUID


@dataclass(frozen=True, slots=True)
class KeyTicket:
    """What a follower with an API key shows."""

    key_id: UUID | None


def stand(tickets: Sequence[Ticket | KeyTicket]) -> list[bool]:
    """Whether who shows each ticket may go on. Three queries, however many tickets."""
    keys = {ticket.key_id for ticket in tickets if isinstance(ticket, KeyTicket) and ticket.key_id}
    unexpired = Q(expires_at=None) | Q(expires_at__gt=ClockNow())
    valid = ApiKey.objects.filter(
        unexpired, pk__in=keys, revoked_at=None, principal__disabled_at=None
    ).values_list("pk", flat=True)
    held = set(valid) if keys else set()
    sessions = {ticket for ticket in tickets if isinstance(ticket, Ticket)}
    members = dict(zip(sessions, roles(list(sessions)), strict=True)) if sessions else {}
    return [
        ticket.key_id in held if isinstance(ticket, KeyTicket) else members[ticket] is not None
        for ticket in tickets
    ]


def session_of(scope: Scope) -> str:
    """The key of the browser's session as Django reads cookies, empty without one."""
    cookies = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    return parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME, "")


def roles(tickets: Sequence[Ticket]) -> list[str | None]:
    """The role behind each ticket; None where the session, the user or the membership has ended.

    Two queries, however many tickets.
    """
    users = _users({ticket.session for ticket in tickets if ticket.session})
    found = Membership.objects.filter(user__in=set(users.values()), ended_at=None, user__is_active=True)
    memberships = {
        (user, organization): role
        for user, organization, role in found.values_list("user_id", "organization_id", "role")
    }
    return [
        memberships.get((users[ticket.session], ticket.organization_id)) if ticket.session in users else None
        for ticket in tickets
    ]


def _users(keys: set[str]) -> dict[str, UUID]:
    """Session key -> user, for sessions that are valid as `django.contrib.auth.get_user` judges them."""
    sessions = Session.objects.filter(session_key__in=keys, expire_date__gt=datetime.now(UTC))
    contents = {session.session_key: session.get_decoded() for session in sessions}
    wanted: set[str] = {content[SESSION_KEY] for content in contents.values() if SESSION_KEY in content}
    users = {str(user.pk): user for user in User.objects.filter(pk__in=wanted)}
    valid = {}
    for key, content in contents.items():
        user = users.get(content.get(SESSION_KEY, ""))
        if (
            user is not None
            and content.get(BACKEND_SESSION_KEY) in settings.AUTHENTICATION_BACKENDS
            and constant_time_compare(content.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash())
        ):
            valid[key] = user.pk
    return valid
