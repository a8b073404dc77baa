"""R01: of all who claim at the same moment, exactly one gets the task, and nobody goes away too early."""

import time
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.cast import Agent, Company

from .tools import LONG, at_once, events_of, race, spread

CLAIMERS = 32
TASKS = 50
ROUNDS = 100


@pytest.fixture
def crowd(company: Company) -> list[Agent]:
    """Agents with keys and connections of their own."""
    agents = [company.agent() for _ in range(CLAIMERS)]
    spread(agents, lambda agent: agent.get("/principal"))
    return agents


def one_run_each(agent: Agent, tasks: int) -> None:
    """Every task was claimed once: one run, one lease, one event."""
    claims = events_of(agent, kind="task.claimed")
    assert len(claims) == len({event["task_id"] for event in claims}) == tasks
    assert len({event["run_id"] for event in claims}) == len({event["lease_id"] for event in claims}) == tasks


def test_by_id_one_of_32_gets_it_and_the_others_are_refused(agent: Agent, crowd: list[Agent]) -> None:
    for _ in range(ROUNDS):
        task = agent.create()
        answers = race([(one, "/tasks/claim", {"task_id": task["id"]}) for one in crowd])
        assert Counter(answer.status_code for answer in answers) == {200: 1, 409: CLAIMERS - 1}
        for answer in answers:
            if answer.status_code == 409:
                error = answer.json()["error"]
                assert (error["code"], error["details"]["state"]) == ("NOT_CLAIMABLE", "in_progress")
    one_run_each(agent, ROUNDS)


def test_without_id_one_of_32_gets_it_and_the_others_get_nothing(agent: Agent, crowd: list[Agent]) -> None:
    rounds = ROUNDS if LONG else 25
    for _ in range(rounds):
        agent.create()
        answers = race([(one, "/tasks/claim", {}) for one in crowd])
        assert Counter(answer.status_code for answer in answers) == {200: 1, 204: CLAIMERS - 1}
    one_run_each(agent, rounds)


def test_with_the_end_of_their_runs_one_of_32_gets_the_next(agent: Agent, crowd: list[Agent]) -> None:
    rounds = 20 if LONG else 5
    for _ in range(rounds):
        spread(range(CLAIMERS), lambda _: agent.create())
        held = spread(crowd, lambda one: (one, one.claim()))
        agent.create("The one that is left")
        ends = at_once(held, lambda pair: complete(*pair, claim_next=True))
        assert sum(end["next"] is not None for end in ends) == 1
        winner = next(end["next"] for end in ends if end["next"])
        assert winner["task"]["title"] == "The one that is left"
    one_run_each(agent, rounds * (CLAIMERS + 1))


def complete(agent: Agent, claim: Any, **more: Any) -> Any:
    """End a run with success."""
    return agent.post(f"/runs/{claim['run']['id']}/complete", {"epoch": claim["lease"]["epoch"], **more})


def test_32_empty_a_queue_of_50_each_once_and_nobody_stops_early(agent: Agent, crowd: list[Agent]) -> None:
    for _ in range(20 if LONG else 4):
        made = {task["id"] for task in spread(range(TASKS), lambda _: agent.create())}

        def claim_until_empty(one: Agent) -> tuple[list[Any], float]:
            mine = []
            while (answer := one.client.post("/v1/tasks/claim", json={})).status_code == 200:
                mine.append(answer.json()["data"])
            assert answer.status_code == 204, answer.text
            return mine, time.time()

        results = at_once(crowd, claim_until_empty)
        claims = [claim for mine, _ in results for claim in mine]
        assert Counter(claim["task"]["id"] for claim in claims) == dict.fromkeys(made, 1)
        # Whoever was told that there is nothing was told so when the last one had been given away.
        last = max(datetime.fromisoformat(claim["server_time"]).timestamp() for claim in claims)
        assert all(told_at >= last for _, told_at in results)
    one_run_each(agent, TASKS * (20 if LONG else 4))


def test_32_work_through_a_queue_of_50_by_claiming_the_next(agent: Agent, crowd: list[Agent]) -> None:
    made = {task["id"] for task in spread(range(TASKS), lambda _: agent.create())}

    def work(one: Agent) -> list[str]:
        done, claim = [], one.claim()
        while claim:
            done.append(claim["task"]["id"])
            claim = complete(one, claim, claim_next=True)["next"]
        return done

    done = [task for tasks in at_once(crowd, work) for task in tasks]
    assert Counter(done) == dict.fromkeys(made, 1)
    assert {task["status"] for task in agent.get("/tasks", params={"limit": 200})["tasks"]} == {"done"}
    one_run_each(agent, TASKS)
