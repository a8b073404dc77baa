"""A task and its dependency at the same moment: whoever comes second sees what the first did."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from coordination import runs, tasks
from coordination.callers import by_principal

from .clockwork import uuid_of
from .locking import LOCK_TASK, Work, second_connection, wait_until_blocked
from .scenes import Scene, Stage, make_scene, set_stage
from .servers import Server


@pytest.fixture
def stage(web: Server) -> Iterator[Stage]:
    """A stage of its own, so that a claim of anything finds what the test made."""
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


def completes(scene: Scene) -> Any:
    """The holder's completion as a rule, to be held open in a transaction."""
    claim = scene.claim
    return runs.complete(
        by_principal(scene.stage.holder.principal.pk),
        uuid_of(claim["run"]["id"]),
        epoch=claim["lease"]["epoch"],
    )


def test_a_dependent_made_while_its_dependency_completes_finds_it_done(stage: Stage) -> None:
    scene = make_scene(stage, "held")
    with transaction.atomic():
        completes(scene)
        making = Work(lambda: stage.other.create("Comes after", depends_on=[scene.task_id]))
        wait_until_blocked()
    made = making.outcome()
    assert (made["status"], made["open_dependencies"]) == ("todo", 0)
    assert stage.other.claim(task_id=made["id"])


def test_completion_frees_a_dependent_that_was_made_while_it_waited(stage: Stage) -> None:
    scene = make_scene(stage, "held")
    path, body = f"/runs/{scene.claim['run']['id']}/complete", {"epoch": scene.claim["lease"]["epoch"]}
    with transaction.atomic():
        made = tasks.create(stage.other.caller, title="Comes after", depends_on=[scene.task])
        completion = Work(lambda: stage.holder.post(path, body))
        wait_until_blocked()
    completion.outcome()
    shown = stage.other.get(f"/tasks/task_{made.pk.hex}")
    assert (shown["status"], shown["open_dependencies"]) == ("todo", 0)
    assert stage.other.claim(task_id=shown["id"])


@pytest.mark.parametrize("first", ["create", "cancel"])
def test_a_dependent_made_while_its_dependency_is_cancelled_is_blocked(stage: Stage, first: str) -> None:
    scene = make_scene(stage, "todo")
    if first == "create":
        with transaction.atomic():
            made = f"task_{tasks.create(stage.other.caller, title='After', depends_on=[scene.task]).pk.hex}"
            cancelling = Work(lambda: stage.holder.post(f"/tasks/{scene.task_id}/cancel"))
            wait_until_blocked()
        cancelling.outcome()
    else:
        with transaction.atomic():
            tasks.cancel(stage.holder.caller, scene.task)
            making = Work(lambda: stage.other.create("After", depends_on=[scene.task_id]))
            wait_until_blocked()
        made = making.outcome()["id"]
    shown = stage.other.get(f"/tasks/{made}")
    assert (shown["status"], shown["open_blockers"]) == ("blocked", 1)
    assert shown["waits_for"][0]["kind"] == "dependency"


def test_cancellation_blocks_a_dependent_that_is_reopened_while_it_waits(stage: Stage) -> None:
    """The dependent was over when the cancellation looked, and is open when it has its lock."""
    first = make_scene(stage, "todo")
    after = Scene(stage).create(depends_on=[first.task_id])
    stage.holder.post(f"/tasks/{after.task_id}/cancel")
    with transaction.atomic():
        tasks.reopen(stage.human.caller, after.task)
        cancelling = Work(lambda: stage.holder.post(f"/tasks/{first.task_id}/cancel"))
        wait_until_blocked()
    cancelling.outcome()
    assert [wait["kind"] for wait in after.shown["waits_for"]] == ["dependency", "dependency"]
    assert (after.shown["status"], after.shown["open_blockers"]) == ("blocked", 1)


def _complete(first: Scene, after: list[Scene]) -> Any:
    return first.send("complete")


def _cancel(first: Scene, after: list[Scene]) -> Any:
    return first.stage.holder.post(f"/tasks/{first.task_id}/cancel")


def _reopen(first: Scene, after: list[Scene]) -> Any:
    return first.by_human(tasks.reopen)


def _create(first: Scene, after: list[Scene]) -> Any:
    return first.stage.holder.create("Last", depends_on=[scene.task_id for scene in reversed(after)])


# How the first task stands, and the move that locks the two which depend on it.
SEVERAL: dict[str, tuple[str, Any]] = {
    "complete": ("held", _complete),
    "cancel": ("held", _cancel),
    "reopen": ("done", _reopen),
    "create": ("todo", _create),
}


@pytest.mark.parametrize("move", SEVERAL)
def test_several_tasks_are_locked_in_the_order_of_their_ids(stage: Stage, move: str) -> None:
    """Who waits for the one with the lower id holds none with a higher id; so nobody waits in a circle."""
    state, make = SEVERAL[move]
    first = make_scene(stage, "held" if state == "done" else state)
    after = [Scene(stage).create(depends_on=[first.task_id]) for _ in range(2)]
    if state == "done":
        first.send("complete")
    low, high = sorted(scene.task for scene in after)
    with second_connection() as other, second_connection() as third:
        # A later version of the row comes after the other one in the table.
        other.run("UPDATE coordination_task SET description = 'Changed.' WHERE id = %s", low)
        other.commit()
        other.lock_task(low)
        moving = Work(lambda: make(first, after))
        wait_until_blocked(other)
        assert third.run(f"{LOCK_TASK} NOWAIT", high)
        third.commit()
        other.commit()
        moving.outcome()
