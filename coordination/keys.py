"""Keys that are made with keys: a child ends no later than its maker, and can be revoked along with it.

`made_by` is the key with which a key was made; null for one that a human made on the board, in the admin or on
the command line. Such a key is the organization's: it ends by its own time, by revocation or with its principal.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from titen.api.ids import maybe_id, public_id
from titen.errors import Refused, invalid

from . import events
from .locks import clock
from .models import ApiKey
from .models.fields import ClockNow
from .times import stamp


def lock_maker(key_id: UUID) -> ApiKey:
    """The key with which another one is being made, locked: its revocation waits and sees the new one.

    `UNAUTHENTICATED` when it has ended meanwhile.
    """
    maker = ApiKey.objects.select_for_update(no_key=True).get(pk=key_id)
    if maker.revoked_at is not None or (maker.expires_at is not None and maker.expires_at <= clock()):
        raise Refused("UNAUTHENTICATED")
    return maker


def end_within(maker: ApiKey, expires_at: datetime | None) -> datetime | None:
    """When a key made with `maker` ends: as asked for, else with its maker. `VALIDATION_ERROR` for a later end."""
    if maker.expires_at is None or expires_at is None:
        return expires_at or maker.expires_at
    if expires_at > maker.expires_at:
        raise invalid(
            "expires_at",
            f"must be no later than {stamp(maker.expires_at)}, when the key that you use ends; without"
            " expires_at the new key ends then.",
        )
    return expires_at


def log_data(key: ApiKey) -> dict[str, Any]:
    """What the log says of a new key besides its id: which key made it and when it ends."""
    found = {"made_by": maybe_id("key", key.made_by_id), "expires_at": stamp(key.expires_at)}
    return {name: value for name, value in found.items() if value is not None}


def made_with(key_ids: Iterable[UUID]) -> list[UUID]:
    """The keys that were made with any of these, whether or not they still work."""
    found = ApiKey.objects.filter(made_by__in=list(key_ids)).order_by("pk")
    return list(found.values_list("pk", flat=True))


def revoke_made_with(key: ApiKey, *, actor_id: UUID | None = None, user_id: UUID | None = None) -> list[UUID]:
    """End every key that was made with this one, with those and so on; the ids of those that had not ended.

    A key that was revoked by itself before is looked behind too.
    """
    # One walk at a time. A key that is just being made holds its maker's row, which the walk waits for.
    ApiKey.objects.select_for_update(no_key=True).get(pk=key.pk)
    ended: list[UUID] = []
    level = [key.pk]
    while level := made_with(level):
        held = ApiKey.objects.select_for_update(no_key=True).filter(pk__in=level).order_by("pk")
        for child in [each for each in held if each.revoked_at is None]:
            ApiKey.objects.filter(pk=child.pk).update(revoked_at=ClockNow())
            events.record(
                "key.revoked",
                organization_id=child.organization_id,
                actor_id=actor_id,
                subject_id=child.pk,
                user_id=user_id,
                revoked_with=public_id("key", key.pk),
            )
            ended.append(child.pk)
    return ended


def is_revocable(key: ApiKey) -> bool:
    """True while it works, or one that was made with it does."""
    return key.revoked_at is None or has_working_descendants(key)


def has_working_descendants(key: ApiKey) -> bool:
    """True when the cascade would revoke something."""
    level = [key.pk]
    while level := made_with(level):
        if ApiKey.objects.filter(pk__in=level, revoked_at=None).exists():
            return True
    return False
