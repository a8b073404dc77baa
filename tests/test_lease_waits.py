"""`POST /v1/leases?wait=`: a busy resource is waited for, and goes to who came first, whatever freed it."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from coordination import identity
from coordination.models import ApiKey
from titen.api.doors import transact

from .cast import Agent, Company, found_company, founded
from .hub import looks_of, run_hub
from .leasing import acquire, batch, history, let_run_out, named, release, renew
from .locking import Work, until
from .servers import Server

pytestmark = pytest.mark.alone

WAIT = "/leases?wait=20"
# A wait of 20 s that ran out is longer than this, an answer that came at once is not, on a busy machine.
SOON = 8.0


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub() as server:
        yield server
        assert not server.trouble()


@pytest.fixture
def company(hub: Server) -> Iterator[Company]:
    with founded(hub.url) as company:
        yield company


@pytest.fixture
def waiting(hub: Server) -> Callable[..., Work]:
    """Have an agent wait for leases; the work is under way and the hub has looked for it."""

    def begin(agent: Agent, body: dict[str, Any], path: str = WAIT, **options: Any) -> Work:
        before = looks_of(hub)
        work = Work(lambda: agent.send("POST", path, body, **options))
        until(lambda: looks_of(hub) - before, "a look for the waiter")
        return work

    return begin


def granted(work: Work) -> Any:
    """The lease that came of waiting, soon."""
    began = time.monotonic()
    answer = work.outcome()
    assert answer.status_code == 201, answer.text
    assert time.monotonic() - began < SOON
    return answer.json()["data"]


def _release(holder: Agent, lease: Any) -> None:
    release(holder, lease)


def _run_out(holder: Agent, lease: Any) -> None:
    let_run_out(lease)


def _revoke(holder: Agent, lease: Any) -> None:
    holder.post(f"/leases/{lease['lease_id']}/revoke", {"reason": "The deployment is frozen"})


@pytest.mark.parametrize(
    ("end", "because"), [(_release, "claim"), (_run_out, "after_expiry"), (_revoke, "claim")]
)
def test_a_busy_resource_is_had_as_soon_as_it_is_free(
    agent: Agent, other: Agent, waiting: Any, end: Any, because: str
) -> None:
    lease = acquire(agent)
    work = waiting(other, named("checkout"))
    end(agent, lease)
    won = granted(work)
    assert (won["epoch"], won["granted_because"]) == (lease["epoch"] + 1, because)


def test_a_lease_that_runs_out_by_itself_is_waited_for_without_a_sweep(
    agent: Agent, other: Agent, waiting: Any
) -> None:
    lease = acquire(agent, ttl_seconds=2)
    won = granted(waiting(other, named("checkout")))
    assert won["expires_at"] > lease["expires_at"]
    assert history(agent)[0] == (1, "expired")


def test_at_the_end_of_the_wait_the_409_says_how_the_resource_stands_then(
    agent: Agent, other: Agent, waiting: Any
) -> None:
    lease = acquire(agent, ttl_seconds=60)
    began = time.monotonic()
    work = waiting(other, named("checkout"), "/leases?wait=2")
    longer = renew(agent, lease, ttl_seconds=3600)
    answer = work.outcome()
    assert 2 <= time.monotonic() - began < SOON
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "CONFLICT")
    assert error["details"] == {"expires_at": longer["expires_at"]}
    assert 3500 < int(answer.headers["Retry-After"]) <= 3600


def test_who_came_first_has_it_first_and_one_at_a_time(company: Company, waiting: Any) -> None:
    holder, *agents = (company.agent() for _ in range(4))
    lease = acquire(holder)
    works = [waiting(agent, named("checkout")) for agent in agents]
    for position, (agent, work) in enumerate(zip(agents, works, strict=True)):
        release(holder, lease)
        lease, holder = granted(work), agent
        assert lease["epoch"] == position + 2
        assert not any(later.over for later in works[position + 1 :])


def test_as_many_are_served_as_resources_became_free(company: Company, waiting: Any) -> None:
    holder, *agents = (company.agent() for _ in range(7))
    leases = [acquire(holder, name) for name in ("red", "green", "blue")]
    works = [
        waiting(agent, named(name), "/leases?wait=5")
        for agent, name in zip(agents, ["red", "green", "blue"] * 2, strict=True)
    ]
    release(holder, leases[0])
    release(holder, leases[2])
    statuses = [work.outcome().status_code for work in works]
    assert statuses == [201, 409, 201, 409, 409, 409]


def test_a_batch_waits_until_all_of_it_is_free(
    company: Company, agent: Agent, other: Agent, waiting: Any
) -> None:
    mine, theirs = acquire(agent, "red"), acquire(other, "blue")
    third = company.agent()
    work = waiting(third, batch("blue", "red", "new"), "/leases/batch?wait=20")
    release(agent, mine)
    # Who waits for two holds none of them meanwhile.
    assert acquire(agent, "red")["epoch"] == 2
    assert not work.over
    release(other, theirs)
    release(agent, agent.get("/leases?live=true")["leases"][0])
    leases = granted(work)["leases"]
    assert [(lease["resource_id"], lease["epoch"]) for lease in leases] == [
        ("blue", 2),
        ("red", 3),
        ("new", 1),
    ]


def test_what_is_free_or_ones_own_is_not_waited_for(agent: Agent, other: Agent) -> None:
    began = time.monotonic()
    first = agent.post(WAIT, named("checkout"))
    assert agent.post(WAIT, named("checkout"))["epoch"] == first["epoch"] + 1
    assert agent.post("/leases/batch?wait=20", batch("checkout", "search"))["leases"][0]["epoch"] == 3
    other.refused("CONFLICT", "/leases?wait=0", named("checkout"))
    other.refused("VALIDATION_ERROR", WAIT, named("task/task_1"))
    other.refused("VALIDATION_ERROR", WAIT, {"resource_type": "deploy"})
    other.refused("VALIDATION_ERROR", "/leases/batch?wait=20", batch())
    for wait in ("26", "-1", "x", ""):
        other.refused("VALIDATION_ERROR", f"/leases?wait={wait}", named("checkout"))
    assert time.monotonic() - began < SOON


def test_another_organizations_resource_of_the_same_name_wakes_nobody(
    agent: Agent, other: Agent, hub: Server, waiting: Any
) -> None:
    elsewhere = found_company(hub.url).agent()
    acquire(agent)
    lease = acquire(elsewhere)
    work = waiting(other, named("checkout"), "/leases?wait=2")
    release(elsewhere, lease)
    assert work.outcome().status_code == 409
    elsewhere.close()


def test_a_repeat_of_a_waiting_acquire_gets_the_same_lease(
    company: Company, agent: Agent, other: Agent, waiting: Any
) -> None:
    twin = Agent(other.principal, other.secret, other.url)
    company.agents.append(twin)
    lease = acquire(agent)
    key = {"headers": {"Idempotency-Key": "once"}}
    works = [waiting(one, named("checkout"), **key) for one in (other, twin)]
    release(agent, lease)
    first, second = (granted(work) for work in works)
    assert first == second
    assert other.post("/leases", named("checkout"), **key) == first
    assert [epoch for epoch, _ in history(agent)] == [1, 2]


def test_nothing_is_leased_for_a_client_that_left(agent: Agent, other: Agent, hub: Server) -> None:
    lease = acquire(agent)
    address = urlsplit(hub.url)
    before = looks_of(hub)
    body = '{"resource_type": "deploy", "resource_id": "checkout"}'
    with socket.create_connection((address.hostname, address.port)) as leaving:
        leaving.sendall(
            f"POST /v1{WAIT} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {other.secret}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        until(lambda: looks_of(hub) - before, "a look for the waiter")
    # The next one's attempt comes after the hub has noticed.
    third_wait = Work(lambda: agent.post("/leases?wait=1", named("other")))
    third_wait.outcome()
    release(agent, lease)
    time.sleep(0.5)  # long enough for several looks
    assert [epoch for epoch, _ in history(agent)] == [1]


def _revoke_key(agent: Agent) -> None:
    key = ApiKey.objects.get(principal=agent.principal)
    transact(lambda: identity.revoke_key(key.organization_id, key.pk))


def _disable(agent: Agent) -> None:
    transact(lambda: identity.disable_principal(agent.principal))


@pytest.mark.parametrize("end", [_revoke_key, _disable])
def test_who_loses_its_access_while_it_waits_gets_nothing(
    agent: Agent, other: Agent, waiting: Any, end: Any
) -> None:
    lease = acquire(agent)
    began = time.monotonic()
    work = waiting(other, named("checkout"), "/leases?wait=2")
    end(other)
    release(agent, lease)
    answer = work.outcome()
    assert answer.status_code == 401, answer.text
    assert time.monotonic() - began < SOON
    assert [epoch for epoch, _ in history(agent)] == [1]
