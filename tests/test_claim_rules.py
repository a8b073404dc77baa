"""Which task a claim gets, and when: capabilities, times, reservations, and the TTL it asks for."""

from typing import Any

import pytest

from coordination import claims, takeovers
from coordination.callers import by_principal
from coordination.models import Organization

from .cast import Agent, Company, Human
from .clockwork import let_lease_run_out, pass_time, rows_of, sql, uuid_of
from .scenes import Scene, Stage


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


def seconds_left(task_id: str, column: str) -> float:
    """How far away a time of the task is, by the database's clock."""
    found = sql(
        f"SELECT extract(epoch FROM {column} - clock_timestamp())::float FROM coordination_task WHERE id = %s",
        uuid_of(task_id),
    )
    return float(found[0][0])


# (what the agent has, its wish, the task's needs) -> it gets the task
FITS = {
    "a task for anybody": ([], None, [], True),
    "all that it needs": (["gpu", "python"], None, ["gpu", "python"], True),
    "more than it needs": (["gpu", "python"], None, ["python"], True),
    "not all that it needs": (["python"], None, ["gpu", "python"], False),
    "nothing that it needs": ([], None, ["python"], False),
    "a wish for less": (["gpu", "python"], ["python"], ["gpu"], False),
    "a wish that fits": (["gpu", "python"], ["python"], ["python"], True),
    "a wish for nothing": (["python"], [], ["python"], False),
}


@pytest.mark.parametrize("case", FITS)
@pytest.mark.parametrize("by_id", [False, True])
def test_an_agent_gets_what_its_capabilities_cover(
    company: Company, agent: Agent, case: str, by_id: bool
) -> None:
    has, wish, needs, fits = FITS[case]
    worker = company.agent(capabilities=has)
    task = agent.create(required_capabilities=needs)["id"]
    body: dict[str, Any] = {"task_id": task} if by_id else {}
    if wish is not None:
        body["capabilities"] = wish
    if fits:
        assert worker.claim(**body)["task"]["id"] == task
    elif by_id:
        worker.refused("NOT_CLAIMABLE", "/tasks/claim", body)
    else:
        assert worker.claim(**body) is None


def test_a_missing_capability_is_named(company: Company, agent: Agent) -> None:
    worker = company.agent(capabilities=["python"])
    task = agent.create(required_capabilities=["gpu", "python"])["id"]
    error = worker.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": task})
    assert error["details"]["waits_for"][-1]["missing"] == ["gpu"]


@pytest.mark.parametrize("verb", ["claim", "complete", "fail", "release"])
def test_a_wish_beyond_the_agents_capabilities_is_refused_before_anything_is_done(
    company: Company, agent: Agent, verb: str
) -> None:
    worker = company.agent(capabilities=["python"])
    task = agent.create()["id"]
    agent.create()
    wish = {"capabilities": ["python", "root"]}
    if verb == "claim":
        path, body = "/tasks/claim", dict[str, Any](wish)
    else:
        claim = worker.claim(task_id=task)
        more: dict[str, Any] = {"error": "no network"} if verb == "fail" else {}
        path = f"/runs/{claim['run']['id']}/{verb}"
        body = {"epoch": claim["lease"]["epoch"], "claim_next": True, **wish, **more}
    before = rows_of(task)
    error = worker.refused("VALIDATION_ERROR", path, body)
    assert list(error["details"]["fields"]) == ["capabilities"]
    assert rows_of(task) == before


def test_heads_of_all_fitting_profiles_are_merged_by_priority_then_age(
    company: Company, agent: Agent
) -> None:
    worker = company.agent(capabilities=["a", "b"])
    made = {
        name: agent.create(name, priority=priority, required_capabilities=needs)["id"]
        for name, priority, needs in (
            ("old", 0, ["a"]),
            ("unfit", 9, ["c"]),
            ("high", 5, ["b"]),
            ("new", 0, []),
            ("both", 5, ["a", "b"]),
            ("low", -1, []),
        )
    }
    got = []
    while claim := worker.claim():
        got.append(claim["task"]["id"])
    assert got == [made[name] for name in ("high", "both", "old", "new", "low")]


