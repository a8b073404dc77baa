"""The table of moves, cell by cell: each moves as the grid says, or is refused without change."""

from typing import Any

import pytest

from coordination.models import RunStatus
from coordination.transitions import RUN, TASK

from .clockwork import kinds_since, last_seq, rows_of, sql, uuid_of
from .moves import MOVES, make
from .scenes import STATES, Scene, Stage, make_scene, set_stage
from .servers import Server

LETTERS = {"T": "todo", "P": "in_progress", "B": "blocked", "D": "done", "X": "cancelled"}

# How the task stands after each move. `.` refused without change · `s` refused, but what had run out is
# written down · `o` the sweeper makes its other move · `-` the sweeper finds nothing to do.
GRID = """
                             clai hear comp fail rele aban park ask ask? resu bloc unbl queu agen me hand offe canc reop pri act
todo                           P    .    .    .    .    -    -    .   .    .    B    .    T    T   P   .    .    X    .    T   .
todo_with_dependency           .    .    .    .    .    -    -    .   .    .    B    .    T    T   P   .    .    X    .    T   .
todo_in_backoff                .    .    .    .    .    -    -    .   .    .    B    .    T    T   P   P    .    X    .    T   .
todo_released                  P    .    .    .    .    -    -    .   .    .    B    .    T    T   P   P    .    X    .    T   .
todo_for_another               .    .    .    .    .    -    -    .   .    .    B    .    T    T   P   .    .    X    .    T   .
held                           .    P    D    T    T    -    -    B   B    .    B    .    T    T   P   P    P    X    .    P   P
held_but_run_out               P    .    .    .    .    T    o    .   .    .    B    .    T    T   P   P    .    X    .    T   .
held_after_takeover            .    .    .    .    .    -    -    .   .    .    B    .    T    T   P   .    .    X    .    P   .
handed_off                     .    .    .    .    .    -    -    .   .    .    B    .    T    T   P   .    .    X    .    P   .
awaiting_approval              .    B    .    B    B    -    -    B   B    P    B    .    T    T   P   B    B    X    .    B   .
awaiting_approval_but_run_out  s    .    .    .    .    o    B    .   .    T    B    .    T    T   P   B    .    X    .    B   .
approved                       .    P    D    T    T    -    -    B   B    .    B    .    T    T   P   P    P    X    .    P   P
denied                         .    P    D    T    T    -    -    B   B    .    B    .    T    T   P   P    P    X    .    P   .
authorized                     .    P    .    T    T    -    -    B   B    .    B    .    T    T   P   P    P    X    .    P   P
parked                         .    .    .    .    .    -    -    .   .    T    B    .    T    T   P   B    .    X    .    B   .
blocked_by_hand                .    .    .    .    .    -    -    .   .    T    .    T    T    T   P   .    .    X    .    B   .
held_and_blocked_by_hand       .    B    .    B    B    -    -    B   B    P    .    P    T    T   P   B    B    X    .    B   .
out_of_attempts                .    .    .    .    .    -    -    .   .    T    B    .    T    T   P   .    .    X    T    B   .
after_a_cancelled_dependency   .    .    .    .    .    -    -    .   .    T    B    T    T    T   P   .    .    X    .    B   .
done                           .    .    .    .    .    -    -    .   .    .    .    .    .    .   .   .    .    .    T    .   .
cancelled                      .    .    .    .    .    -    -    .   .    .    .    .    .    .   .   .    .    .    T    .   .
"""
COLUMNS = list(MOVES)
CELLS: dict[tuple[str, str], str] = {
    (move, line.split()[0]): letter
    for line in GRID.strip().splitlines()[1:]
    for move, letter in zip(COLUMNS, line.split()[1:], strict=True)
}

