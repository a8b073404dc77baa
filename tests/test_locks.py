"""The traps of lock waits: what a statement saw before it waited is not what it may act on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .clockwork import last_seq, let_lease_run_out, rows_of, sql, uuid_of
from .locking import LOCK_LEASE, Work, second_connection, until, wait_until_blocked
from .scenes import Scene, Stage, make_scene, question, set_stage
from .servers import Server


@pytest.fixture
def stage(web: Server) -> Iterator[Stage]:
    """A stage of its own, so that a claim of anything finds what the test made."""
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


def twice_blocked(stage: Stage) -> tuple[Scene, str]:
    """A held task with an approval and a question open; the question's id."""
    scene = make_scene(stage, "awaiting_approval")
    body = {
        "body": "Which branch?",
        "blocking": True,
        "run_id": scene.claim["run"]["id"],
        "epoch": scene.claim["lease"]["epoch"],
    }
    return scene, stage.holder.post(f"/tasks/{scene.task_id}/comments", body)["id"]


@pytest.mark.parametrize(
    ("lease", "status", "run"), [("live", "in_progress", "running"), ("over", "todo", "parked")]
)
def test_two_blockers_closed_at_once_wake_the_task_exactly_once(
    stage: Stage, lease: str, status: str, run: str
) -> None:
    scene, comment = twice_blocked(stage)
    if lease == "over":
        let_lease_run_out(scene.claim)
    seq = last_seq()
    with second_connection() as other:
        other.lock_task(scene.task)
        answer = Work(
            lambda: stage.other.post(f"/tasks/{scene.task_id}/comments/{comment}/answer", {"body": "main"})
        )
        wait_until_blocked(other)
        decision = Work(scene.decide)
        wait_until_blocked(other, count=2)
        other.commit()
        answer.outcome()
        decision.outcome()
    shown = scene.shown
    assert (shown["status"], shown["open_blockers"]) == (status, 0)
    assert stage.holder.get(f"/runs/{scene.claim['run']['id']}")["status"] == run
    woken = sql(
        "SELECT count(*) FROM coordination_event WHERE task_id = %s AND seq > %s AND data ->> 'status' = %s",
        scene.task,
        seq,
        status,
    )
    assert woken[0][0] == 1


@pytest.mark.parametrize("claim_next", [False, True])
def test_completion_sees_an_effect_that_began_while_it_waited(stage: Stage, claim_next: bool) -> None:
    scene = make_scene(stage, "held")
    stage.holder.create("Next")
    path = f"/runs/{scene.claim['run']['id']}/complete"
    body = {"epoch": scene.claim["lease"]["epoch"], "claim_next": claim_next}
    with second_connection() as other:
        other.run("UPDATE coordination_task SET open_effects = 1 WHERE id = %s", scene.task)
        completion = Work(lambda: stage.holder.refused("EFFECTS_UNRECONCILED", path, body))
        wait_until_blocked(other)
        other.commit()
        completion.outcome()
    assert scene.shown["status"] == "in_progress"
    sql("UPDATE coordination_task SET open_effects = 0 WHERE id = %s", scene.task)
    assert stage.holder.post(path, body)["task"]["status"] == "done"


def test_completion_sees_an_outcome_that_came_while_it_waited(stage: Stage) -> None:
    """A CHECK is judged on the row as it was before the wait: it must not turn a good move away."""
    scene = make_scene(stage, "authorized")
    with second_connection() as other:
        other.run(
            "UPDATE coordination_task SET open_effects = 0, unreported_effects = 0 WHERE id = %s", scene.task
        )
        other.run(
            "UPDATE approvals_effect SET status = 'succeeded', outcome_at = clock_timestamp() WHERE task_id = %s",
            scene.task,
        )
        completion = Work(lambda: scene.send("complete"))
        wait_until_blocked(other)
        other.commit()
        assert completion.outcome()["task"]["status"] == "done"


def _verb(verb: str, **more: Any) -> Callable[[Scene], Any]:
    def send(scene: Scene) -> Any:
        body = {"epoch": scene.claim["lease"]["epoch"], **more}
        return scene.stage.holder.refused("LEASE_EXPIRED", f"/runs/{scene.claim['run']['id']}/{verb}", body)

    return send


def _ask(scene: Scene) -> Any:
    return scene.stage.holder.refused("LEASE_EXPIRED", "/approvals", question(scene.claim))


WAITERS = {
    "a heartbeat, for its lease": ("lease", _verb("heartbeat", progress=50)),
    "a completion, for its task": ("task", _verb("complete")),
    "a completion, for its lease": ("lease", _verb("complete")),
    "a completion with the next claim": ("task", _verb("complete", claim_next=True)),
    "a failure": ("task", _verb("fail", error="no network")),
    "a release": ("task", _verb("release")),
    "a question": ("task", _ask),
}


@pytest.mark.parametrize("waiter", WAITERS)
def test_who_waits_past_the_own_expiry_is_refused(stage: Stage, waiter: str) -> None:
    """It was in time when it came; it is judged by the clock after the wait. Never a 200 that is undone."""
    scene = make_scene(stage, "held")
    locked, send = WAITERS[waiter]
    lease = uuid_of(scene.claim["lease"]["lease_id"])
    with second_connection() as other:
        if locked == "task":
            other.lock_task(scene.task)
        else:
            other.run(LOCK_LEASE, lease)
            other.run(
                "UPDATE coordination_lease SET expires_at = clock_timestamp() + interval '0.7 s' WHERE id = %s",
                lease,
            )
            other.commit()
            other.run(LOCK_LEASE, lease)
        if locked == "task":
            sql(
                "UPDATE coordination_lease SET expires_at = clock_timestamp() + interval '0.7 s' WHERE id = %s",
                lease,
            )
        before = rows_of(scene.task_id)
        late = Work(lambda: send(scene))
        wait_until_blocked(other)
        overdue = "SELECT expires_at <= clock_timestamp() FROM coordination_lease WHERE id = %s"
        assert not sql(overdue, lease)[0][0], "the machine was too slow for this test"
        until(lambda: sql(overdue, lease)[0][0], "the lease's expiry")
        other.commit()
        late.outcome()
    assert rows_of(scene.task_id) == before
