"""How times are printed: ISO-8601, UTC, milliseconds, `Z`."""

from datetime import UTC, datetime
from typing import overload


@overload
def stamp(moment: datetime) -> str: ...
@overload
def stamp(moment: None) -> None: ...
def stamp(moment: datetime | None) -> str | None:
    """`2026-07-30T10:58:13.829Z`, or None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
