"""Finding whom a caller means, so that nobody of them is disabled until the move has committed."""

from titen.api.ids import read_id
from titen.errors import invalid

from .callers import Caller
from .identity import name_key
from .locks import hold_able
from .models import Principal


def hold_target(caller: Caller, address: str) -> Principal:
    """Somebody else of the caller's organization, by printed id or name, who can act."""
    known = read_id("agent", address)
    found = Principal.objects.filter(organization_id=caller.organization_id)
    found = found.filter(pk=known) if known else found.filter(name_key=name_key(address))
    principal = found.exclude(pk=caller.principal_id).first()
    if principal is None or principal.pk not in hold_able(caller, principal.pk):
        raise invalid("to_principal", "must be another principal of your organization, by id or name.")
    return principal
