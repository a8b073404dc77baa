"""Leases beyond `seeds/000`: renewals, batches, lists, and what the log shows to whom."""

from typing import Any

import httpx
import pytest

from coordination import identity

from .cast import Agent, Company, Human
from .leasing import (
    acquire,
    batch,
    gone,
    history,
    lease_events,
    let_run_out,
    named,
    release,
    renew,
    shown,
)
from .sessions import Session


@pytest.fixture
def held(agent: Agent) -> Any:
    """A lease that `agent` holds."""
    return acquire(agent, "checkout", purpose="run rollback smoke", ttl_seconds=600)


# Renewing


def test_a_renewal_never_brings_the_end_forward(agent: Agent, held: Any) -> None:
    renewed = renew(agent, held, ttl_seconds=10)
    assert renewed["expires_at"] == held["expires_at"]
    assert renew(agent, held, ttl_seconds=900)["expires_at"] > held["expires_at"]
    assert shown(agent, held)["renewal_count"] == 2


def test_a_renewal_gives_a_new_sequencer_on_request(agent: Agent, held: Any) -> None:
    assert "sequencer" not in renew(agent, held)
    assert renew(agent, held, sequencer=True)["sequencer"].count(".") == 2


def test_an_expired_lease_is_not_renewed_though_nobody_took_over(agent: Agent, held: Any) -> None:
    let_run_out(held)
    error = agent.refused("NOT_FOUND", f"/leases/{held['lease_id']}", {}, method="PATCH")
    assert error["details"] == {"reason": "expired"}
    assert "Acquire the resource again" in error["message"]
    assert gone(agent, held) == "expired"
    agent.refused("NOT_FOUND", f"/leases/{held['lease_id']}/jeopardy")
    assert history(agent) == [(1, None)]


# Batches


def test_a_batch_is_leased_whole_in_the_order_of_the_request(agent: Agent) -> None:
    acquire(agent, "b")
    leases = agent.post("/leases/batch", batch("c", "b", "a", "other/b", ttl_seconds=60))["leases"]
    found = [(lease["resource_type"], lease["resource_id"], lease["epoch"]) for lease in leases]
    assert found == [("deploy", "c", 1), ("deploy", "b", 2), ("deploy", "a", 1), ("other", "b", 1)]
    assert {lease["ttl_seconds"] for lease in leases} == {60}
    assert [lease["granted_because"] for lease in leases] == ["claim", "reacquire", "claim", "claim"]
    for lease in leases:
        assert lease_events(lease)[-1] == "lease.acquired"


def test_of_a_batch_with_one_busy_resource_nothing_is_leased(agent: Agent, other: Agent, held: Any) -> None:
    mine = acquire(other, "search")
    answer = other.send("POST", "/leases/batch", batch("new", "search", "checkout"))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "CONFLICT")
    # It names what is busy, and nothing of who holds it or what for.
    busy = {"resource_type": "deploy", "resource_id": "checkout", "expires_at": held["expires_at"]}
    assert error["details"] == {"expires_at": held["expires_at"], "resources": [busy]}
    assert "run rollback smoke" not in answer.text
    assert "ada" not in answer.text
    assert 590 < int(answer.headers["Retry-After"]) <= 600
    assert shown(other, mine)["certainty"] == "held"
    assert history(other, "new") == []


def test_the_409_of_a_batch_waits_for_the_last_of_what_is_busy(
    company: Company, agent: Agent, other: Agent
) -> None:
    sooner, later = acquire(agent, "red", ttl_seconds=60), acquire(other, "blue", ttl_seconds=600)
    error = company.agent().refused("CONFLICT", "/leases/batch", batch("red", "blue", "green"))
    assert error["details"]["expires_at"] == later["expires_at"]
    until = {item["resource_id"]: item["expires_at"] for item in error["details"]["resources"]}
    assert until == {"red": sooner["expires_at"], "blue": later["expires_at"]}
    assert error["message"].startswith("2 of the resources are leased by another principal")


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        (["a", "b", "a"], "resources"),
        ([], "resources"),
        ([f"r{number}" for number in range(51)], "resources"),
        (["a", "task/task_1"], "resource_type"),
        (["a", "section/guide/intro"], "resource_type"),
    ],
)
def test_a_bad_batch_is_refused_and_names_the_field(agent: Agent, resources: list[str], field: str) -> None:
    error = agent.refused("VALIDATION_ERROR", "/leases/batch", batch(*resources))
    assert list(error["details"]["fields"]) == [field]
    assert history(agent, "a") == []


@pytest.mark.parametrize("kind", ["task", "section"])
def test_reserved_types_have_doors_of_their_own(agent: Agent, kind: str) -> None:
    error = agent.refused("VALIDATION_ERROR", "/leases", {"resource_type": kind, "resource_id": "x"})
    assert list(error["details"]["fields"]) == ["resource_type"]


def test_fifty_resources_are_leased_at_once(agent: Agent) -> None:
    names = [f"r{number}" for number in range(50)]
    leases = agent.post("/leases/batch", batch(*names))["leases"]
    assert [lease["resource_id"] for lease in leases] == names


# Who sees what


def test_an_agent_lists_its_own_leases_and_an_admins_key_all(
    company: Company, agent: Agent, held: Any
) -> None:
    plain, boss = (
        company.agent(scopes="leases:read leases:write"),
        company.agent(scopes="leases:read leases:admin"),
    )
    mine = acquire(plain, "search")
    assert [lease["lease_id"] for lease in plain.get("/leases")["leases"]] == [mine["lease_id"]]
    assert {lease["lease_id"] for lease in boss.get("/leases")["leases"]} == {
        mine["lease_id"],
        held["lease_id"],
    }
    plain.refused("NOT_FOUND", f"/leases/{held['lease_id']}", method="GET")
    seen = boss.get(f"/leases/{held['lease_id']}")
    assert (seen["holder"], seen["purpose"]) == ("ada", "run rollback smoke")


