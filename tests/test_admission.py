"""Admission: at most so many open runs per principal and per capability, however many ask at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from coordination import claims
from coordination.callers import by_principal
from coordination.models import CapabilityLimit

from .cast import Agent, Company
from .clockwork import let_lease_run_out, sql, uuid_of
from .locking import Work, together, wait_until_blocked

THREADS = 16
LIMIT = 3


def open_runs(company: Company) -> int:
    found = sql(
        "SELECT count(*) FROM coordination_run WHERE organization_id = %s AND ended_at IS NULL",
        company.organization.pk,
    )
    return int(found[0][0])


@contextmanager
def watched(company: Company) -> Iterator[list[int]]:
    """The numbers of open runs that somebody sees who looks all the time."""
    seen: list[int] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.append(open_runs(company))
        connection.close()

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


def limit_of_a_principal(company: Company) -> list[Agent]:
    """One agent on many connections."""
    agent = company.agent(max_concurrent_runs=LIMIT)
    return [Agent(agent.principal, agent.secret, agent.url) for _ in range(THREADS)]


def limit_of_a_capability(company: Company) -> list[Agent]:
    """Many agents that can do the same scarce thing."""
    CapabilityLimit.objects.create(
        organization=company.organization, capability="gpu", max_concurrent_runs=LIMIT
    )
    return [company.agent(capabilities=["gpu", "python"]) for _ in range(THREADS)]


LIMITS: dict[str, tuple[Callable[[Company], list[Agent]], list[str]]] = {
    "principal": (limit_of_a_principal, []),
    "capability": (limit_of_a_capability, ["gpu"]),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_as_many_as_allowed_are_admitted_at_once(company: Company, agent: Agent, limit: str) -> None:
    make, needs = LIMITS[limit]
    crowd = make(company)
    for _ in range(THREADS):
        agent.create(required_capabilities=needs)
    claims = together(*[worker.claim for worker in crowd])
    for worker in crowd:
        worker.close()
    assert sum(claim is not None for claim in claims) == LIMIT == open_runs(company)


@pytest.mark.parametrize("limit", LIMITS)
def test_never_more_while_all_claim_and_complete(company: Company, agent: Agent, limit: str) -> None:
    make, needs = LIMITS[limit]
    crowd = make(company)
    work = 24
    for _ in range(work):
        agent.create(required_capabilities=needs)

    def toil(worker: Agent) -> int:
        done = 0
        while left.acquire(blocking=False):
            claim = worker.claim()
            if claim is None:
                left.release()
                if not sql(
                    "SELECT count(*) FROM coordination_task WHERE organization_id = %s AND status = 'todo'",
                    company.organization.pk,
                )[0][0]:
                    return done
                continue
            worker.post(f"/runs/{claim['run']['id']}/complete", {"epoch": claim["lease"]["epoch"]})
            done += 1
        return done

    left = threading.Semaphore(work)
    with watched(company) as seen:
        counts = together(*[lambda worker=worker: toil(worker) for worker in crowd])
    assert sum(counts) == work
    assert seen
    assert max(seen) <= LIMIT
    for worker in crowd:
        worker.close()


@pytest.mark.parametrize("limit", LIMITS)
def test_who_comes_second_counts_the_run_of_who_came_first(
    company: Company, agent: Agent, limit: str
) -> None:
    """The first claim has its run and has not committed: the second waits, though for another task."""
    make, needs = LIMITS[limit]
    first, second, *others = make(company)
    one, two, *_ = [agent.create(required_capabilities=needs)["id"] for _ in range(LIMIT + 1)]
    for _ in range(LIMIT - 1):
        agent.create(priority=9, required_capabilities=needs)
        assert second.claim()
    with transaction.atomic():
        assert claims.claim(by_principal(first.principal.pk), task_id=uuid_of(one))
        late = Work(lambda: second.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": two}))
        wait_until_blocked()
    assert late.outcome()["details"]["waits_for"][0]["kind"] == "admission"
    assert open_runs(company) == LIMIT
    for worker in (first, second, *others):
        worker.close()


def test_a_limit_of_a_capability_holds_back_nothing_else(company: Company, agent: Agent) -> None:
    CapabilityLimit.objects.create(organization=company.organization, capability="gpu", max_concurrent_runs=0)
    worker = company.agent(capabilities=["gpu", "python"])
    scarce = agent.create(priority=9, required_capabilities=["gpu"])["id"]
    plain = agent.create(required_capabilities=["python"])["id"]
    assert worker.claim()["task"]["id"] == plain
    assert worker.claim() is None
    error = worker.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": scarce})
    assert [wait["kind"] for wait in error["details"]["waits_for"]] == ["admission"]


@pytest.mark.parametrize("ends", ["complete", "release", "expiry"])
def test_the_end_of_a_run_admits_the_next(company: Company, agent: Agent, ends: str) -> None:
    worker = company.agent(max_concurrent_runs=1)
    agent.create("First")
    agent.create("Second")
    claim = worker.claim()
    assert worker.claim() is None
    if ends == "expiry":
        let_lease_run_out(claim)
    else:
        worker.post(f"/runs/{claim['run']['id']}/{ends}", {"epoch": claim["lease"]["epoch"]})
    assert worker.claim() is not None
    assert worker.claim() is None


def test_claim_next_stays_within_the_limit(company: Company, agent: Agent) -> None:
    worker = company.agent(max_concurrent_runs=1)
    for number in range(3):
        agent.create(f"Task {number}")
    claim: Any = worker.claim()
    for _ in range(2):
        ended = worker.post(
            f"/runs/{claim['run']['id']}/complete", {"epoch": claim["lease"]["epoch"], "claim_next": True}
        )
        claim = ended["next"]
        assert claim is not None
        assert open_runs(company) == 1
