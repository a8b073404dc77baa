"""Which known name somebody may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'task.completed'?`, or nothing when no known name is like it."""
    found = get_close_matches(name[:100], sorted(known), n=1)
    return f" Did you mean '{found[0]}'?" if found else ""
