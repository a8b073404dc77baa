"""Claims, sweepers and locked tasks: nothing is passed over for good, and nobody waits without need."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from coordination import claims, runs, statements, sweeping
from coordination.callers import by_principal

from .clockwork import kinds_since, last_seq, sql, uuid_of
from .locking import COMMENT, LOCK_TASK, Work, second_connection, together, wait_until_blocked
from .scenes import Scene, Stage, make_scene, set_stage
from .servers import Server


@pytest.fixture
def stage(web: Server) -> Iterator[Stage]:
    """A stage of its own, so that a claim of anything finds what the test made."""
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


def test_a_claim_does_not_pass_over_a_task_that_somebody_comments_on(stage: Stage) -> None:
    scene = make_scene(stage, "todo")
    with second_connection() as other:
        # The foreign key's lock on the task, which an ordinary INSERT takes when it commits, is taken now.
        other.run("SET CONSTRAINTS ALL IMMEDIATE")
        other.run(COMMENT, scene.task)
        assert stage.holder.claim()["task"]["id"] == scene.task_id
        other.commit()


def test_a_claim_passes_over_a_locked_task_to_the_next(stage: Stage) -> None:
    first = stage.holder.create("First", priority=5)["id"]
    second = stage.holder.create("Second")["id"]
    with second_connection() as other:
        other.lock_task(uuid_of(first))
        assert stage.holder.claim()["task"]["id"] == second


def test_nothing_is_said_only_after_the_locked_tasks_were_waited_for(stage: Stage) -> None:
    only = make_scene(stage, "todo")
    with second_connection() as other:
        other.lock_task(only.task)
        claim = Work(stage.holder.claim)
        wait_until_blocked(other)
        other.commit()
        assert claim.outcome()["task"]["id"] == only.task_id
    again = make_scene(stage, "todo")
    with transaction.atomic():
        assert claims.claim(by_principal(stage.other.principal.pk))
        late = Work(stage.holder.claim)
        wait_until_blocked()
    assert late.outcome() is None
    assert again.shown["standing"]["holder"] == "other"


def test_who_lost_all_that_it_saw_looks_behind_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a claim waits for the first of the many it saw, others take them all: there may be more."""
    monkeypatch.setattr(statements, "DEPTH", "2")
    monkeypatch.setattr(statements, "claim", statements.claim.__wrapped__)
    made = [stage.holder.create(f"Task {number}")["id"] for number in range(4)]
    with second_connection() as other:
        for task in made[:3]:
            other.lock_task(uuid_of(task))
        sql(
            "UPDATE coordination_task SET not_before = clock_timestamp() + interval '1 h' WHERE id = %s",
            uuid_of(made[3]),
        )
        claim = Work(lambda: claims.claim(by_principal(stage.holder.principal.pk)))
        wait_until_blocked(other)
        sql("UPDATE coordination_task SET not_before = NULL WHERE id = %s", uuid_of(made[3]))
        for task in made[:3]:
            other.run(
                "UPDATE coordination_task SET not_before = clock_timestamp() + interval '1 h' WHERE id = %s",
                uuid_of(task),
            )
        other.commit()
        assert claim.outcome()["task_id"] == uuid_of(made[3])


def test_a_claim_that_waits_for_one_task_holds_no_other(stage: Stage) -> None:
    """It would hold them in the order of the queue, and who locks in the order of ids would deadlock."""
    first = uuid_of(stage.holder.create("First", priority=5)["id"])
    second = uuid_of(stage.holder.create("Second")["id"])
    with second_connection() as other, second_connection() as third:
        other.lock_task(first)
        third.lock_task(second)
        claim = Work(lambda: claims.claim(by_principal(stage.holder.principal.pk)))
        wait_until_blocked(other)
        other.run(
            "UPDATE coordination_task SET not_before = clock_timestamp() + interval '1 h' WHERE id = %s",
            first,
        )
        other.commit()
        wait_until_blocked(third)
        assert third.run(f"{LOCK_TASK} NOWAIT", first)
        third.commit()
        assert claim.outcome()["task_id"] == second


@pytest.mark.parametrize("end", ["release", "complete"])
def test_a_claim_of_one_task_waits_for_its_holder_to_end(stage: Stage, end: str) -> None:
    scene = make_scene(stage, "held")
    run, epoch = uuid_of(scene.claim["run"]["id"]), scene.claim["lease"]["epoch"]
    rule: Any = {"release": runs.release, "complete": runs.complete}[end]
    with transaction.atomic():
        rule(by_principal(stage.holder.principal.pk), run, epoch=epoch)
        late = Work(lambda: stage.other.send("POST", "/tasks/claim", {"task_id": scene.task_id}))
        wait_until_blocked()
    answer = late.outcome()
    if end == "release":
        assert answer.json()["data"]["lease"]["epoch"] == epoch + 1
    else:
        assert answer.json()["error"]["details"]["state"] == "done"


def expired(stage: Stage, count: int) -> list[Scene]:
    """Tasks whose holders are gone."""
    return [make_scene(stage, "held_but_run_out") for _ in range(count)]


def test_a_second_sweeper_takes_what_the_first_has_not(stage: Stage) -> None:
    scenes = expired(stage, 3)
    with transaction.atomic():
        assert sweeping.sweep_batch(task_id=scenes[0].task) == 1
        assert (
            Work(lambda: sweeping.sweep_batch(organization_id=stage.company.organization.pk)).outcome() == 2
        )
    assert sweeping.sweep_batch(organization_id=stage.company.organization.pk) == 0
    assert [scene.shown["attempt_count"] for scene in scenes] == [1, 1, 1]


def test_many_sweepers_at_once_end_each_run_once(stage: Stage) -> None:
    scenes = expired(stage, 24)
    seq = last_seq()
    mine = stage.company.organization.pk
    counts = together(*[lambda: sweeping.sweep_batch(organization_id=mine)] * 6)
    assert sum(counts) == 24
    for scene in scenes:
        assert kinds_since(scene.task_id, seq) == ["task.abandoned"]
        assert (scene.shown["status"], scene.shown["attempt_count"]) == ("todo", 1)


def test_a_sweeper_waits_for_nobody(stage: Stage) -> None:
    scene, other_scene = expired(stage, 2)
    with second_connection() as other:
        other.lock_task(scene.task)
        assert sweeping.sweep_batch(organization_id=stage.company.organization.pk) == 1
    assert other_scene.shown["status"] == "todo"
    assert sweeping.sweep_batch(organization_id=stage.company.organization.pk) == 1
