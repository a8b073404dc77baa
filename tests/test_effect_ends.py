"""However a run ends, its effects without an outcome are unknown from then on, and hold up what must wait for them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from approvals import effects, outcomes
from approvals.actions import Action
from coordination import identity, leasing, runs, sweeping, takeovers, tasks
from coordination.callers import by_principal
from coordination.models import Membership, Run, User
from titen.api.doors import transact

from . import acting
from .acting import PUBLISH
from .cast import Agent, Company, Human
from .clockwork import kinds_since, last_seq, let_lease_run_out, rows_of, uuid_of
from .effecting import READ, WIPE, authorize, counters, list_tools, new_person, report, seat
from .passing import accept, hand_task
from .scenes import Scene, Stage, to_self


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


def _take_over(scene: Scene, **more: Any) -> None:
    epoch = scene.claim["lease"]["epoch"]
    scene.by_human(takeovers.take_over, reason="It is stuck.", epoch=epoch, **more)


def _waiting(verb: str, **body: Any) -> Callable[[Scene], Any]:
    def end(scene: Scene) -> None:
        scene.ask().send(verb, body)

    return end


def _revoke(scene: Scene) -> None:
    lease = uuid_of(scene.claim["lease"]["lease_id"])
    transact(lambda: leasing.revoke(scene.stage.human.caller, lease, reason="It is frozen."))


def _hand_off(scene: Scene) -> None:
    accept(scene.stage.other, hand_task(scene.claim, scene.stage.holder, scene.stage.other))


def _claim_next(scene: Scene) -> None:
    """Another's completion claims, and what has run out is what it gets."""
    other = scene.stage.other
    claim = other.claim(task_id=other.create("Something else")["id"])
    let_lease_run_out(scene.claim)
    body = {"epoch": claim["lease"]["epoch"], "claim_next": True}
    answer = other.post(f"/runs/{claim['run']['id']}/complete", body)
    assert answer["next"]["task"]["id"] == scene.task_id


