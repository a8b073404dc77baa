"""How leases come into doubt and end against their holder's will: jeopardy, revocation, lost access."""

from typing import Any

import pytest

from coordination import identity
from coordination.models import ApiKey, Lease, Membership
from titen.api.doors import transact

from .cast import Agent, Company
from .clockwork import bring_into_jeopardy, let_lease_run_out, sql, uuid_of
from .leasing import acquire, gone, history, lease_events, let_run_out, named, release, renew, shown, swept
from .locking import Work, second_connection, wait_until_blocked
from .servers import Server
from .sessions import Session

REVOKED = {"reason": "The deployment is frozen"}


@pytest.fixture
def held(agent: Agent) -> Any:
    """A lease that `agent` holds."""
    return acquire(agent, "checkout", purpose="run rollback smoke", ttl_seconds=600)


# Jeopardy


def test_a_holder_that_is_not_sure_says_so_until_its_next_renewal(agent: Agent, held: Any) -> None:
    declared = agent.post(f"/leases/{held['lease_id']}/jeopardy")
    assert (declared["certainty"], declared["epoch"]) == ("jeopardy", 1)
    first = shown(agent, held)
    assert first["certainty"] == "jeopardy"
    agent.post(f"/leases/{held['lease_id']}/jeopardy")
    assert shown(agent, held)["jeopardy_declared_at"] == first["jeopardy_declared_at"]
    assert renew(agent, held)["certainty"] == "held"
    after = shown(agent, held)
    assert (after["certainty"], after["jeopardy_declared_at"]) == ("held", None)
    assert lease_events(held) == [
        "lease.acquired",
        "lease.jeopardy_declared",
        "lease.jeopardy_declared",
        "lease.renewed",
    ]


def test_jeopardy_begins_at_two_thirds_of_the_ttl_by_itself(agent: Agent, held: Any) -> None:
    bring_into_jeopardy({"lease": held})
    assert shown(agent, held)["certainty"] == "jeopardy"
    assert renew(agent, held)["certainty"] == "held"
    assert shown(agent, held)["certainty"] == "held"


def test_a_run_in_declared_jeopardy_is_kept_and_given_up_but_not_completed(agent: Agent) -> None:
    def begin() -> tuple[str, dict[str, Any], str]:
        task = agent.create()["id"]
        claim = agent.claim(task_id=task)
        run, epoch = f"/runs/{claim['run']['id']}", {"epoch": claim["lease"]["epoch"]}
        told = agent.post(f"{run}/jeopardy", epoch)
        assert (told["lease_id"], told["certainty"]) == (claim["lease"]["lease_id"], "jeopardy")
        assert agent.get(run)["lease"]["certainty"] == "jeopardy"
        agent.refused("LEASE_IN_JEOPARDY", f"{run}/complete", epoch)
        return run, epoch, task

    run, epoch, task = begin()
    asking = {"run_id": run.removeprefix("/runs/"), **epoch}
    agent.post(f"/tasks/{task}/comments", {"body": "I am not sure any more", **asking})
    agent.post("/approvals", {"question": "Go on?", "options": ["Yes", "No"], **asking})
    agent.post(f"{run}/fail", {**epoch, "error": "No network"})
    run, epoch, _ = begin()
    agent.post(f"{run}/release", epoch)
    run, epoch, _ = begin()
    assert agent.post(f"{run}/heartbeat", epoch)["lease"]["certainty"] == "held"
    agent.post(f"{run}/complete", epoch)


def test_jeopardy_of_a_run_is_its_holders_to_declare(agent: Agent, other: Agent, claimed: Any) -> None:
    path, lease = f"/runs/{claimed['run']['id']}/jeopardy", claimed["lease"]["lease_id"]
    other.refused("NOT_HOLDER", path, {"epoch": 1})
    agent.refused("STALE_EPOCH", path, {"epoch": 2})
    agent.refused("NOT_FOUND", f"/runs/run_{'0' * 32}/jeopardy", {"epoch": 1})
    let_lease_run_out(claimed)
    agent.refused("LEASE_EXPIRED", path, {"epoch": 1})
    traces = agent.get("/events?kind=run.refused")["events"]
    assert [(trace["data"]["code"], trace["data"]["verb"]) for trace in traces] == [
        ("NOT_HOLDER", "declare_jeopardy"),
        ("STALE_EPOCH", "declare_jeopardy"),
        ("LEASE_EXPIRED", "declare_jeopardy"),
    ]
    assert Lease.objects.get(pk=uuid_of(lease)).jeopardy_declared_at is None