# What a holder's verb is refused with, by how its run ended or stands.
LOST = {
    "todo_in_backoff": "CONFLICT",
    "todo_released": "CONFLICT",
    "held_but_run_out": "LEASE_EXPIRED",
    "held_after_takeover": "LEASE_SUPERSEDED",
    "handed_off": "LEASE_SUPERSEDED",
    "awaiting_approval": "CONFLICT",
    "awaiting_approval_but_run_out": "LEASE_EXPIRED",
    "parked": "LEASE_EXPIRED",
    "held_and_blocked_by_hand": "CONFLICT",
    "out_of_attempts": "CONFLICT",
    "done": "ALREADY_COMPLETED",
    "cancelled": "TASK_CANCELLED",
}
HOLDERS = {"heartbeat", "complete", "fail", "release", "ask", "ask:question", "hand_off:offer", "authorize"}
# Who has not lost it, and is refused all the same.
HINDERED = {("complete", "authorized"): "EFFECTS_UNRECONCILED", ("authorize", "denied"): "APPROVAL_DENIED"}

# The one event of each move.
EVENTS = {
    "claim": ["task.claimed"],
    "heartbeat": [],
    "complete": ["task.completed"],
    "fail": ["task.failed"],
    "release": ["task.released"],
    "abandon": ["task.abandoned"],
    "park": ["task.parked"],
    "ask": ["approval.requested"],
    "ask:question": ["comment.asked"],
    "block": ["task.blocked"],
    "unblock": ["task.unblocked"],
    "take_over": ["task.taken_over"],
    "take_over:agent": ["task.taken_over"],
    "take_over:me": ["task.taken_over", "task.claimed"],
    "hand_off": ["task.claimed", "handoff.accepted"],
    "hand_off:offer": ["handoff.created"],
    "cancel": ["task.cancelled"],
    "reopen": ["task.reopened"],
    "set_priority": ["task.priority_set"],
    "authorize": ["effect.authorized"],
}
RESUMED = {"awaiting": "approval.decided", "parked": "approval.decided", "out_of_attempts": "task.reopened"}


@pytest.fixture(scope="module")
def stage(web: Server) -> Any:
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


def expected_events(move: str, state: str) -> list[str]:
    """The events of an allowed cell, in order: what had run out first, then what ends, then the move."""
    if move == "resume":
        own = [next((kind for start, kind in RESUMED.items() if state.startswith(start)), "task.unblocked")]
    else:
        own = EVENTS[move]
    found = []
    if state.endswith("run_out") and move not in ("abandon", "park"):
        found.append("task.parked" if STATES[state][0] == "blocked" else "task.abandoned")
    if move == "authorize" and state == "approved":
        found.append("approval.consumed")
    if move.startswith("take_over") or move == "cancel":
        if state.startswith(("awaiting", "parked")):
            found.append("approval.cancelled")
        if state == "approved":
            found.append("approval.voided")
        if STATES[state][1] and not state.endswith("run_out"):
            found.append("task.run_cancelled" if move == "cancel" else "task.superseded")
    if move == "hand_off" and STATES[state][1] and not state.endswith("run_out"):
        found.append("task.handed_off")
    if state == "authorized" and move in ("fail", "release"):
        return [*own, "effect.unknown"]
    if state == "approved" and move == "complete":
        return [*own, "approval.voided"]
    if state == "authorized" and found:
        found.append("effect.unknown")
    return found + own


def refusal_of(move: str, state: str) -> str:
    """The code of a refused cell."""
    if move == "claim":
        return "RESERVED" if state == "todo_for_another" else "NOT_CLAIMABLE"
    if move == "hand_off":
        # Nobody could offer it, or its offer was withdrawn with the move; else nobody can have it now.
        return "CONFLICT" if state in ("out_of_attempts", "done") else "NOT_FOUND"
    if (move, state) in HINDERED:
        return HINDERED[move, state]
    return LOST.get(state, "NOT_FOUND") if move in HOLDERS else "CONFLICT"


