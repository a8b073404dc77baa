"""Whether an epoch still has standing: what a recipient of effects asks."""

from functools import cache

from .callers import Credential
from .database import Row, fetch


@cache
def _verify(*, caller: str) -> str:
    return f"""WITH {caller}
SELECT coalesce(r.epoch, 0) AS current_epoch, l.id IS NOT NULL AS valid
FROM caller c
LEFT JOIN coordination_resource r ON r.organization_id = c.organization_id
    AND r.resource_type = %(type)s AND r.resource_id = %(id)s
LEFT JOIN coordination_lease l ON l.resource_id = r.id AND l.epoch = %(epoch)s
    AND l.ended_at IS NULL AND l.expires_at > clock_timestamp()"""


def verify(credential: Credential, *, resource_type: str, resource_id: str, epoch: int) -> Row:
    """`valid` when the lease of that epoch is live now; `current_epoch` is 0 for what was never leased.

    Tasks are resources of the type `task`, sections of the type `section`. `LookupError` without a caller.
    """
    params = {
        **credential.params,
        "capabilities": None,
        "type": resource_type,
        "id": resource_id,
        "epoch": epoch,
    }
    row = fetch(_verify(caller=credential.clause), params)
    if row is None:
        raise LookupError("no caller")
    return row