# Revoking


def test_an_admins_key_revokes_with_a_reason_that_the_log_does_not_hold(
    company: Company, agent: Agent, other: Agent, held: Any
) -> None:
    boss = company.agent(scopes="leases:admin leases:read")
    revoked = boss.post(f"/leases/{held['lease_id']}/revoke", REVOKED)
    assert (revoked["end_reason"], revoked["end_note"]) == ("revoked", REVOKED["reason"])
    assert revoked["ended_at"] < revoked["expires_at"]
    assert gone(agent, held, "PATCH") == "revoked"
    assert gone(agent, held) == "revoked"
    assert acquire(other)["epoch"] == 2
    assert lease_events(held) == ["lease.acquired", "lease.revoked"]
    assert REVOKED["reason"] not in str(agent.get("/events"))


def test_an_operators_session_revokes_and_a_viewers_does_not(
    company: Company, elsewhere: Company, agent: Agent, held: Any, web: Server
) -> None:
    path = f"/v1/leases/{held['lease_id']}/revoke"
    with Session(company.human("viewer"), web.url) as viewer:
        answer = viewer.post(path, REVOKED)
        assert (answer.status_code, answer.json()["error"]["details"]) == (403, {"role": "operator"})
    with Session(elsewhere.human("admin"), web.url) as stranger:
        assert stranger.post(path, REVOKED).status_code == 404
    with Session(company.human("operator"), web.url) as operator:
        forged = operator.client.post(path, json=REVOKED)
        assert forged.status_code == 403, "a session needs its CSRF token"
        assert shown(agent, held)["certainty"] == "held"
        answer = operator.post(path, REVOKED)
        assert answer.status_code == 200, answer.text
        assert answer.json()["data"]["end_reason"] == "revoked"
    assert gone(agent, held) == "revoked"


def test_a_plain_key_revokes_nothing_not_even_its_own(agent: Agent, company: Company, held: Any) -> None:
    plain = company.agent(scopes="leases:read leases:write")
    mine = acquire(plain, "search")
    for lease in (held, mine):
        error = plain.refused("FORBIDDEN", f"/leases/{lease['lease_id']}/revoke", REVOKED)
        assert error["details"] == {"scope": "leases:admin"}
    agent.refused("VALIDATION_ERROR", f"/leases/{held['lease_id']}/revoke", {})
    assert shown(agent, held)["certainty"] == "held"


def test_a_lease_that_is_over_is_not_revoked(agent: Agent, held: Any) -> None:
    path = f"/leases/{held['lease_id']}/revoke"
    let_run_out(held)
    assert agent.refused("NOT_FOUND", path, REVOKED)["details"] == {"reason": "expired"}
    second = acquire(agent)
    release(agent, second)
    path = f"/leases/{second['lease_id']}/revoke"
    assert agent.refused("NOT_FOUND", path, REVOKED)["details"] == {"reason": "released"}
    assert history(agent) == [(1, "expired"), (2, "released")]


