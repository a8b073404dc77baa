"""The kinds of events: all that the log can hold, and the reading of filters by kind."""

from collections.abc import Iterable

from titen.errors import invalid
from titen.nearest import nearest

# The first word of a kind -> the second ones.
WORDS = {
    "approval": "cancelled consumed decided denial_lifted expired requested voided",
    "checkpoint": "written",
    "comment": "answered asked posted",
    "context": "created",
    "document": "deleted",
    "effect": "authorized compensated failed refused succeeded unknown",
    "handoff": "accepted created expired rejected withdrawn",
    "key": "created revoked",
    "lease": "acquired expired jeopardy_declared released renewed revoked",
    "limit": "set",
    "member": "added removed",
    "message": "sent",
    "organization": "configured created",
    "policy": "flags_changed rule_added rule_changed rule_ended tool_added tool_changed tool_ended",
    "principal": "created disabled",
    "run": "refused",
    "section": "edited",
    "task": (
        "abandoned blocked cancelled claimed completed created failed handed_off parked priority_set released"
        " reopened reservation_ended run_cancelled superseded taken_over unblocked"
    ),
    "user": "password_changed",
    "webhook": "changed created deleted paused redelivered resumed",
}
KINDS = frozenset(f"{noun}.{verb}" for noun, verbs in WORDS.items() for verb in verbs.split())
PATTERNS = frozenset(f"{noun}.*" for noun in WORDS)


def check(field: str, names: Iterable[str], *, patterns: bool = False) -> None:
    """`VALIDATION_ERROR` with the nearest known name unless each is a kind, or with `patterns` one such as
    `task.*`."""
    known = KINDS | PATTERNS if patterns else KINDS
    for name in names:
        if name not in known:
            such = "task.completed, or task.* for all of them" if patterns else "task.completed"
            raise invalid(field, f"'{name}' is no kind of event, such as {such}.{nearest(name, known)}")
