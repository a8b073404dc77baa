"""The page of leases as HTML fragments, under the same contract as the board's."""

from coordination.models import Role

from .fragments import allows, element
from .leases_state import LeasesState

# DOM ids, in the order of the page; the template of each is leases/<id>.html.
SECTIONS = ("leases-live", "leases-ended")


def render(state: LeasesState, role: str) -> dict[str, str]:
    """DOM id -> the complete outer HTML of that element, as `role` may see and use it."""
    words = {"state": state, "may": allows(role, Role.OPERATOR)}
    return {name: element(f"leases/{name}.html", words) for name in SECTIONS}
