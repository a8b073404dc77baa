"""The list of approvals and the page of one as HTML fragments, under the same contract as the board's."""

from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from django.urls import reverse

from coordination.board.fragments import allows, element, render_cards
from coordination.models import Role
from titen.api.ids import read_id

from . import pages_many, pages_one
from .pages_many import ListState
from .pages_one import ApprovalState

# DOM ids, in the order of the page; the template of each is approvals/<id>.html.
LIST = ("approvals-pending", "approvals-ended")
PAGE = ("approval-standing", "approval-decide", "approval-history")
# What people say when they refuse, at a click. The agent reads it.
PRESETS = (
    "Wrong target.",
    "Not now.",
    "Too much at once: ask for less.",
    "Not needed.",
    "A human does this by hand.",
)
# How long a rule made from an approval may hold.
ALWAYS = ((3600, "for 1 hour"), (86_400, "for 1 day"), (604_800, "for 7 days"), (2_592_000, "for 30 days"))


def render_list(state: ListState, role: str) -> dict[str, str]:
    """DOM id -> the complete outer HTML of that element, as `role` may see and use it."""
    words = {
        "state": state,
        "cards": render_cards(state.pending.rows, role, state.holds),
        "ended": [card.context for card in state.ended],
    }
    parts = {name: element(f"approvals/{name}.html", words) for name in LIST}
    notices = {"notices": render_cards(state.notices, role)}
    return {"notices": element("board/notices.html", notices), **parts}


def render_page(state: ApprovalState, role: str) -> dict[str, str]:
    """DOM id -> the complete outer HTML of that element, as `role` may see and use it.

    What the owner of the agent that asks must not do has `data-unless="agent_…"`: the page's script hides
    it from that person, so that the bytes are the same for all. The rule refuses it in any case.
    """
    # Policy cannot choose between several that grant.
    granting = sum(choice.grants is True for choice in state.words["choices"])
    words = {
        **state.words,
        "key": "approval",
        "state": state,
        "needs": state.role,
        "may": allows(role, state.role),
        "presets": PRESETS,
        "always": ALWAYS if allows(role, Role.ADMIN) and granting == 1 else (),
    }
    return {name: element(f"approvals/{name}.html", words) for name in PAGE}


def at(address: str, organization_id: UUID, role: str) -> dict[str, str] | None:
    """The fragments of the page at an address (path and query), None when it is none of these."""
    parts = urlsplit(address)
    if parts.path == reverse("approvals"):
        wanted = pages_many.wanted(organization_id, dict(parse_qsl(parts.query)))
        return render_list(pages_many.read(wanted), role)
    head, _, text = parts.path.rpartition("/")
    if head != reverse("approvals") or (approval_id := read_id("appr", text)) is None:
        return None
    found = pages_one.read(organization_id, approval_id)
    return render_page(found, role) if found else {}
