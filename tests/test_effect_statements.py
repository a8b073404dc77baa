"""What effects cost: one short transaction, indexes for what is looked up, and nothing for who makes none."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import effects, outcomes, requests
from approvals.actions import Action
from coordination import sweeping
from titen.errors import Refused

from . import acting, effecting
from .cast import Agent, Company, founded
from .clockwork import let_lease_run_out, uuid_of
from .servers import Server
from .test_hot_statements import HOT, Door, sent_by


def _commits(sent: list[str]) -> tuple[int, int]:
    """(COMMITs, ROLLBACKs)"""
    return sum("COMMIT" in each for each in sent), sum("ROLLBACK" in each for each in sent)


def _in_process(agent: Agent, path: str, body: dict[str, Any], status: int) -> list[str]:
    """What a POST through the real doors sends to the database."""

    def send() -> None:
        headers = {"Authorization": f"Bearer {agent.secret}"}
        answer = Client().post(f"/v1{path}", body, content_type="application/json", headers=headers)
        assert answer.status_code == status, answer.content

    return sent_by(send)


def test_authorizing_is_one_short_transaction(company: Company, agent: Agent, claimed: Any) -> None:
    approver = company.human("approver")
    effecting.grant(agent, approver, claimed)
    sent = _in_process(agent, "/effects", acting.effect(claimed), 201)
    assert _commits(sent) == (1, 0)
    assert len(sent) <= 30, sent
    (effect,) = acting.effects_of(agent)
    sent = _in_process(agent, f"/effects/{effect['id']}/outcome", {"outcome": "succeeded"}, 200)
    assert _commits(sent) == (1, 0)
    assert len(sent) <= 18, sent


def test_a_refused_effect_is_kept_in_a_second_transaction(agent: Agent, claimed: Any) -> None:
    sent = _in_process(agent, "/effects", acting.effect(claimed), 409)
    assert _commits(sent) == (1, 1)
    assert len(sent) <= 30, sent


@pytest.mark.parametrize("verb", ["fail", "release"])
def test_the_end_of_a_run_with_effects_is_one_transaction(
    company: Company, agent: Agent, claimed: Any, verb: str
) -> None:
    """Tried without first, which is all that a run without them costs."""
    acting.rule(company, "allow")
    for _ in range(3):
        effecting.authorize(agent, claimed)
    door, path = Door(agent), f"/runs/{claimed['run']['id']}/{verb}"
    sent = sent_by(lambda: door.post(path, {"epoch": claimed["lease"]["epoch"], **HOT[verb]}))
    assert _commits(sent) == (1, 0)
    # The end in vain; then BEGIN, the end, lock and clock and change of all effects, their events, COMMIT.
    assert len(sent) == 1 + 1 + 1 + 3 + 3 + 1, sent


@pytest.mark.parametrize("settled", [True, False], ids=["without effects", "with effects"])
def test_a_sweep_of_runs_without_effects_is_one_statement(
    company: Company, agent: Agent, claimed: Any, settled: bool
) -> None:
    acting.rule(company, "allow")
    if not settled:
        effecting.authorize(agent, claimed)
    let_lease_run_out(claimed)
    sent = sent_by(lambda: sweeping.sweep_batch(organization_id=company.organization.pk))
    assert sent == ["Execute"] if settled else _commits(sent) == (1, 0)


# Of every second row the organization is a real one.
ORGANIZATION = "CASE n %% 2 WHEN 0 THEN %(organization)s ELSE md5('org' || n %% 20)::uuid END"
MANY_APPROVALS = f"""
INSERT INTO approvals_approval (organization_id, task_id, run_id, epoch, requested_by_id, question, context, options,
    digest, action, action_digest, kind, risk, valid_for_seconds, required_role, votes_required, status, decision,
    granted, reason, decided_by_user_id, expires_at, ended_at)
SELECT o.id, t.id, t.id, 1, p.id, 'May I?', '', '[]', 'x', '{{}}', md5((n %% 5000)::text), 'outward', 'medium', 3600,
    'approver', 1, s.status, CASE s.status WHEN 'decided' THEN 'no' END, CASE s.status WHEN 'decided' THEN false END, '',
    CASE s.status WHEN 'decided' THEN o.id END, clock_timestamp() + interval '1 day',
    CASE WHEN s.status <> 'pending' THEN clock_timestamp() END
FROM generate_series(1, 20000) n
CROSS JOIN LATERAL (SELECT md5('task' || n / 4)::uuid AS id) t CROSS JOIN LATERAL (SELECT md5('one' || n %% 500)::uuid AS id) p
CROSS JOIN LATERAL (SELECT {ORGANIZATION} AS id) o
CROSS JOIN LATERAL (SELECT (ARRAY['pending', 'expired', 'decided', 'decided'])[1 + n %% 4] AS status) s"""
MANY_EFFECTS = f"""
INSERT INTO approvals_effect (organization_id, resource_id, lease_id, task_id, run_id, principal_id, epoch, effect_key,
    action, action_digest, kind, verdict, status, code)
