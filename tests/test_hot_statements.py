"""What the hot verbs cost: one statement each and no BEGIN, few pages, and heap-only updates."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client

from coordination import runs, statements
from coordination.callers import by_principal

from .cast import Agent, Company
from .clockwork import sql, uuid_of

SENT = re.compile(r"\tF\t\d+\t(Query|Execute)\b(.*)$", re.MULTILINE)


def sent_by(work: Callable[[], Any]) -> list[str]:
    """What libpq sent on Django's connection: `Execute` per statement, and the text of simple queries."""
    connection.ensure_connection()
    with tempfile.NamedTemporaryFile() as trace:
        wire = connection.connection.pgconn
        wire.trace(trace.fileno())
        try:
            work()
        finally:
            wire.untrace()
        text = Path(trace.name).read_text(errors="replace")
    return [f"{kind}{rest if kind == 'Query' else ''}" for kind, rest in SENT.findall(text)]


class Door:
    """The real doors in this process, so that their connection is ours to listen to."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.client = agent, Client()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.client.post(
            f"/v1{path}",
            body,
            content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {self.agent.secret}",
        )
        assert answer.status_code == 200, answer.content
        return answer.json()["data"]


HOT: dict[str, dict[str, Any]] = {
    "heartbeat": {"progress": 10, "status": "half way"},
    "complete": {"summary": "Done."},
    "fail": {"error": "no network"},
    "release": {},
    "complete and claim the next": {"claim_next": True},
    "fail and claim the next": {"error": "no network", "claim_next": True},
    "release and claim the next": {"claim_next": True},
}


@pytest.mark.parametrize("verb", ["claim", *HOT])
def test_a_hot_verb_is_one_statement_and_no_transaction_block(agent: Agent, verb: str) -> None:
    door = Door(agent)
    for number in range(4):
        agent.create(f"Task {number}")
    claim = door.post("/tasks/claim", {})
    if verb == "claim":
        sent = sent_by(lambda: door.post("/tasks/claim", {}))
    else:
        path = f"/runs/{claim['run']['id']}/{verb.split()[0]}"
        body = {"epoch": claim["lease"]["epoch"], **HOT[verb]}
        sent = sent_by(lambda: door.post(path, body))
    assert sent == ["Execute"]


def test_the_listener_hears_transactions(agent: Agent) -> None:
    """The test above would notice: an ordinary door sends BEGIN and COMMIT."""
    answer: list[Any] = []

    def create() -> None:
        answer.append(
            Client().post(
                "/v1/tasks",
                {"title": "Ordinary"},
                content_type="application/json",
                HTTP_AUTHORIZATION=f"Bearer {agent.secret}",
            )
        )

    sent = " ".join(sent_by(create))
    assert answer[0].status_code == 201
    assert "BEGIN" in sent
    assert "COMMIT" in sent


QUEUE = """
WITH profiles AS (
    INSERT INTO coordination_capabilityprofile (organization_id, capabilities)
    SELECT %(organization)s, ARRAY['skill-' || n] FROM generate_series(1, 20) n RETURNING id
), numbered AS (SELECT id, row_number() OVER () - 1 AS place FROM profiles
), resources AS (
    INSERT INTO coordination_resource (organization_id, resource_type, resource_id, epoch)
    SELECT %(organization)s, 'task', 'bulk-' || n, 0 FROM generate_series(1, 20000) n RETURNING id, resource_id
)
INSERT INTO coordination_task (organization_id, resource_id, profile_id, title, description, status, priority, payload,
    secret_refs, max_attempts, attempt_count, run_count, fruitless_ends, open_blockers, open_dependencies, open_effects,
    dependent_count, last_error, summary, evidence, created_by_id)
SELECT %(organization)s, r.id, p.id, r.resource_id, '', 'todo', (random() * 20)::int, '{}', '{}', 3, 0, 0, 0, 0, 0, 0,
    0, '', '', '[]', %(creator)s
FROM resources r JOIN numbered p ON p.place = substr(r.resource_id, 6)::int %% 20"""


@pytest.mark.parametrize("after", ["ANALYZE", "statistics of an empty table"])
def test_a_claim_from_20000_queued_tasks_reads_few_pages(company: Company, agent: Agent, after: str) -> None:
    worker = company.agent(capabilities=["skill-1", "skill-7"])
    params: dict[str, Any] = {
        **by_principal(worker.principal.pk).params,
        "capabilities": None,
        "ttl": None,
        "task": None,
    }
    claim = statements.claim(caller=by_principal(worker.principal.pk).clause)
    # Everything in one transaction of the tables' owner that is never committed: nobody else sees it.
    with psycopg.connect(os.environ["DATABASE_URL"]) as owner:
        owner.execute("SET LOCAL synchronize_seqscans = off")
        owner.execute(
            QUEUE.encode(), {"organization": company.organization.pk, "creator": agent.principal.pk}
        )
        if after == "ANALYZE":
            owner.execute("ANALYZE coordination_task, coordination_resource, coordination_capabilityprofile")
        plan = [
            str(row[0])
            for row in owner.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {claim}".encode(), params)
        ]
        owner.rollback()
    text = "\n".join(plan)
    assert "ready_tasks_by_profile" in text
    assert "Seq Scan on coordination_task " not in text
    picked = text[text.index("CTE picked") :]
    read = re.search(r"Buffers: shared hit=(\d+)(?: read=(\d+))?", picked)
    assert read
    assert sum(int(number or 0) for number in read.groups()) < 200, text


def test_heartbeats_are_heap_only_updates(agent: Agent) -> None:
    agent.create()
    claim = agent.claim()
    run, epoch = uuid_of(claim["run"]["id"]), claim["lease"]["epoch"]
    tables = ("coordination_lease", "coordination_run")

    def updates() -> dict[str, tuple[int, int]]:
        sql("SELECT pg_stat_force_next_flush()")
        found = sql(
            "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables WHERE relname = ANY (%s)",
            list(tables),
        )
        return {name: (all_updates, hot) for name, all_updates, hot in found}

    before = updates()
    for beat in range(60):
        runs.heartbeat(
            by_principal(agent.principal.pk), run, epoch=epoch, progress=beat, status=f"step {beat}"
        )
    after = updates()
    for table in tables:
        made = after[table][0] - before[table][0]
        assert made >= 60
        assert after[table][1] - before[table][1] == made
