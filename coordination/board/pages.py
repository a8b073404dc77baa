"""Which page of a long list is asked for: the rows beyond those that a page of the board shows."""

from collections.abc import Mapping
from urllib.parse import urlencode

from titen.errors import invalid
from titen.nearest import nearest

# The board's lists, each with the DOM id of its section.
LISTS = {
    "needs": "needs-you",
    "running": "running",
    "ready": "queue",
    "waiting": "queue",
    "blocked": "blocked",
}
# As far as lists are counted.
LAST = 200


def page_of(query: Mapping[str, str]) -> int:
    """`?page=`, 1 without it. `VALIDATION_ERROR` for what is no page."""
    text = query.get("page", "1")
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= LAST):
        raise invalid("page", f"must be a whole number from 1 to {LAST}.")
    return int(text)


def part_of(query: Mapping[str, str]) -> str:
    """`?list=`: one of the board's lists, nothing without it. `VALIDATION_ERROR` for a list that there is not."""
    name = query.get("list", "")
    if name and name not in LISTS:
        raise invalid("list", f"must be one of {', '.join(LISTS)}.{nearest(name, LISTS)}")
    return name


def address(path: str, page: int, **query: str) -> str:
    """Where a page of a list is shown."""
    return f"{path}?{urlencode({**{name: value for name, value in query.items() if value}, 'page': page})}"
