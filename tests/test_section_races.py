"""Section leases under real threads and held locks: one holder, epochs that rise, logs without gaps."""

import random
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from coordination import leasing, sections
from coordination.models import Document
from coordination.sections import NoActiveLease, SectionLeased, name_section
from titen.api.doors import transact
from titen.errors import Refused

from .cases.tools import at_once
from .cast import Agent, Company
from .clockwork import sql
from .editing import acquire, delete_document, epoch_of, expire, log_of, release, send
from .locking import LOCK_LEASE, Work, second_connection, together, wait_until_blocked

BODY = {"leaseDurationSeconds": 60}
INTRO = name_section("handbook", "intro")
ROUNDS = 10
WRITERS = 8


@pytest.fixture
def crowd(company: Company) -> list[Agent]:
    """Agents with open connections."""
    agents = [company.agent() for _ in range(WRITERS)]
    for agent in agents:
        assert send(agent, "GET", slug="nothing").status_code == 404
    return agents


def test_of_parallel_acquirers_exactly_one_has_it(crowd: list[Agent]) -> None:
    for number in range(25):
        answers = at_once(crowd, partial(send, method="POST", body=BODY, sid=f"round-{number}"))
        won = [answer.json() for answer in answers if answer.status_code == 200]
        assert len(won) == 1
        lost = [answer.json() for answer in answers if answer.status_code == 409]
        assert len(lost) == WRITERS - 1
        told = {"error": "SECTION_LEASED", "holder": won[0]["holder"], "expiresAt": won[0]["expiresAt"]}
        assert all(answer == told for answer in lost)
        # The same when it has just run out.
        expire(won[0])
        answers = at_once(crowd, partial(send, method="POST", body=BODY, sid=f"round-{number}"))
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * (WRITERS - 1)


def test_the_same_holder_in_parallel_has_one_lease(agent: Agent, company: Company) -> None:
    for number in range(ROUNDS):
        leases = at_once([agent] * 10, partial(acquire, sid=f"round-{number}"))
        assert len({lease["leaseId"] for lease in leases}) == 1
        assert epoch_of(leases[0]) == 1
    assert [payload["event"] for _, payload in log_of(company)] == ["SECTION_LEASED"] * ROUNDS


def test_a_renewal_that_waited_past_the_end_is_refused(agent: Agent, other: Agent) -> None:
    lease = acquire(agent)
    with second_connection() as slow:
        slow.run(LOCK_LEASE, lease["leaseId"])
        renewal = Work(lambda: transact(lambda: sections.renew(agent.caller, INTRO, seconds=60)))
        wait_until_blocked(slow)
        takeover = Work(lambda: transact(lambda: sections.acquire(other.caller, INTRO, seconds=60)))
        wait_until_blocked(slow, count=2)
        slow.run(
            "UPDATE coordination_lease SET expires_at = clock_timestamp() WHERE id = %s", lease["leaseId"]
        )
        slow.commit()
    with pytest.raises(NoActiveLease):
        renewal.outcome()
    assert takeover.outcome()["epoch"] == 2


def test_a_renewal_that_came_first_holds_up_a_takeover(agent: Agent, other: Agent) -> None:
    lease = acquire(agent)
    with transaction.atomic():
        sections.renew(agent.caller, INTRO, seconds=60)
        takeover = Work(lambda: transact(lambda: sections.acquire(other.caller, INTRO, seconds=60)))
        wait_until_blocked()
    with pytest.raises(SectionLeased) as refused:
        takeover.outcome()
    assert refused.value.details["holder"] == "ada"
    assert send(agent, "GET").json()["leaseId"] == lease["leaseId"]


def test_a_takeover_that_came_first_makes_the_renewal_anothers(agent: Agent, other: Agent) -> None:
    expire(acquire(agent))
    with transaction.atomic():
        sections.acquire(other.caller, INTRO, seconds=60)
        renewal = Work(lambda: transact(lambda: sections.renew(agent.caller, INTRO, seconds=60)))
        wait_until_blocked()
    with pytest.raises(Refused) as refused:
        renewal.outcome()
    assert refused.value.code == "FORBIDDEN"


