"""For a holder that lost, the first that is true answers; and its attempts leave a trace."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from coordination import takeovers

from .acting import PUBLISH, effect
from .clockwork import bring_into_jeopardy, last_seq, rows_of, sql, uuid_of
from .scenes import STATES, Scene, Stage, make_scene, question, set_stage
from .servers import Server


@pytest.fixture(scope="module")
def stage(web: Server) -> Any:
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


def _run_out(scene: Scene) -> None:
    sql(
        "UPDATE coordination_lease SET expires_at = clock_timestamp() WHERE id = %s",
        uuid_of(scene.claim["lease"]["lease_id"]),
    )


# What can be true of a holder, in the order in which it is told: the code, a piece of the message, and
# how it is made true.
TRUTHS: dict[str, tuple[str, str, Callable[[Scene], Any]]] = {
    "another's run": ("NOT_HOLDER", "another principal", lambda scene: None),
    "ended": ("CONFLICT", "run is released", lambda scene: scene.send("release", {"checkpoint": 1})),
    "another epoch": ("STALE_EPOCH", "epoch", lambda scene: None),
    "run out": ("LEASE_EXPIRED", "ran out", _run_out),
    "in jeopardy": ("LEASE_IN_JEOPARDY", "jeopardy", lambda scene: bring_into_jeopardy(scene.claim)),
    "open effects": ("EFFECTS_UNRECONCILED", "2 effects", lambda scene: scene.act().act()),
    "blocked": ("CONFLICT", "task is blocked", lambda scene: scene.ask()),
}
# The order in which they can be made true: what needs a live lease first.
MADE = ["open effects", "blocked", "ended", "in jeopardy", "run out", "another epoch", "another's run"]
OF_EVERY_VERB = ["another's run", "ended", "another epoch", "run out"]

CASES = [
    (verb, truths)
    for verb, possible in {
        "complete": list(TRUTHS),
        "heartbeat": OF_EVERY_VERB,
        "fail": OF_EVERY_VERB,
        "release": OF_EVERY_VERB,
        "ask": OF_EVERY_VERB,
        "question": OF_EVERY_VERB,
        "effect": [*OF_EVERY_VERB, "in jeopardy", "blocked"],
    }.items()
    for count in (1, 2)
    for truths in itertools.combinations(possible, count)
]


def attempt(scene: Scene, verb: str, truths: tuple[str, ...]) -> Any:
    """The verb of a holder (or of who takes itself for one)."""
    agent = scene.stage.other if "another's run" in truths else scene.stage.holder
    run, epoch = scene.claim["run"]["id"], scene.claim["lease"]["epoch"] + ("another epoch" in truths)
    if verb == "ask":
        return agent.send("POST", "/approvals", {**question(scene.claim), "epoch": epoch})
    if verb == "effect":
        return agent.send("POST", "/effects", {**effect(scene.claim, PUBLISH), "epoch": epoch})
    if verb == "question":
        body = {"body": "Which branch?", "blocking": True, "run_id": run, "epoch": epoch}
        return agent.send("POST", f"/tasks/{scene.task_id}/comments", body)
    more = {"error": "no network"} if verb == "fail" else {}
    return agent.send("POST", f"/runs/{run}/{verb}", {"epoch": epoch, **more})


@pytest.mark.parametrize(("verb", "truths"), CASES, ids=[f"{v}: {' and '.join(t)}" for v, t in CASES])
def test_the_first_that_is_true_answers(stage: Stage, verb: str, truths: tuple[str, ...]) -> None:
    scene = make_scene(stage, "held")
    for truth in MADE:
        if truth in truths:
            TRUTHS[truth][2](scene)
    before = rows_of(scene.task_id)
    answer = attempt(scene, verb, truths)
    error = answer.json()["error"]
    code, piece, _ = TRUTHS[truths[0]]
    assert (answer.status_code, error["code"]) == (409, code), error
    assert piece in error["message"]
    assert rows_of(scene.task_id) == before


ENDS = {
    "done": ("ALREADY_COMPLETED", "succeeded"),
    "todo_in_backoff": ("CONFLICT", "run is failed"),
    "todo_released": ("CONFLICT", "run is released"),
    "parked": ("LEASE_EXPIRED", "ran out"),
    "held_after_takeover": ("LEASE_SUPERSEDED", "revoked"),
    "cancelled": ("TASK_CANCELLED", "cancelled"),
}


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("epoch_off", [0, 1])
def test_an_ended_run_is_told_how_it_ended_whatever_the_epoch(
    stage: Stage, state: str, epoch_off: int
) -> None:
    claim = make_scene(stage, state).claim
    code, piece = ENDS[state]
    body = {"epoch": claim["lease"]["epoch"] + epoch_off}
    error = stage.holder.refused(code, f"/runs/{claim['run']['id']}/complete", body)
    assert piece in error["message"]


@pytest.mark.parametrize("reason", ["revoked", "handed_off", "superseded"])
def test_a_superseded_lease_names_the_reason(stage: Stage, reason: str) -> None:
    scene = make_scene(stage, "held_after_takeover")
    lease = uuid_of(scene.claim["lease"]["lease_id"])
    sql("UPDATE coordination_lease SET end_reason = %s WHERE id = %s", reason, lease)
    body = {"epoch": scene.claim["lease"]["epoch"]}
    error = stage.holder.refused("LEASE_SUPERSEDED", f"/runs/{scene.claim['run']['id']}/heartbeat", body)
    assert error["details"]["reason"] == reason
    assert reason.replace("_", " ") in error["message"]


def test_a_holder_that_lost_cannot_guess_its_way_back(stage: Stage) -> None:
    """R04: A's run with the new epoch, and B's run with A's key."""
    scene = make_scene(stage, "held")
    old = scene.claim
    scene.by_human(takeovers.take_over, to=None, reason="It hangs.", epoch=old["lease"]["epoch"])
    new = stage.other.claim(task_id=scene.task_id)
    assert new["lease"]["epoch"] > old["lease"]["epoch"]
    before = rows_of(scene.task_id)
    for claim, epoch, code in (
        (old, old["lease"]["epoch"], "LEASE_SUPERSEDED"),
        (old, new["lease"]["epoch"], "LEASE_SUPERSEDED"),
        (new, new["lease"]["epoch"], "NOT_HOLDER"),
        (new, old["lease"]["epoch"], "NOT_HOLDER"),
    ):
        for verb, more in (("heartbeat", {}), ("complete", {}), ("fail", {"error": "x"}), ("release", {})):
            stage.holder.refused(code, f"/runs/{claim['run']['id']}/{verb}", {"epoch": epoch, **more})
        stage.holder.refused(code, "/approvals", {**question(claim), "epoch": epoch})
    assert rows_of(scene.task_id) == before
    stage.other.post(f"/runs/{new['run']['id']}/complete", {"epoch": new["lease"]["epoch"]})
    assert scene.shown["status"] == "done"