# How a run can end, but for success: the end, and the status of the run.
ENDS: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "fail": (lambda s: s.send("fail", {"error": "no network"}), "failed"),
    "fail for good": (lambda s: s.send("fail", {"error": "no network", "retryable": False}), "failed"),
    "fail and claim the next": (lambda s: s.send("fail", {"error": "x", "claim_next": True}), "failed"),
    "fail while waiting": (_waiting("fail", error="no network"), "failed"),
    "release": (lambda s: s.send("release"), "released"),
    "release with a checkpoint": (lambda s: s.send("release", {"checkpoint": {"step": 3}}), "released"),
    "release and claim the next": (lambda s: s.send("release", {"claim_next": True}), "released"),
    "release while waiting": (_waiting("release"), "released"),
    "sweep": (lambda s: s.let_run_out().sweep(), "abandoned"),
    "sweep of all": (lambda s: (s.let_run_out(), sweeping.sweep()), "abandoned"),
    "sweep while waiting": (lambda s: s.ask().let_run_out().sweep(), "parked"),
    "run out, and a human moves the task": (
        lambda s: s.let_run_out().by_human(tasks.set_priority, priority=3),
        "abandoned",
    ),
    "run out, and somebody claims the task": (
        lambda s: s.let_run_out().stage.other.claim(task_id=s.task_id),
        "abandoned",
    ),
    "run out, and somebody claims anything": (lambda s: s.let_run_out().stage.other.claim(), "abandoned"),
    "run out, and somebody claims the next": (_claim_next, "abandoned"),
    "takeover to the queue": (lambda s: _take_over(s, to=None), "superseded"),
    "takeover to an agent": (lambda s: _take_over(s, to=s.stage.other.principal), "superseded"),
    "takeover to oneself": (lambda s: s.by_human(takeovers.take_over, **to_self(s)), "superseded"),
    "cancel": (lambda s: s.stage.holder.post(f"/tasks/{s.task_id}/cancel"), "cancelled"),
    "handoff": (_hand_off, "handed_off"),
    "revoked lease": (_revoke, "superseded"),
    "disabled principal": (
        lambda s: transact(lambda: identity.disable_principal(s.stage.holder.principal)),
        "superseded",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_has_no_outcome_is_unknown_when_the_run_ends(
    scene: Scene, authorized: dict[str, Any], end: str
) -> None:
    work, status = ENDS[end]
    seq = last_seq()
    work(scene)
    other = scene.stage.other
    assert other.get(f"/runs/{scene.claim['run']['id']}")["status"] == status
    for effect in authorized.values():
        shown = other.get(f"/effects/{effect['id']}")
        assert (shown["status"], shown["late"], shown["outcome_at"] is None) == ("unknown", False, False)
    kinds = [kind for kind in kinds_since(scene.task_id, seq) if kind.startswith("effect.")]
    assert kinds == ["effect.unknown"] * 3
    assert counters(scene.claim) == (2, 0)
    assert len(acting.effects_of(other, status="succeeded")) == 1


@pytest.mark.parametrize("end", [end for end in ENDS if end != "disabled principal"])
def test_a_late_report_moves_nothing_but_the_effect(
    scene: Scene, authorized: dict[str, Any], end: str
) -> None:
    ENDS[end][0](scene)
    before, seq = _rest_of(scene), last_seq()
    held_up = 2
    for kind, effect in authorized.items():
        told = report(scene.stage.holder, effect, "failed", note="It never came through.")
        assert (told["status"], told["late"], told["note"]) == ("failed", True, "It never came through.")
        held_up -= kind != "other"
        assert counters(scene.claim) == (held_up, 0)
    assert _rest_of(scene) == before
    assert kinds_since(scene.task_id, seq) == ["effect.failed"] * 3


def _rest_of(scene: Scene) -> Any:
    """All that the database keeps of the task besides its effects, and how many hold it up."""
    rows = json.loads(rows_of(scene.task_id))
    del rows["effects"], rows["task"]["open_effects"]
    return rows


def test_a_report_after_the_end_of_the_lease_that_nobody_wrote_down_is_late(
    scene: Scene, authorized: dict[str, Any]
) -> None:
    let_lease_run_out(scene.claim)
    seq = last_seq()
    assert report(scene.stage.holder, authorized["outward"])["late"] is True
    kinds = ["task.abandoned", *["effect.unknown"] * 3, "effect.succeeded"]
    assert kinds_since(scene.task_id, seq) == kinds
    assert counters(scene.claim) == (1, 0)


def test_a_late_report_does_not_count_for_the_run_that_followed(
    scene: Scene, authorized: dict[str, Any]
) -> None:
    scene.send("release")
    following = scene.stage.other.claim(task_id=scene.task_id)
    authorize(scene.stage.other, following, WIPE)
    assert counters(scene.claim) == (3, 1)
    for effect in authorized.values():
        report(scene.stage.holder, effect)
    assert counters(scene.claim) == (1, 1)
    scene.stage.other.post(
        f"/runs/{following['run']['id']}/fail", {"epoch": following["lease"]["epoch"], "error": "x"}
    )
    assert counters(scene.claim) == (1, 0)


def test_effects_of_a_person_are_unknown_when_the_membership_ends(scene: Scene) -> None:
    human = scene.stage.company.human("operator")
    stage = Stage(scene.stage.company, scene.stage.holder, scene.stage.other, human)
    scene = Scene(stage, task_id=scene.task_id, claim=scene.claim)
    scene.by_human(takeovers.take_over, **to_self(scene))
    effect = _act_as(human, scene)
    assert counters(scene.claim) == (1, 1)
    membership = Membership.objects.get(user=human.user, organization=human.organization)
    transact(lambda: identity.end_membership(membership))
    assert acting.status_of({"id": effect}) == "unknown"
    assert counters(scene.claim) == (1, 0)


def test_effects_of_a_person_are_unknown_when_they_stay_away(scene: Scene) -> None:
    scene.by_human(takeovers.take_over, **to_self(scene))
    effect = _act_as(scene.stage.human, scene)
    lease = Run.objects.get(task_id=scene.task, ended_at=None).lease_id
    let_lease_run_out({"lease": {"lease_id": f"lease_{lease.hex}"}})
    scene.sweep()
    assert acting.status_of({"id": effect}) == "unknown"
    assert counters(scene.claim) == (1, 0)


def _act_as(human: Human, scene: Scene) -> str:
    """A person's effect under their own run; its id."""
    run = Run.objects.get(task_id=scene.task, ended_at=None)
    made = transact(
        lambda: effects.authorize(
            human.caller, run_id=run.pk, epoch=run.epoch, action=Action("publish"), effect_key="mine"
        )
    )
    return f"eff_{made.pk.hex}"


# The end and what it means for effects are one transaction


def _by_rule(rule: Callable[..., Any], **more: Any) -> Callable[[Scene], Any]:
    def end(scene: Scene) -> Any:
        run, epoch = uuid_of(scene.claim["run"]["id"]), scene.claim["lease"]["epoch"]
        return rule(by_principal(scene.stage.holder.principal.pk), run, epoch=epoch, **more)

    return end


@pytest.mark.parametrize(
    "end",
    [
        _by_rule(runs.fail, error="no network"),
        _by_rule(runs.release),
        _by_rule(runs.release, checkpoint={"step": 1}),
        lambda scene: scene.let_run_out().sweep(),
        lambda scene: _take_over(scene, to=None),
        lambda scene: transact(lambda: tasks.cancel(scene.stage.other.caller, scene.task)),
    ],
    ids=["fail", "release", "release with a checkpoint", "sweep", "takeover", "cancel"],
)
def test_no_run_ends_without_its_effects(
    scene: Scene, authorized: dict[str, Any], end: Callable[[Scene], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seq = last_seq()

    def break_down(run_ids: Any) -> None:
        assert [run_id.hex for run_id in run_ids] == [scene.claim["run"]["id"].removeprefix("run_")]
        raise ZeroDivisionError

    monkeypatch.setattr(outcomes, "run_ended", break_down)
    with pytest.raises(ZeroDivisionError):
        end(scene)
    assert kinds_since(scene.task_id, seq) == []
    assert Run.objects.get(task_id=scene.task).status == "running"
    assert counters(scene.claim) == (2, 3)


def test_many_runs_that_ran_out_are_settled_together(stage: Stage) -> None:
    scenes = [Scene(stage).create().hold() for _ in range(3)]
    for scene in scenes[:2]:
        scene.act().act(READ)
    for scene in scenes:
        scene.let_run_out()
    sweeping.sweep_batch(organization_id=stage.company.organization.pk)
    assert [counters(scene.claim) for scene in scenes] == [(1, 0), (1, 0), (0, 0)]
    assert len(acting.effects_of(stage.holder, status="unknown")) == 4