def test_a_task_waits_for_its_not_before(agent: Agent) -> None:
    later = agent.create(not_before="2100-01-01T00:00:00Z")["id"]
    assert agent.claim() is None
    error = agent.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": later})
    assert [wait["kind"] for wait in error["details"]["waits_for"]] == ["not_before"]
    pass_time(later, "not_before")
    assert agent.claim()["task"]["id"] == later


def test_a_pause_after_failures_doubles_from_10_seconds_to_10_minutes(agent: Agent) -> None:
    task = agent.create(max_attempts=100)["id"]
    pauses = []
    for _ in range(9):
        claim = agent.claim(task_id=task)
        agent.post(
            f"/runs/{claim['run']['id']}/fail", {"epoch": claim["lease"]["epoch"], "error": "no network"}
        )
        pauses.append(seconds_left(task, "backoff_until"))
        error = agent.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": task})
        assert [wait["kind"] for wait in error["details"]["waits_for"]] == ["backoff"]
        pass_time(task, "backoff_until")
    for pause, right in zip(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600], strict=True):
        assert right - 5 < pause <= right


def test_there_is_no_pause_after_an_abandonment(stage: Stage) -> None:
    scene = Scene(stage).create(priority=3).hold().let_run_out().sweep()
    again = stage.other.claim()
    assert again["task"]["id"] == scene.task_id
    assert (again["lease"]["granted_because"], again["task"]["attempt_count"]) == ("after_expiry", 1)


def test_the_claim_itself_finds_the_work_of_the_dead(stage: Stage) -> None:
    """With no sweeper at all."""
    scene = Scene(stage).create().hold().let_run_out()
    assert stage.other.claim()["task"]["id"] == scene.task_id


REASONS = {"fail": "after_failure", "release": "claim"}


@pytest.mark.parametrize("verb", REASONS)
def test_a_lease_says_why_it_was_granted(stage: Stage, verb: str) -> None:
    scene = Scene(stage).create().hold()
    scene.send(verb, {"error": "no network"} if verb == "fail" else {})
    pass_time(scene.task_id, "backoff_until")
    again = stage.other.claim()
    assert again["lease"]["granted_because"] == REASONS[verb]
    assert again["lease"]["epoch"] == scene.claim["lease"]["epoch"] + 1


def test_a_task_given_to_an_agent_is_kept_for_it_for_15_minutes(stage: Stage) -> None:
    scene = Scene(stage).create()
    scene.by_human(takeovers.take_over, to=stage.other.principal, reason="Yours.", epoch=0)
    assert 14 * 60 < seconds_left(scene.task_id, "reserved_until") <= 15 * 60
    assert stage.holder.claim() is None
    stage.holder.refused("RESERVED", "/tasks/claim", {"task_id": scene.task_id})
    pass_time(scene.task_id, "reserved_until")
    assert stage.holder.claim()["task"]["id"] == scene.task_id


def test_the_agent_that_it_is_kept_for_gets_it(stage: Stage) -> None:
    scene = Scene(stage).create()
    scene.by_human(takeovers.take_over, to=stage.other.principal, reason="Yours.", epoch=0)
    assert stage.other.claim()["task"]["id"] == scene.task_id
    assert sql("SELECT reserved_for_id FROM coordination_task WHERE id = %s", scene.task) == [(None,)]


@pytest.mark.parametrize("swept", [True, False])
def test_who_asked_and_ran_out_gets_the_task_back_for_2_minutes(stage: Stage, swept: bool) -> None:
    scene = Scene(stage).create().hold().ask().let_run_out()
    if swept:
        scene.sweep()
    scene.decide()
    assert 110 < seconds_left(scene.task_id, "reserved_until") <= 120
    assert stage.other.claim() is None
    again = stage.holder.claim()
    assert again["task"]["id"] == scene.task_id
    assert [approval["decision"] for approval in again["context"]["approvals"]] == ["Approve"]