def test_at_the_edge_of_the_end_never_two_have_it(agent: Agent, other: Agent, company: Company) -> None:
    """Renewal against takeover, fired around the very end of the lease."""
    holders = [agent, other]
    for _ in range(3 * ROUNDS):
        random.shuffle(holders)
        (holder, rival) = holders
        lease = acquire(holder)
        sql(
            "UPDATE coordination_lease SET expires_at = clock_timestamp() + %s * interval '1 ms' WHERE id = %s",
            random.randint(0, 12),
            lease["leaseId"],
        )
        renewed, taken = together(partial(send, holder, "PATCH", BODY), partial(send, rival, "POST", BODY))
        assert (renewed.status_code, taken.status_code) in [(200, 409), (404, 200), (403, 200), (404, 409)]
        if renewed.status_code == 200:
            assert send(rival, "GET").json()["leaseId"] == lease["leaseId"]
            release(holder)
        elif taken.status_code == 200:
            assert send(holder, "GET").json()["leaseId"] == taken.json()["leaseId"]
            release(rival)
        else:  # the rival came too early, the holder too late
            leasing.sweep()
    assert [position for position, _ in log_of(company)] == list(range(1, len(log_of(company)) + 1))


# Documents.


def test_a_deletion_waits_for_who_is_acquiring_and_ends_that_lease(agent: Agent, other: Agent) -> None:
    acquire(agent, sid="other")
    with transaction.atomic():
        sections.acquire(agent.caller, INTRO, seconds=60)
        deletion = Work(lambda: transact(lambda: sections.delete_document(other.caller, "handbook")))
        wait_until_blocked()
    deletion.outcome()
    assert send(agent, "GET").status_code == 404
    assert send(agent, "GET", sid="other").status_code == 404


@pytest.mark.parametrize("sid", ["intro", "new"])
def test_who_acquires_during_a_deletion_revives_the_document(
    agent: Agent, other: Agent, company: Company, sid: str
) -> None:
    acquire(agent)
    section = name_section("handbook", sid)
    with transaction.atomic():
        sections.delete_document(other.caller, "handbook")
        # Nothing retries a deadlock here.
        takers = [
            Work(partial(_in_transaction, agent, section)),
            Work(partial(_in_transaction, agent, name_section("handbook", "third"))),
            Work(partial(_in_transaction, agent, name_section("handbook", "fourth"))),
        ]
        wait_until_blocked(count=3)
    assert takers[0].outcome()["epoch"] == (2 if sid == "intro" else 1)
    assert all(taker.outcome()["lease_id"] for taker in takers[1:])
    assert Document.objects.get(organization=company.organization).deleted_at is None
    assert send(other, "GET", sid=sid).json()["holder"] == "ada"


def _in_transaction(agent: Agent, section: sections.Section) -> Any:
    with transaction.atomic():
        return sections.acquire(agent.caller, section, seconds=60)


def test_deletions_among_acquirers_leave_no_lease_behind_on_what_is_deleted(crowd: list[Agent]) -> None:
    def work(number: int) -> list[int]:
        agent, told = crowd[number], []
        for _ in range(ROUNDS):
            if number % 4 == 0:
                told.append(delete_document(agent).status_code)
            else:
                told.append(send(agent, "POST", BODY, sid=f"section-{number}").status_code)
        return told

    answers = at_once(range(WRITERS), work)
    assert {status for told in answers for status in told} <= {200, 404}
    delete_document(crowd[0])
    for number in range(WRITERS):
        assert send(crowd[0], "GET", sid=f"section-{number}").status_code == 404


# The document's log.


def test_positions_under_parallel_writers_and_numberers_have_no_gaps(
    crowd: list[Agent], company: Company
) -> None:
    def write(number: int) -> None:
        for _ in range(ROUNDS):
            acquire(crowd[number], sid=f"section-{number}")
            if number % 4 == 0:
                crowd[number].get("/events?limit=1")
            release(crowd[number], sid=f"section-{number}")

    at_once(range(WRITERS), write)
    log = log_of(company)
    assert [position for position, _ in log] == list(range(1, 2 * WRITERS * ROUNDS + 1))
    for number in range(WRITERS):
        own = [payload for _, payload in log if payload["sectionId"] == f"section-{number}"]
        assert [payload["event"] for payload in own] == ["SECTION_LEASED", "SECTION_LEASE_RELEASED"] * ROUNDS
        ids = [payload["leaseId"] for payload in own]
        assert ids[::2] == ids[1::2]


def test_each_document_counts_for_itself(agent: Agent, company: Company) -> None:
    for slug in ("handbook", "glossary", "handbook"):
        acquire(agent, slug=slug)
        release(agent, slug=slug)
    assert [position for position, _ in log_of(company)] == [1, 2, 3, 4]
    assert [position for position, _ in log_of(company, "glossary")] == [1, 2]
