"""Every move, as `name: sources -> target`. Tests, 409 answers and the docs are made from this page."""

from titen.lifecycle import Machine

from .models import HandoffStatus, RunStatus, TaskStatus

OPEN = ("todo", "in_progress", "blocked")

TASK = Machine(
    "task",
    TaskStatus.values,
    {
        "claim": (["todo"], "in_progress"),
        "heartbeat": (["in_progress", "blocked"], None),
        # An effect, in another app: only work that goes on may act on the world.
        "authorize": (["in_progress"], None),
        "complete": (["in_progress"], "done"),
        # Back to todo (after a pause), or blocked when the attempts are used up; a blocked one stays so.
        "fail": (["in_progress", "blocked"], None),
        "release": (["in_progress", "blocked"], None),
        "abandon": (["in_progress"], None),
        "park": (["blocked"], None),
        "ask": (["in_progress", "blocked"], "blocked"),
        # The last blocker closed: in_progress while the lease lives, else todo.
        "resume": (["blocked"], None),
        "block": (OPEN, "blocked"),
        "unblock": (["blocked"], None),
        # To oneself in_progress; to an agent or to the queue todo.
        "take_over": (OPEN, None),
        # The receiver accepts: it stays as it is, or in_progress from todo.
        "hand_off": (OPEN, None),
        "cancel": (OPEN, "cancelled"),
        # Out of blocked only where the attempts were used up.
        "reopen": (["blocked", "done", "cancelled"], None),
        "set_priority": (OPEN, None),
    },
)

RUN = Machine(
    "run",
    RunStatus.values,
    {
        "heartbeat": (["running", "waiting"], None),
        "authorize": (["running"], None),
        "complete": (["running"], "succeeded"),
        "fail": (["running", "waiting"], "failed"),
        "release": (["running", "waiting"], "released"),
        "abandon": (["running"], "abandoned"),
        "park": (["waiting"], "parked"),
        "ask": (["running", "waiting"], "waiting"),
        "resume": (["waiting"], "running"),
        "block": (["running", "waiting"], "waiting"),
        "take_over": (["running", "waiting"], "superseded"),
        "hand_off": (["running", "waiting"], "handed_off"),
        "cancel": (["running", "waiting"], "cancelled"),
    },
)

HANDOFF = Machine(
    "handoff",
    HandoffStatus.values,
    {
        "accept": (["pending"], "accepted"),
        "reject": (["pending"], "rejected"),
        "withdraw": (["pending"], "withdrawn"),
        # Its time is over, or what it offers went to somebody else or is done.
        "expire": (["pending"], "expired"),
    },
)
