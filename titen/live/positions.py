"""Whether a page has to be read anew: by the newest event's position, and by the clock."""

from datetime import datetime
from uuid import UUID

from coordination import events
from coordination.locks import clock


def newest(organization_id: UUID) -> int:
    """The newest event's position, once everything committed has one."""
    events.number()
    return events.newest_position(organization_id)


def is_due(moment: datetime | None) -> bool:
    """True when a moment has come."""
    return moment is not None and moment <= clock()