def test_every_move_of_the_table_has_a_row_and_every_state_a_column() -> None:
    assert {move.partition(":")[0] for move in COLUMNS} == set(TASK.moves)
    assert set(RUN.moves) <= set(MOVES)
    assert {state for _, state in CELLS} == set(STATES)
    assert {status for status, _, _ in STATES.values()} == set(TASK.states)


@pytest.mark.parametrize("name", TASK.moves)
def test_a_move_is_made_from_exactly_the_states_that_the_table_names(name: str) -> None:
    made_from = {
        STATES[state][0]
        for (move, state), letter in CELLS.items()
        if move.partition(":")[0] == name and letter in LETTERS and not _swept_first(move, state)
    }
    assert made_from == set(TASK[name].sources)
    if TASK[name].target:
        assert {LETTERS[c] for (move, _), c in CELLS.items() if move == name and c in LETTERS} == {
            TASK[name].target
        }


def _swept_first(move: str, state: str) -> bool:
    """The move starts from where the sweep left the task, not from the state before."""
    return state.endswith("run_out") and move not in ("abandon", "park")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("move", COLUMNS)
def test_cell(stage: Stage, move: str, state: str) -> None:
    scene = make_scene(stage, state, offers=move == "hand_off")
    letter = CELLS[move, state]
    before, seq = rows_of(scene.task_id), last_seq()
    outcome = make(move, scene)
    kinds = kinds_since(scene.task_id, seq)
    if letter in LETTERS:
        assert outcome.code is None
        assert scene.shown["status"] == LETTERS[letter]
        assert kinds == expected_events(move, state)
        return
    if letter in ("o", "s"):
        assert kinds == ["task.parked" if STATES[state][0] == "blocked" else "task.abandoned"]
        assert outcome.code == (None if letter == "o" else "NOT_CLAIMABLE")
        return
    assert rows_of(scene.task_id) == before
    assert outcome.code == (None if letter == "-" else refusal_of(move, state))
    assert kinds == left_by_a_refusal(move, scene)


def left_by_a_refusal(move: str, scene: Scene) -> list[str]:
    """A holder that has lost leaves a trace; an offer of what is done has expired."""
    if move == "hand_off":
        return ["handoff.expired"] if scene.shown["status"] == "done" else []
    if scene.claim and move == "authorize":
        return ["effect.refused"]
    return ["run.refused"] if scene.claim and move in HOLDERS else []


RUN_STATES: dict[str, str] = {
    "running": "held",
    "waiting": "awaiting_approval",
    "succeeded": "done",
    "failed": "todo_in_backoff",
    "abandoned": "held_but_run_out",
    "parked": "parked",
    "released": "todo_released",
    "handed_off": "handed_off",
    "superseded": "held_after_takeover",
    "cancelled": "cancelled",
}


def rows_of_run(scene: Scene) -> Any:
    """The run and its lease, as text to compare."""
    run = uuid_of(scene.claim["run"]["id"])
    return sql(
        "SELECT r.status, to_jsonb(r)::text, to_jsonb(l)::text FROM coordination_run r"
        " JOIN coordination_lease l ON l.id = r.lease_id WHERE r.id = %s",
        run,
    )[0]


@pytest.mark.parametrize("status", RunStatus.values)
@pytest.mark.parametrize("move", RUN.moves)
def test_cell_of_a_run(stage: Stage, move: str, status: str) -> None:
    scene = make_scene(stage, RUN_STATES[status], offers=move == "hand_off")
    if status == "abandoned":
        scene.sweep()
    sweeps = move in ("abandon", "park") and status in ("running", "waiting")
    if sweeps:
        scene.let_run_out()
    before = rows_of_run(scene)
    assert before[0] == status
    make(move, scene)
    after = rows_of_run(scene)
    if RUN[move].allows(status):
        assert after[0] == (RUN[move].target or status)
    elif sweeps:
        assert after[0] == {"abandon": "parked", "park": "abandoned"}[move]
    else:
        assert after == before
