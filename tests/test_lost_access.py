"""A disabled principal stops at once; a revoked or expired key lets its leases run out."""

from typing import Any

import pytest

from coordination import identity
from coordination.models import ApiKey
from titen.api.doors import transact

from .cast import Agent, Company, Human
from .clockwork import kinds_since, last_seq, sql
from .scenes import Scene, Stage, make_scene


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


# state -> the task after its holder was disabled
STATES = {"held": "todo", "awaiting_approval": "blocked", "held_and_blocked_by_hand": "blocked"}


@pytest.mark.parametrize("state", STATES)
def test_a_disabled_principal_loses_its_leases_at_once(stage: Stage, state: str) -> None:
    scene = make_scene(stage, state)
    done = make_scene(stage, "done")
    seq = last_seq()
    transact(lambda: identity.disable_principal(stage.holder.principal))
    assert kinds_since(scene.task_id, seq) == ["task.superseded"]
    shown = stage.other.get(f"/tasks/{scene.task_id}")
    assert (shown["status"], shown["standing"], shown["attempt_count"]) == (STATES[state], None, 0)
    run = stage.other.get(f"/runs/{scene.claim['run']['id']}")
    assert (run["status"], run["lease"]["end_reason"]) == ("superseded", "revoked")
    assert stage.other.get(f"/tasks/{done.task_id}")["status"] == "done"


@pytest.mark.parametrize("path", ["/tasks/claim", "/runs/{run}/heartbeat", "/tasks", "/runs/{run}/complete"])
def test_its_keys_work_no_more(stage: Stage, path: str) -> None:
    scene = make_scene(stage, "held")
    transact(lambda: identity.disable_principal(stage.holder.principal))
    body: dict[str, Any] = {"epoch": 1} if "runs" in path else {}
    stage.holder.refused("UNAUTHENTICATED", path.format(run=scene.claim["run"]["id"]), body)


def test_another_agent_goes_on_with_what_it_held(stage: Stage) -> None:
    scene = make_scene(stage, "held")
    transact(lambda: identity.disable_principal(stage.holder.principal))
    assert stage.other.claim()["lease"]["epoch"] == scene.claim["lease"]["epoch"] + 1


def _revoke(agent: Agent) -> None:
    key = ApiKey.objects.get(principal=agent.principal)
    transact(lambda: identity.revoke_key(agent.principal.organization_id, key.pk))


def _expire(agent: Agent) -> None:
    sql(
        "UPDATE coordination_apikey SET expires_at = clock_timestamp() WHERE principal_id = %s",
        agent.principal.pk,
    )


@pytest.mark.parametrize("end", [_revoke, _expire])
def test_a_key_that_ended_lets_its_leases_run_out(stage: Stage, end: Any) -> None:
    scene = make_scene(stage, "held")
    end(stage.holder)
    stage.holder.refused("UNAUTHENTICATED", f"/runs/{scene.claim['run']['id']}/heartbeat", {"epoch": 1})
    assert stage.other.get(f"/tasks/{scene.task_id}")["standing"]["holder"] == "ada"
    assert stage.other.claim() is None
    scene.let_run_out()
    assert stage.other.claim()["task"]["id"] == scene.task_id


def test_a_second_key_of_the_same_agent_goes_on_with_its_run(stage: Stage) -> None:
    scene = make_scene(stage, "held")
    _, secret = identity.issue_key(stage.holder.principal, scopes=["*"])
    first = ApiKey.objects.filter(principal=stage.holder.principal).earliest("created_at")
    transact(lambda: identity.revoke_key(stage.holder.principal.organization_id, first.pk))
    second = Agent(stage.holder.principal, secret, stage.holder.url)
    second.post(f"/runs/{scene.claim['run']['id']}/complete", {"epoch": 1})
    assert second.get(f"/tasks/{scene.task_id}")["status"] == "done"
    second.close()


# ---- ends without progress


def fruitless(scene: Scene, how: str) -> None:
    """One more run that ends without progress."""
    scene.hold()
    if how == "release":
        scene.send("release")
    else:
        scene.ask().let_run_out()
        if how == "park":
            scene.sweep()
        scene.decide()


@pytest.mark.parametrize("how", ["release", "park", "park, not swept"])
def test_ten_ends_in_a_row_without_progress_block_the_task(stage: Stage, how: str) -> None:
    scene = Scene(stage).create()
    for _ in range(9):
        fruitless(scene, how)
        assert scene.shown["status"] == "todo"
    fruitless(scene, how)
    shown = scene.shown
    assert (shown["status"], shown["attempt_count"]) == ("blocked", 0)
    assert [wait["kind"] for wait in shown["waits_for"]] == ["attempts"]
    assert "without progress" in shown["waits_for"][0]["sentence"]


@pytest.mark.parametrize("sign", ["progress", "checkpoint", "failure"])
def test_a_sign_of_progress_starts_the_count_anew(stage: Stage, sign: str) -> None:
    scene = Scene(stage).create(max_attempts=100)
    for _ in range(9):
        fruitless(scene, "release")
    scene.hold()
    if sign == "progress":
        scene.send("heartbeat", {"progress": 1})
        scene.send("release")
    elif sign == "checkpoint":
        scene.send("release", {"checkpoint": {"step": 1}})
    else:
        scene.send("fail", {"error": "no network"})
        sql("UPDATE coordination_task SET backoff_until = NULL WHERE id = %s", scene.task)
    for _ in range(9):
        fruitless(scene, "release")
    assert scene.shown["status"] == "todo"