SELECT {ORGANIZATION}, t.id, t.id, t.id, t.id, t.id, 1, 'key-' || n, '{{}}', md5(n::text), 'outward', '{{}}',
    CASE n %% 2 WHEN 0 THEN 'authorized' ELSE 'refused' END, CASE n %% 2 WHEN 0 THEN '' ELSE 'NOT_HOLDER' END
FROM generate_series(1, 20000) n CROSS JOIN LATERAL (SELECT md5('task' || n / 4)::uuid AS id) t"""
MANY_RULES = f"""
INSERT INTO approvals_policyrule (organization_id, rank, tool, server, kind, capability, decision, required_role, risk,
    note, made_by_id, ended_at)
SELECT CASE n %% 100 WHEN 0 THEN {ORGANIZATION} ELSE md5('org' || n)::uuid END, 0, 'tool-' || n, '*', '',
    '', 'ask', 'approver', '', '', %(user)s,
    CASE WHEN n %% 3 > 0 THEN clock_timestamp() END FROM generate_series(1, 20000) n"""
MANY_TOOLS = f"""
INSERT INTO approvals_toolentry (organization_id, rank, tool, server, kind, ended_at)
SELECT CASE n %% 100 WHEN 0 THEN {ORGANIZATION} ELSE md5('org' || n)::uuid END, 0, 'tool-' || n, '*',
    'other', CASE WHEN n %% 3 > 0 THEN clock_timestamp() END
FROM generate_series(1, 20000) n"""


def _queries(work: Callable[[], Any]) -> list[str]:
    """The SQL that Django sends for `work`, in a transaction that is undone."""
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        with suppress(Refused):
            work()
        transaction.set_rollback(True)
    return [query["sql"] for query in captured.captured_queries]


# A new query -> the index that serves it.
PLANS: dict[str, tuple[str, str, str]] = {
    "the approvals of an action on a task": (
        "approvals_approval",
        "FOR NO KEY UPDATE",
        "approvals_of_a_task",
    ),
    "a denial that holds": ("approvals_approval", '"denial_lifted_at" IS NULL', "approvals_of_an_action"),
    "what a principal has pending": ("approvals_approval", '"requested_by_id" =', "pending_of_a_principal"),
    "the use of a key": ("approvals_effect", "NOT (", "effect_key_is_used_once"),
    "what a run leaves": ("approvals_effect", "FOR NO KEY UPDATE", "effects_of_a_task"),
    "the same refusal a moment ago": ("approvals_effect", "'refused'", "refusals_under_a_lease"),
    "the rules that hold": ("approvals_policyrule", "SELECT", "rules_that_hold"),
    "the tool list that holds": ("approvals_toolentry", "SELECT", "a_tool_is_listed_once_per_rank"),
}


@pytest.fixture(scope="module")
def plans(web: Server) -> dict[str, str]:
    """Each new query, as the rules send it, with its plan on full tables."""
    with founded(web.url) as company:
        agent, approver = company.agent(), company.human("approver")
        agent.create()
        claim = agent.claim()
        action = Action(**acting.DEPLOY)
        run, epoch = uuid_of(claim["run"]["id"]), claim["lease"]["epoch"]
        caller = agent.caller
        effecting.grant(agent, approver, claim, acting.PUBLISH)

        def authorize() -> None:
            with pytest.raises(Refused) as no:
                effects.authorize(caller, run_id=run, epoch=epoch, action=action, effect_key="x")
            assert no.value.afterwards
            no.value.afterwards()

        sent = _queries(authorize)
        sent += _queries(lambda: outcomes.run_ended([run]))
        asks = {"run_id": run, "epoch": epoch, "question": "?", "action": action}
        sent += _queries(lambda: requests.request(caller, **asks))
        params = {"organization": company.organization.pk, "user": approver.user.pk}
    # In one transaction of the tables' owner that is never committed: nobody else sees it.
    with psycopg.connect(os.environ["DATABASE_URL"]) as owner:
        for many in (MANY_APPROVALS, MANY_EFFECTS, MANY_RULES, MANY_TOOLS):
            owner.execute(many.encode(), params)
        owner.execute(
            "ANALYZE approvals_approval, approvals_effect, approvals_policyrule, approvals_toolentry"
        )
        explained = {
            query: "\n".join(str(row[0]) for row in owner.execute(f"EXPLAIN {query}".encode()))
            for query in dict.fromkeys(sent)
            if query.startswith("SELECT") and "approvals_" in query
        }
        owner.rollback()
    return explained


@pytest.mark.parametrize("name", PLANS)
def test_a_query_of_effects_uses_its_index(plans: dict[str, str], name: str) -> None:
    table, piece, index = PLANS[name]
    found = {query: plan for query, plan in plans.items() if f'FROM "{table}"' in query and piece in query}
    assert found, list(plans)
    for query, plan in found.items():
        assert f"Seq Scan on {table}" not in plan, f"{query}\n{plan}"
    assert any(f" {index}" in plan for plan in found.values()), "\n".join(found.values())
