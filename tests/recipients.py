"""Recipients of effects: what they check sequencers with, and where they apply what is good."""

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from coordination import sequencers, signing
from titen.api.ids import public_id
from titen.api.jwks import key_json
from titen.client.fencing import (
    EpochGuard,
    SqlEpochs,
)

from .cast import Company


def published() -> dict[str, Any]:
    return {"keys": [key_json(row) for row in signing.published()]}


def guard_of(company: Company, keys: Any = None, **more: Any) -> EpochGuard:
    """A recipient that serves the company's agents."""
    organization = public_id("org", company.organization.pk)
    return EpochGuard(keys or published(), issuer=settings.PUBLIC_URL, organization=organization, **more)


def issue(company: Company, epoch: int, *, lives: float = 60, resource_id: str = "r") -> str:
    """A sequencer for the resource (`deploy`, `r`), as a lease of `lives` seconds has it."""
    return sequencers.issue(
        organization_id=company.organization.pk,
        resource_type="deploy",
        resource_id=resource_id,
        epoch=epoch,
        holder_id=company.organization.pk,
        expires_at=datetime.now(UTC) + timedelta(seconds=lives),
    )


class Recipient:
    """Somebody who applies effects, with a database of their own."""

    def __init__(self, connect: Callable[[], Any], address: str = "") -> None:
        self.connect = connect
        self.address = address
        with contextlib.closing(connect()) as connection:
            SqlEpochs(connection).create_table()
            connection.cursor().execute("CREATE TABLE effect (epoch bigint)")
            connection.commit()

    def apply(
        self, guard: EpochGuard, sequencer: str, resource_type: str = "deploy", resource_id: str = "r"
    ) -> None:
        """Check and apply in one transaction; what is refused is undone."""
        with contextlib.closing(self.connect()) as connection:
            found = guard.check(
                sequencer, resource_type=resource_type, resource_id=resource_id, epochs=SqlEpochs(connection)
            )
            connection.cursor().execute(f"INSERT INTO effect VALUES ({found.epoch})")
            connection.commit()

    def applied(self) -> list[int]:
        """The epochs of what was applied, in order."""
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            order = "rowid" if isinstance(connection, sqlite3.Connection) else "ctid"
            cursor.execute(f"SELECT epoch FROM effect ORDER BY {order}")
            return [epoch for (epoch,) in cursor.fetchall()]
