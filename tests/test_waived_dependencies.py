"""What a human waived stays waived, and `pause` is announced as long as somebody asked for it, no longer."""

from collections.abc import Callable

import pytest

from coordination import takeovers, tasks

from .cast import Agent, Company, Human
from .scenes import Scene, Stage, make_scene


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


def _unblock(scene: Scene) -> None:
    scene.by_human(tasks.unblock)


def _take_over(scene: Scene) -> None:
    scene.by_human(takeovers.take_over, to=None, reason="Do it anyway.", epoch=scene.shown["epoch"])


@pytest.mark.parametrize("waive", [_unblock, _take_over])
def test_a_waived_dependency_does_not_return_when_it_is_done_and_reopened(
    stage: Stage, waive: Callable[[Scene], None]
) -> None:
    first = make_scene(stage, "todo")
    after = Scene(stage).create(depends_on=[first.task_id])
    first.by_human(tasks.cancel)
    waive(after)
    first.by_human(tasks.reopen)
    first.hold().send("complete")
    first.by_human(tasks.reopen)
    assert (after.shown["open_dependencies"], after.shown["waits_for"]) == (0, [])
    # Nor when it is cancelled once more.
    first.by_human(tasks.cancel)
    assert (after.shown["status"], after.shown["open_blockers"]) == ("todo", 0)
    assert stage.other.claim(task_id=after.task_id)


def test_a_dependency_that_nobody_waived_does_return(stage: Stage) -> None:
    """Also beside one that was waived."""
    waived, kept = make_scene(stage, "todo"), make_scene(stage, "todo")
    after = Scene(stage).create(depends_on=[waived.task_id, kept.task_id])
    waived.by_human(tasks.cancel)
    _unblock(after)
    waived.by_human(tasks.reopen)
    for scene in (waived, kept):
        scene.hold().send("complete")
        scene.by_human(tasks.reopen)
    assert [wait["task_id"] for wait in after.shown["waits_for"]] == [kept.task_id]


def test_pause_ends_with_the_blocker_that_asked_for_it(stage: Stage) -> None:
    """A question that is still open lets the run wait; it does not ask it to stop."""
    scene = make_scene(stage, "held").ask()
    scene.by_human(tasks.block, sentence="Stop, please.")
    assert scene.send("heartbeat")["directives"] == ["pause"]
    scene.by_human(tasks.unblock)
    beat = scene.send("heartbeat")
    assert (beat["directives"], beat["run"]["status"]) == ([], "waiting")
    scene.decide()
    assert scene.send("heartbeat")["run"]["status"] == "running"


def test_pause_outlives_the_other_blockers(stage: Stage) -> None:
    scene = make_scene(stage, "held").ask()
    scene.by_human(tasks.block, sentence="Stop, please.")
    scene.decide()
    assert scene.send("heartbeat")["directives"] == ["pause"]
