"""Finding whom a caller means, so that nobody of them is disabled until the move has committed."""

from uuid import UUID

from titen.api.ids import read_id
from titen.errors import Refused, invalid

from .callers import Caller
from .database import fetch_all
from .identity import name_key
from .models import Membership, Principal, PrincipalKind

_HOLD = """
SELECT id FROM coordination_principal WHERE id = ANY (%(ids)s::uuid[]) AND disabled_at IS NULL
ORDER BY id FOR KEY SHARE"""


def hold_able(caller: Caller, *others: UUID) -> set[UUID]:
    """Who of these can act: the caller, or `UNAUTHENTICATED`, and the others.

    Whoever disables one of them waits for our commit and sees what we did. A foreign key takes this
    lock anyway, but only at the commit, when other locks are held.
    """
    able = {row["id"] for row in fetch_all(_HOLD, {"ids": [caller.principal_id, *others]})}
    if caller.principal_id not in able:
        raise Refused("UNAUTHENTICATED")
    return able


def hold_target(caller: Caller, address: str) -> Principal:
    """Somebody else of the caller's organization, by printed id or name, who can act."""
    known = read_id("agent", address)
    found = Principal.objects.filter(organization_id=caller.organization_id)
    found = found.filter(pk=known) if known else found.filter(name_key=name_key(address))
    principal = found.exclude(pk=caller.principal_id).first()
    if principal is None or principal.pk not in hold_able(caller, principal.pk) or _has_left(principal):
        raise invalid("to_principal", "must be another principal of your organization, by id or name.")
    return principal


def _has_left(principal: Principal) -> bool:
    if principal.kind != PrincipalKind.HUMAN:
        return False
    memberships = Membership.objects.filter(organization_id=principal.organization_id, ended_at=None)
    return not memberships.filter(user__principals=principal).exists()