def test_operators_list_what_their_organizations_lease(
    company: Company, elsewhere: Company, held: Any
) -> None:
    operator = company.human("operator")
    identity.add_member(elsewhere.organization, operator.user, "operator")  # type: ignore[arg-type]
    theirs = acquire(elsewhere.agent())

    def listed(human: Human) -> set[str]:
        with Session(human, company.url) as session:
            answer = session.client.get("/v1/leases")
            assert answer.status_code == 200, answer.text
            return {lease["lease_id"] for lease in answer.json()["data"]["leases"]}

    assert listed(operator) == {held["lease_id"], theirs["lease_id"]}
    assert listed(elsewhere.human("operator")) == {theirs["lease_id"]}
    assert listed(company.human("viewer")) == set()
    with Session(operator, company.url) as session:
        assert session.client.get(f"/v1/leases/{held['lease_id']}").json()["data"]["holder"] == "ada"
        assert session.client.head("/v1/leases").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/leases"), ("POST", "/v1/leases/{id}/revoke"), ("GET", "/v1/leases/{id}")],
)
def test_who_has_neither_key_nor_session_is_asked_for_a_key(
    company: Company, held: Any, method: str, path: str
) -> None:
    answer = httpx.request(method, company.url + path.format(id=held["lease_id"]))
    assert answer.status_code == 401
    assert "Authorization: Bearer" in answer.json()["error"]["message"]


def test_the_list_is_filtered(agent: Agent, other: Agent, held: Any) -> None:
    released, odd, theirs = acquire(agent, "search"), acquire(agent, "ticket/ 7 "), acquire(other, "build/7")
    release(agent, released)
    expired = acquire(agent, "stale")
    let_run_out(expired)

    def found(query: str) -> list[str]:
        return sorted(lease["lease_id"] for lease in agent.get(f"/leases?{query}")["leases"])

    def ids(*leases: Any) -> list[str]:
        return sorted(lease["lease_id"] for lease in leases)

    assert found("resource_type=deploy") == ids(held, released, expired)
    assert found("resource_type=deploy&resource_id=search") == ids(released)
    assert found("resource_id=%207%20") == ids(odd)
    assert found(f"holder={other.get('/principal')['principal_id']}") == ids(theirs)
    assert found("live=true") == ids(held, odd, theirs)
    assert found("live=false") == ids(released, expired)
    for query, field in (
        ("live=yes", "live"),
        ("live=", "live"),
        ("holder=ada", "holder"),
        ("resource=search", "resource"),
        (f"resource_id={'x' * 401}", "resource_id"),
    ):
        error = agent.refused("VALIDATION_ERROR", f"/leases?{query}", method="GET")
        assert list(error["details"]["fields"]) == [field]
    page = agent.get("/leases?limit=2")
    rest = agent.get(f"/leases?limit=3&cursor={page['next_cursor']}")
    assert len({lease["lease_id"] for lease in page["leases"] + rest["leases"]}) == 5
    assert rest["next_cursor"] is None


def test_history_survives_the_end(agent: Agent, held: Any) -> None:
    renew(agent, held, ttl_seconds=900)
    renew(agent, held)
    again = acquire(agent)
    release(agent, again)
    first, second = shown(agent, held), shown(agent, again)
    assert (first["end_reason"], second["end_reason"]) == ("superseded", "released")
    assert second["previous_lease_id"] == held["lease_id"]
    assert len(first["renewals"]) == first["renewal_count"] == 2
    assert first["renewals"][0]["expires_at"] == first["expires_at"]
    assert history(agent) == [(1, "superseded"), (2, "released")]


def test_the_log_shows_who_holds_a_lease_to_its_holder_and_to_admins_alone(company: Company) -> None:
    holder, stranger = (company.agent(scopes="leases:read leases:write events:read") for _ in range(2))
    boss = company.agent(scopes="leases:read leases:admin events:read")
    lease = acquire(holder, "checkout", purpose="secret plan")
    renew(holder, lease)
    holder.post(f"/leases/{lease['lease_id']}/jeopardy")
    release(holder, lease)
    kinds = ["lease.acquired", "lease.renewed", "lease.jeopardy_declared", "lease.released"]
    me = f"agent_{holder.principal.pk.hex}"

    def actors(reader: Agent) -> list[Any]:
        events = [e for e in reader.get("/events")["events"] if e["kind"].startswith("lease.")]
        assert [event["kind"] for event in events] == kinds
        assert "secret plan" not in str(events)
        assert holder.principal.name not in str(events)
        return [event["actor_id"] for event in events]

    assert actors(holder) == actors(boss) == [me] * 4
    assert actors(stranger) == [None] * 4


@pytest.mark.parametrize(
    ("scope", "method", "path", "body"),
    [
        ("leases:read", "GET", "/leases", None),
        ("leases:read", "GET", "/leases/{lease}", None),
        ("leases:write", "POST", "/leases", named("x")),
        ("leases:write", "POST", "/leases/batch", batch("x")),
        ("leases:write", "PATCH", "/leases/{lease}", {}),
        ("leases:write", "DELETE", "/leases/{lease}", None),
        ("leases:write", "POST", "/leases/{lease}/jeopardy", {}),
    ],
)
def test_each_route_names_the_scope_it_needs(
    company: Company, held: Any, scope: str, method: str, path: str, body: Any
) -> None:
    lacking = company.agent(scopes="tasks:read events:read")
    error = lacking.refused("FORBIDDEN", path.format(lease=held["lease_id"]), body, method=method)
    assert error["details"] == {"scope": scope}
