"""The board as HTML fragments: rendered once per organization and role, sent to all viewers.

A fragment is one element with an id. It holds nothing of one user and nothing relative to now, so
that equal states give equal bytes; the page's script makes the times tick.
"""

from collections.abc import Mapping

from django.template.loader import render_to_string

from coordination.models import Role
from coordination.participants import Card

from .holds import Hold
from .pages import LISTS
from .rows import BoardState

# DOM ids, in the order of the page; the template of each is board/<id>.html.
SECTIONS = ("rail", "notices", "needs-you", "running", "queue", "blocked", "ended")


def render(state: BoardState, role: str, part: str = "") -> dict[str, str]:
    """DOM id -> the complete outer HTML of that element, as `role` may see and use it; of one list with `part`."""
    words = {
        "state": state,
        "notices": render_cards(state.notices, role),
        "cards": render_cards(state.needs.rows, role, state.holds),
    }
    return {name: element(f"board/{name}.html", words) for name in ([LISTS[part]] if part else SECTIONS)}


def render_cards(
    cards: tuple[Card, ...] | list[Card], role: str, holds: Mapping[str, Hold] | None = None
) -> list[str]:
    """Each card's element; with its buttons where the role may use them, and who holds its task."""
    return [
        element(
            card.template,
            {
                **card.context,
                "key": card.key,
                "needs": card.role,
                "may": allows(role, card.role),
                "hold": (holds or {}).get(card.task_id),
            },
        )
        for card in cards
    ]


def allows(role: str, needed: str) -> bool:
    """True when `role` may do what needs `needed`."""
    return Role(role).includes(Role(needed))


def element(template: str, words: Mapping[str, object]) -> str:
    """One template as exactly one element, with bare line feeds."""
    return render_to_string(template, dict(words)).replace("\r\n", "\n").replace("\r", "\n").strip()


def as_message(changed: Mapping[str, str]) -> str:
    """Fragments as one message: each part morphs the element of its id, keeping focus and typed text.

    It holds no carriage return: as a server-sent event, every line of it becomes one `data:` line.
    """
    return "\n".join(
        f'<hx-partial hx-target="#{name}" hx-swap="outerMorph">{html}</hx-partial>'
        for name, html in changed.items()
    )
