"""The task page as HTML fragments, under the same contract as the board's."""

from coordination.models import Role
from coordination.transitions import TASK

from .fragments import allows, element, render_cards
from .task_state import TaskState

# DOM ids, in the order of the page; the template of each is task/<id>.html.
SECTIONS = (
    "task-head",
    "task-needs",
    "task-passing",
    "task-body",
    "task-attempts",
    "task-comments",
    "task-timeline",
    "task-side",
)


def render(state: TaskState, role: str) -> dict[str, str]:
    """DOM id -> the complete outer HTML of that element, as `role` may see and use it.

    What only the holder may do stands in `data-for="agent_…"`: the page's script shows it to that user,
    so that the bytes are the same for all.
    """
    status = state.fields["status"]
    words = {
        "state": state,
        "task": state.fields,
        "run": state.open_run,
        "cards": render_cards(state.cards, role),
        "history": render_cards(state.history, role),
        "may": allows(role, Role.OPERATOR),
        "verbs": {name for name in TASK.moves if TASK[name].allows(status)},
        "kinds": {wait["kind"] for wait in state.waits},
    }
    return {name: element(f"task/{name}.html", words) for name in SECTIONS}
