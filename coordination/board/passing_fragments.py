"""The page of handoffs and messages as HTML fragments, under the same contract as the board's."""

from coordination.models import Role

from .fragments import allows, element
from .passing_state import PassingState

# DOM ids, in the order of the page; the template of each is passing/<id>.html.
SECTIONS = ("handoffs", "messages")


def render(state: PassingState, role: str) -> dict[str, str]:
    """DOM id -> the complete outer HTML of that element, as `role` may see and use it.

    What only the target, the sender or the recipient may do stands in `data-for="agent_…"`: the page's
    script shows it to that person, so that the bytes are the same for all.
    """
    words = {"state": state, "may": allows(role, Role.OPERATOR)}
    return {name: element(f"passing/{name}.html", words) for name in SECTIONS}