def test_a_task_taken_back_to_the_queue_is_not_offered_to_its_last_holder_for_5_minutes(stage: Stage) -> None:
    scene = Scene(stage).create().hold()
    scene.by_human(takeovers.take_over, to=None, reason="It hangs.", epoch=1)
    assert 4 * 60 < seconds_left(scene.task_id, "avoided_until") <= 5 * 60
    assert stage.holder.claim() is None
    error = stage.holder.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": scene.task_id})
    assert [wait["kind"] for wait in error["details"]["waits_for"]] == ["avoidance"]
    assert stage.other.claim()["task"]["id"] == scene.task_id


@pytest.mark.parametrize("state", ["parked", "out of attempts"])
def test_nor_to_who_held_it_last_and_is_gone(stage: Stage, state: str) -> None:
    if state == "parked":
        scene = Scene(stage).create().hold().ask().let_run_out().sweep()
    else:
        scene = Scene(stage).create(max_attempts=1).hold()
        scene.send("fail", {"error": "no network"})
    scene.by_human(takeovers.take_over, to=None, reason="Somebody else, please.", epoch=1)
    assert stage.holder.claim() is None
    pass_time(scene.task_id, "avoided_until")
    assert stage.holder.claim()["task"]["id"] == scene.task_id


# (the claim's wish, the task's, the organization's) -> the lease's
TTLS = {
    "the claim's wish first": (20, 30, 40, 20),
    "then the task's": (None, 30, 40, 30),
    "then the organization's": (None, None, 40, 40),
}


@pytest.mark.parametrize("case", TTLS)
def test_the_ttl_is_whose_wish_comes_first(company: Company, agent: Agent, case: str) -> None:
    wish, of_task, of_organization, right = TTLS[case]
    Organization.objects.filter(pk=company.organization.pk).update(lease_ttl_seconds=of_organization)
    more: dict[str, Any] = {"lease_ttl_seconds": of_task} if of_task else {}
    agent.create(**more)
    claim = agent.claim(**({"ttl_seconds": wish} if wish else {}))
    assert claim["lease"]["ttl_seconds"] == right
    assert claim["heartbeat_interval_seconds"] == pytest.approx(right / 3)


def test_a_heartbeat_may_wish_a_ttl_and_never_brings_the_expiry_forward(agent: Agent) -> None:
    agent.create()
    claim = agent.claim(ttl_seconds=600)
    path, epoch = f"/runs/{claim['run']['id']}/heartbeat", claim["lease"]["epoch"]
    shorter = agent.post(path, {"epoch": epoch, "ttl_seconds": 10})["lease"]
    assert (shorter["ttl_seconds"], shorter["expires_at"]) == (10, claim["lease"]["expires_at"])
    longer = agent.post(path, {"epoch": epoch, "ttl_seconds": 900})["lease"]
    assert longer["expires_at"] > claim["lease"]["expires_at"]


def test_complete_and_claim_next_gets_the_dependent_that_it_has_freed(stage: Stage) -> None:
    scene = Scene(stage).create().hold()
    after = stage.other.create("Comes after", depends_on=[scene.task_id])["id"]
    assert stage.other.claim() is None
    ended = scene.send("complete", {"claim_next": True, "result": {"sum": 3}})
    assert ended["next"]["task"]["id"] == after
    assert ended["next"]["context"]["dependencies"][0]["result"] == {"sum": 3}


def test_a_run_that_ran_out_before_its_claim_of_the_next_is_refused_and_nothing_is_claimed(
    stage: Stage,
) -> None:
    scene = Scene(stage).create().hold()
    waiting = Scene(stage).create()
    let_lease_run_out(scene.claim)
    body = {"epoch": scene.claim["lease"]["epoch"], "claim_next": True}
    stage.holder.refused("LEASE_EXPIRED", f"/runs/{scene.claim['run']['id']}/complete", body)
    assert waiting.shown["status"] == "todo"


def test_who_is_unknown_claims_nothing(stage: Stage) -> None:
    with pytest.raises(LookupError):
        claims.claim(by_principal(uuid_of(f"agent_{'0' * 32}")))
