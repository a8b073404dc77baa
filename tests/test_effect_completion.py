"""A task is done only when it is known what came of everything that cannot be taken back."""

from typing import Any

import pytest
from django.db import IntegrityError

from coordination import takeovers, tasks
from coordination.models import Run, User

from . import acting
from .acting import PUBLISH
from .cast import Agent, Company
from .clockwork import pass_time, sql
from .effecting import READ, WIPE, authorize, counters, list_tools, new_person, reconcile, report, seat
from .scenes import Scene, Stage, human_ends, to_self


@pytest.fixture(scope="module")
def person(database: None) -> User:
    return new_person()


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, person: User) -> Stage:
    human = seat(company, person, "admin")
    list_tools(company)
    acting.rule(company, "allow")
    return Stage(company, agent, other, human)


@pytest.fixture
def scene(stage: Stage) -> Scene:
    """A held task."""
    return Scene(stage).create().hold()


@pytest.fixture
def authorized(scene: Scene) -> dict[str, Any]:
    """The effects of the holder that have no outcome yet, by kind."""
    actions = {"outward": PUBLISH, "destructive": WIPE, "other": READ}
    made = {kind: authorize(scene.stage.holder, scene.claim, action) for kind, action in actions.items()}
    assert {kind: effect["kind"] for kind, effect in made.items()} == {kind: kind for kind in made}
    report(scene.stage.holder, authorize(scene.stage.holder, scene.claim))
    assert counters(scene.claim) == (2, 3)
    return made


@pytest.mark.parametrize("claim_next", [False, True])
@pytest.mark.parametrize("action", [PUBLISH, WIPE], ids=["outward", "destructive"])
def test_completion_waits_for_what_cannot_be_taken_back(scene: Scene, action: Any, claim_next: bool) -> None:
    scene.act(action)
    scene.stage.holder.create("Next")
    path = f"/runs/{scene.claim['run']['id']}/complete"
    body = {"epoch": scene.claim["lease"]["epoch"], "claim_next": claim_next}
    for outcome in (None, "unknown"):
        if outcome:
            scene.report(outcome)
        error = scene.stage.holder.refused("EFFECTS_UNRECONCILED", path, body)
        assert error["details"]["open_effects"] == 1
    scene.report("failed")
    assert scene.stage.holder.post(path, body)["task"]["status"] == "done"


def test_completion_does_not_wait_for_what_does_no_harm(scene: Scene) -> None:
    effect = authorize(scene.stage.holder, scene.claim, READ)
    assert counters(scene.claim) == (0, 1)
    scene.send("complete")
    assert acting.status_of(effect) == "authorized"
    assert counters(scene.claim) == (0, 0)
    assert report(scene.stage.holder, effect)["late"] is True
    assert counters(scene.claim) == (0, 0)


def test_a_human_reconciles_what_nobody_reported(scene: Scene, authorized: dict[str, Any]) -> None:
    scene.send("release")
    claim = scene.stage.other.claim(task_id=scene.task_id)
    shown = {effect["id"] for effect in claim["context"]["effects"] if effect["status"] == "unknown"}
    assert shown == {effect["id"] for effect in authorized.values()}
    path, body = f"/runs/{claim['run']['id']}/complete", {"epoch": claim["lease"]["epoch"]}
    scene.stage.other.refused("EFFECTS_UNRECONCILED", path, body)
    reconcile(scene.stage.human, authorized["outward"], "failed", "It is not on the page.")
    scene.stage.other.refused("EFFECTS_UNRECONCILED", path, body)
    reconcile(scene.stage.human, authorized["destructive"], "compensated", "Put back by hand.")
    assert scene.stage.other.post(path, body)["task"]["status"] == "done"
    found = scene.stage.holder.get(f"/effects/{authorized['outward']['id']}")
    assert (found["status"], found["late"], found["note"]) == ("failed", False, "It is not on the page.")
    assert found["reconciled_by_user_id"] == f"user_{scene.stage.human.user.pk.hex}"


def test_a_person_who_took_over_waits_too(scene: Scene, authorized: dict[str, Any]) -> None:
    scene.by_human(takeovers.take_over, **to_self(scene))
    run = Run.objects.get(task_id=scene.task, ended_at=None)
    with pytest.raises(Exception, match="EFFECTS_UNRECONCILED"):
        human_ends(scene.stage.human, "complete", run.pk, run.epoch)
    for effect in authorized.values():
        reconcile(scene.stage.human, effect)
    human_ends(scene.stage.human, "complete", run.pk, run.epoch)
    assert scene.shown["status"] == "done"


def test_a_reopened_task_still_waits_for_what_is_unknown(scene: Scene, authorized: dict[str, Any]) -> None:
    scene.stage.holder.post(f"/tasks/{scene.task_id}/cancel")
    scene.by_human(tasks.reopen)
    assert counters(scene.claim) == (2, 0)
    scene.hold()
    path, body = f"/runs/{scene.claim['run']['id']}/complete", {"epoch": scene.claim["lease"]["epoch"]}
    scene.stage.holder.refused("EFFECTS_UNRECONCILED", path, body)
    for effect in authorized.values():
        report(scene.stage.holder, effect)
    assert scene.stage.holder.post(path, body)["task"]["status"] == "done"


def test_a_task_done_and_reopened_counts_from_nothing(scene: Scene) -> None:
    effect = authorize(scene.stage.holder, scene.claim, READ)
    scene.send("complete")
    scene.by_human(tasks.reopen)
    scene.hold()
    authorize(scene.stage.holder, scene.claim, READ)
    assert counters(scene.claim) == (0, 1)
    # An earlier run's effect is no part of this one's count, and was never made unknown by its success.
    report(scene.stage.holder, effect)
    assert counters(scene.claim) == (0, 1)
    scene.send("fail", {"error": "no network"})
    pass_time(scene.task_id, "backoff_until")
    assert acting.status_of(effect) == "succeeded"


@pytest.mark.parametrize(
    "change",
    [
        "status = 'done', finished_at = clock_timestamp()",
        "status = 'todo'",
        "unreported_effects = -1",
        "open_effects = -1",
    ],
)
def test_the_database_itself_keeps_a_task_from_forgetting_its_effects(scene: Scene, change: str) -> None:
    scene.act()
    with pytest.raises(IntegrityError):
        sql(f"UPDATE coordination_task SET {change} WHERE id = %s", scene.task)