def _traces(run: str) -> list[tuple[Any, ...]]:
    return sql(
        "SELECT data ->> 'code', data ->> 'verb', actor_id, epoch, date_trunc('minute', created_at)"
        " FROM coordination_event WHERE run_id = %s AND kind = 'run.refused' ORDER BY seq",
        uuid_of(run),
    )


def test_refused_writes_leave_one_event_per_run_code_and_minute(stage: Stage) -> None:
    scene = make_scene(stage, "todo_released")
    run, epoch = scene.claim["run"]["id"], scene.claim["lease"]["epoch"]
    for _ in range(4):
        for verb in ("heartbeat", "complete"):
            stage.holder.refused("CONFLICT", f"/runs/{run}/{verb}", {"epoch": epoch})
            stage.other.refused("NOT_HOLDER", f"/runs/{run}/{verb}", {"epoch": epoch})
    traces = _traces(run)
    assert {trace[:4] for trace in traces} == {
        ("CONFLICT", "heartbeat", stage.holder.principal.pk, epoch),
        ("NOT_HOLDER", "heartbeat", stage.other.principal.pk, epoch),
    }
    assert len(traces) == len({(trace[0], trace[4]) for trace in traces})


def test_the_next_minute_leaves_another_trace(stage: Stage) -> None:
    scene = make_scene(stage, "todo_released")
    run, epoch = scene.claim["run"]["id"], scene.claim["lease"]["epoch"]
    # The log takes no changes, so the trace of a minute ago is written as it would have been.
    sql(
        "WITH e AS (INSERT INTO coordination_event (organization_id, kind, task_id, run_id, data, created_at)"
        " SELECT organization_id, 'run.refused', task_id, id, '{\"code\": \"CONFLICT\"}',"
        " clock_timestamp() - interval '1 min' FROM coordination_run WHERE id = %s RETURNING *)"
        " INSERT INTO coordination_event_unnumbered (seq, organization_id, event_id, event_created_at)"
        " SELECT seq, organization_id, id, created_at FROM e",
        uuid_of(run),
    )
    stage.holder.refused("CONFLICT", f"/runs/{run}/heartbeat", {"epoch": epoch})
    assert len(_traces(run)) == 2


def test_a_refused_write_under_an_idempotency_key_leaves_its_trace_too(stage: Stage) -> None:
    scene = make_scene(stage, "todo_released")
    run, epoch = scene.claim["run"]["id"], scene.claim["lease"]["epoch"]
    for _ in range(2):
        stage.holder.refused(
            "CONFLICT", f"/runs/{run}/complete", {"epoch": epoch}, headers={"Idempotency-Key": "lost-1"}
        )
    assert len(_traces(run)) in (1, 2)


def test_what_is_no_agents_write_leaves_no_trace(stage: Stage) -> None:
    seq = last_seq()
    held = make_scene(stage, "held")
    stage.holder.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": held.task_id})
    stage.holder.refused("VALIDATION_ERROR", f"/runs/{held.claim['run']['id']}/heartbeat", {"epoch": "1"})
    assert (
        sql("SELECT count(*) FROM coordination_event WHERE seq > %s AND kind = 'run.refused'", seq)[0][0] == 0
    )
    assert set(ENDS) <= set(STATES)
