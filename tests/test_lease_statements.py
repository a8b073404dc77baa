"""What a lease costs: how many statements, and plans that go by indexes however much history there is."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.test import Client

from coordination import leasing_statements as sql
from coordination.database import _numbered
from coordination.identity import digest_of
from titen.live.looks import _FREE

from .cast import Agent, Company
from .leasing import acquire, named
from .test_hot_statements import sent_by


def verbs(agent: Agent) -> dict[str, Callable[[], Any]]:
    """Each verb at the real door, in this process."""
    client = Client(headers={"authorization": f"Bearer {agent.secret}"})
    held = acquire(agent)

    def send(method: str, path: str, body: Any, status: int) -> None:
        answer = client.generic(method, f"/v1{path}", json.dumps(body), content_type="application/json")
        assert answer.status_code == status, answer.content

    lease = f"/leases/{held['lease_id']}"
    return {
        "renew": lambda: send("PATCH", lease, {}, 200),
        "declare jeopardy": lambda: send("POST", f"{lease}/jeopardy", {}, 200),
        "release": lambda: send("DELETE", lease, {}, 200),
        "acquire": lambda: send("POST", "/leases", named("checkout"), 201),
        "acquire again": lambda: send("POST", "/leases", named("checkout"), 201),
        "acquire for the first time": lambda: send("POST", "/leases", named("never leased"), 201),
    }


STATEMENTS = {
    "renew": 1,
    "declare jeopardy": 1,
    "release": 1,
    "acquire": 2,
    "acquire again": 2,
    "acquire for the first time": 4,
}


def test_a_verb_is_its_authentication_and_one_short_transaction(agent: Agent) -> None:
    offered = verbs(agent)
    offered["acquire again"]()  # the signing key is looked up now and then
    offered = verbs(agent)
    for verb, work in offered.items():
        sent = sent_by(work)
        begin, commit = (next(line for line in sent if word in line) for word in ("BEGIN", "COMMIT"))
        assert sent == ["Execute", begin, *["Execute"] * STATEMENTS[verb], commit], verb


HISTORY = """
WITH resources AS (
    INSERT INTO coordination_resource (organization_id, resource_type, resource_id, epoch)
    SELECT %(organization)s, 'bulk', n::text, 40 FROM generate_series(1, 5000) n RETURNING id
)
INSERT INTO coordination_lease (organization_id, resource_id, principal_id, epoch, ttl_seconds, granted_because,
    granted_at, renewed_at, expires_at, ended_at, end_reason)
SELECT %(organization)s, r.id, %(principal)s, e, 60, 'claim', t.at, t.at, t.at + interval '1 min',
    CASE WHEN e < 40 THEN t.at + interval '1 min' END, CASE WHEN e < 40 THEN 'expired' END
FROM resources r CROSS JOIN generate_series(1, 40) e
CROSS JOIN LATERAL (SELECT clock_timestamp() - (40 - e) * interval '1 hour' AS at) t"""


@pytest.fixture
def owner(company: Company, agent: Agent) -> Iterator[Any]:
    """The tables' owner in a transaction with 200,000 leases of 5,000 resources; it is never committed."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        params = {"organization": company.organization.pk, "principal": agent.principal.pk}
        connection.execute(HISTORY.encode(), params)
        connection.execute("ANALYZE coordination_lease, coordination_resource")
        yield connection
        connection.rollback()


def generic_plan(owner: Any, statement: str, params: dict[str, Any]) -> str:
    """How the server runs a statement that was prepared for any parameters, which it does now."""
    text, names = _numbered(statement)
    owner.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    owner.execute(b"PREPARE probe AS " + text)
    given = f"({', '.join(['%s'] * len(names))})" if names else ""
    try:
        cursor = psycopg.ClientCursor(owner)
        cursor.execute(
            f"EXPLAIN (ANALYZE, TIMING OFF) EXECUTE probe{given}".encode(), [params[name] for name in names]
        )
        return "\n".join(row[0] for row in cursor)
    finally:
        owner.execute("DEALLOCATE probe")


def test_no_statement_reads_the_history_of_leases(company: Company, agent: Agent, owner: Any) -> None:
    lease, resource = owner.execute(
        "SELECT l.id, l.resource_id FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id"
        " WHERE r.organization_id = %s AND r.resource_id = '7' AND l.ended_at IS NULL",
        [company.organization.pk],
    ).fetchone()
    params = {
        "organization": company.organization.pk,
        "principal": agent.principal.pk,
        "types": ["bulk", "bulk"],
        "ids": ["7", "8"],
        "resources": [resource],
        "ttl": 60,
        "purpose": "",
        "lease": lease,
        "actor": agent.principal.pk,
        "actor_name": "ada",
        "note": "",
        "wishes": json.dumps(
            [{"number": 0, "digest": digest_of(agent.secret).hex(), "types": ["bulk"], "ids": ["7"]}] * 20
        ),
    }
    for name, statement in {
        "lock": sql.LOCK,
        "grant": sql.grant(section=False),
        "renew": sql.RENEW,
        "release": sql.RELEASE,
        "jeopardy": sql.JEOPARDY,
        "over": sql.OVER,
        "revoke": sql.REVOKE,
        "sweep": sql.SWEEP,
        "wait": _FREE,
    }.items():
        with owner.transaction(force_rollback=True):
            plan = generic_plan(owner, statement, params)
        assert "Seq Scan on coordination_lease" not in plan, f"{name}\n{plan}"
        if name != "sweep":
            assert "Seq Scan on coordination_resource" not in plan, f"{name}\n{plan}"
        else:
            assert "one_live_lease_per_resource" in plan, plan
