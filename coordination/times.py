"""How times are printed (ISO-8601, UTC, milliseconds, `Z`), and until when something may stay open."""

from datetime import UTC, datetime, timedelta
from typing import overload

from titen.errors import invalid


@overload
def stamp(moment: datetime) -> str: ...
@overload
def stamp(moment: None) -> None: ...
def stamp(moment: datetime | None) -> str | None:
    """`2026-07-30T10:58:13.829Z`, or None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def deadline(
    now: datetime,
    *,
    expires_at: datetime | None,
    expires_in_seconds: int | None,
    default_seconds: int,
    longest_seconds: int,
) -> datetime:
    """The end that was asked for, by a moment or by seconds from `now`, else the default.

    `VALIDATION_ERROR` for both at once, and for an end in the past or too far away.
    """
    if expires_at is not None and expires_in_seconds is not None:
        raise invalid("expires_in_seconds", "send either this or expires_at.")
    if expires_at is None:
        seconds = default_seconds if expires_in_seconds is None else expires_in_seconds
        if not 1 <= seconds <= longest_seconds:
            raise invalid("expires_in_seconds", f"must be between 1 and {longest_seconds}.")
        return now + timedelta(seconds=seconds)
    if not now < expires_at <= now + timedelta(seconds=longest_seconds):
        days = longest_seconds // 86_400
        raise invalid("expires_at", f"must lie in the future, at most {days} days from now.")
    return expires_at
