"""Sequencers: signed statements that a principal held a resource under an epoch, until a moment.

A holder sends one along with its effects, so that whoever receives them can tell a stale holder
without asking here.
"""

from datetime import datetime
from uuid import UUID

import jwt
from django.conf import settings

from titen.api.ids import public_id

from . import signing
from .database import Row

ALGORITHM = "EdDSA"
TYPE = "titen-sequencer+jwt"


def ready() -> None:
    """`NOT_READY` unless a key can sign. A door asks before it moves what cannot be undone."""
    signing.signer(remembered=signing.AHEAD_SECONDS)


def issue(
    *,
    organization_id: UUID,
    resource_type: str,
    resource_id: str,
    epoch: int,
    holder_id: UUID,
    expires_at: datetime,
) -> str:
    """A sequencer as a compact JWS. It runs out with the lease, at the latest whole second before."""
    signer = signing.signer()
    claims = {
        "iss": settings.PUBLIC_URL,
        "org": public_id("org", organization_id),
        "resource_type": resource_type,
        "resource_id": resource_id,
        "epoch": epoch,
        "holder": public_id("agent", holder_id),
        "iat": int(signer.now.timestamp()),
        "exp": int(expires_at.timestamp()),
    }
    return jwt.encode(claims, signer.key, algorithm=ALGORITHM, headers={"kid": signer.kid, "typ": TYPE})


def of_task(row: Row) -> str:
    """The sequencer of a task's lease, from the row of a claim or a heartbeat that was just accepted."""
    return issue(
        organization_id=row["organization_id"],
        resource_type="task",
        resource_id=public_id("task", row["task_id"]),
        epoch=row["epoch"],
        holder_id=row["caller_id"],
        expires_at=row["expires_at"],
    )
