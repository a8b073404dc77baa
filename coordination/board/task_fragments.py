"""The task page as HTML fragments, under the same contract as the board's."""

from coordination.models import Role
from coordination.transitions import TASK

from .fragments import allows, element, render_cards
from .holds import Hold
from .task_state import TaskState

# DOM ids, in the order of the page; the template of each is task/<id>.html.
SECTIONS = (
    "task-head",
    "task-needs",
    "task-passing",
    "task-body",
    "task-attempts",
    "task-effects",
    "task-comments",
    "task-timeline",
    "task-side",
)


def render(state: TaskState, role: str) -> dict[str, str]:
    """DOM id -> the complete outer HTML of that element, as `role` may see and use it.

    What only the holder may do stands in `data-for="agent_…"`: the page's script shows it to that user,
    so that the bytes are the same for all.
    """
    status, run = state.fields["status"], state.open_run
    holds = {state.task_id: Hold(run.agent, run.epoch, run.certainty)} if run else {}
    words = {
        "state": state,
        "task": state.fields,
        "run": run,
        "cards": render_cards(state.cards, role, holds),
        "effects": render_cards(state.effects, role),
        "history": render_cards(state.history, role),
        "may": allows(role, Role.OPERATOR),
        "verbs": {name for name in TASK.moves if TASK[name].allows(status)},
        "kinds": {wait["kind"] for wait in state.waits},
    }
    return {name: element(f"task/{name}.html", words) for name in SECTIONS}