def test_a_revoked_tasks_lease_sends_the_task_to_the_queue_and_not_to_its_last_holder(
    agent: Agent, other: Agent, claimed: Any
) -> None:
    revoked = other.post(f"/leases/{claimed['lease']['lease_id']}/revoke", REVOKED)
    assert (revoked["end_reason"], revoked["end_note"]) == ("revoked", REVOKED["reason"])
    assert (revoked["resource_type"], revoked["holder"]) == ("task", "ada")
    run = f"/runs/{claimed['run']['id']}"
    assert (
        agent.refused("LEASE_SUPERSEDED", f"{run}/heartbeat", {"epoch": 1})["details"]["reason"] == "revoked"
    )
    assert agent.get(run)["status"] == "superseded"
    assert agent.claim() is None
    again = other.claim()
    assert (again["task"]["id"], again["lease"]["epoch"]) == (claimed["task"]["id"], 2)
    error = other.refused("NOT_FOUND", f"/leases/{claimed['lease']['lease_id']}/revoke", REVOKED)
    assert error["details"] == {"reason": "revoked"}


# Lost access


def test_a_disabled_principal_loses_its_leases_at_once(
    company: Company, agent: Agent, other: Agent, held: Any
) -> None:
    old = acquire(agent, "stale")
    let_run_out(old)
    theirs = acquire(other, "search")
    transact(lambda: identity.disable_principal(agent.principal))
    assert history(other) == [(1, "revoked")]
    # What had run out before was not taken away, it ran out.
    swept()
    assert history(other, "stale") == [(1, "expired")]
    assert lease_events(held) == ["lease.acquired", "lease.revoked"]
    assert acquire(other)["epoch"] == 2
    assert shown(other, theirs)["certainty"] == "held"


def test_a_principal_that_is_disabled_while_it_acquires_keeps_nothing(
    agent: Agent, other: Agent, held: Any
) -> None:
    release(agent, held)
    resource = "SELECT FROM coordination_resource WHERE organization_id = %s AND resource_id = 'checkout' FOR NO KEY UPDATE"
    with second_connection() as lock:
        lock.run(resource, agent.principal.organization_id)
        acquiring = Work(lambda: agent.send("POST", "/leases", named("checkout")))
        wait_until_blocked(lock)
        # It has found its caller, so the disabling waits for it and then sees its lease.
        disabling = Work(lambda: transact(lambda: identity.disable_principal(agent.principal)))
        wait_until_blocked(lock, count=2)
        lock.commit()
        assert acquiring.outcome().status_code == 201
        disabling.outcome()
    assert history(other) == [(1, "released"), (2, "revoked")]


def test_a_principal_that_was_disabled_meanwhile_acquires_nothing(
    agent: Agent, other: Agent, held: Any
) -> None:
    release(agent, held)
    with second_connection() as lock:
        lock.run("SELECT FROM coordination_principal WHERE id = %s FOR UPDATE", agent.principal.pk)
        lock.run(
            "UPDATE coordination_principal SET disabled_at = clock_timestamp() WHERE id = %s",
            agent.principal.pk,
        )
        acquiring = Work(lambda: agent.send("POST", "/leases", named("checkout")))
        first = Work(lambda: agent.send("POST", "/leases", named("never leased")))
        wait_until_blocked(lock, count=2)
        lock.commit()
        assert [work.outcome().status_code for work in (acquiring, first)] == [401, 401]
    assert history(other) == [(1, "released")]


def test_a_revoked_key_lets_its_leases_run_out(agent: Agent, other: Agent, held: Any) -> None:
    key = ApiKey.objects.get(principal=agent.principal)
    transact(lambda: identity.revoke_key(key.organization_id, key.pk))
    agent.refused("UNAUTHENTICATED", f"/leases/{held['lease_id']}", {}, method="PATCH")
    other.refused("CONFLICT", "/leases", named("checkout"))
    let_run_out(held)
    assert acquire(other)["granted_because"] == "after_expiry"


def test_the_end_of_a_membership_takes_what_its_principal_leases(company: Company, agent: Agent) -> None:
    human = company.human("operator")
    # People lease tasks alone, on the board; the rule does not ask what.
    lease = acquire(agent)
    sql(
        "UPDATE coordination_lease SET principal_id = %s WHERE id = %s",
        human.caller.principal_id,
        uuid_of(lease["lease_id"]),
    )
    membership = Membership.objects.get(user=human.user, organization=company.organization)
    transact(lambda: identity.end_membership(membership))
    assert history(agent) == [(1, "revoked")]
