"""The doors of effects: what is authorized, refused, repeated after a lost answer, listed and read."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from coordination.models import Task

from .acting import DEPLOY, PUBLISH, effect, effects_of, listed, request, rule, under
from .cases.tools import at_once, events_of
from .cast import Agent, Company
from .clockwork import sql, uuid_of
from .leasing import named


@pytest.fixture(autouse=True)
def policy(company: Company) -> None:
    """Publishing is allowed; about deployments a human is asked."""
    rule(company, "allow", PUBLISH["tool"])


@pytest.fixture
def authorized(agent: Agent, claimed: Any) -> Any:
    """An effect of `claimed` whose outcome is not known yet."""
    return agent.post("/effects", effect(claimed, PUBLISH))


def outcome(effect: Any) -> str:
    """Where its maker reports."""
    return f"/effects/{effect['id']}/outcome"


def test_what_policy_allows_is_authorized_recorded_and_shown(agent: Agent, claimed: Any) -> None:
    sent = effect(claimed, PUBLISH)
    shown = agent.post("/effects", sent)
    assert shown == {
        "id": shown["id"],
        "task_id": claimed["task"]["id"],
        "run_id": claimed["run"]["id"],
        "lease_id": claimed["lease"]["lease_id"],
        "principal_id": agent.get("/principal")["principal_id"],
        "epoch": 1,
        "effect_key": sent["effect_key"],
        "action": PUBLISH,
        "action_digest": shown["action_digest"],
        "kind": "outward",
        "status": "authorized",
        "code": None,
        "verdict": shown["verdict"],
        "approval_id": None,
        "late": False,
        "note": "",
        "reconciled_by_user_id": None,
        "reports": [],
        "created_at": shown["created_at"],
        "outcome_at": None,
    }
    assert shown["verdict"]["decision"] == "allow"
    assert shown["verdict"]["rule"]["tool"] == "publish"
    assert agent.get(f"/effects/{shown['id']}") == shown
    (event,) = events_of(agent, kind="effect.authorized")
    assert event["subject_id"] == shown["id"]
    assert event["data"]["action_digest"] == shown["action_digest"]
    assert event["data"]["rule_id"] == shown["verdict"]["rule"]["id"]
    assert (event["task_id"], event["run_id"], event["epoch"]) == (shown["task_id"], shown["run_id"], 1)


@pytest.mark.parametrize("names_it", [True, False])
def test_what_a_human_approved_is_authorized_once(
    names_it: bool, agent: Agent, claimed: Any, decide: Callable[..., Any]
) -> None:
    approval = decide(claimed, DEPLOY)
    named = {"approval_id": approval["id"]} if names_it else {}
    done = agent.post("/effects", effect(claimed, DEPLOY, **named))
    assert (done["status"], done["approval_id"]) == ("authorized", approval["id"])
    used = agent.get(f"/approvals/{approval['id']}")
    assert (used["status"], used["closed_at"]) == ("consumed", done["created_at"])
    agent.refused("ALREADY_CONSUMED", "/effects", effect(claimed, DEPLOY, **named))
    assert [event["subject_id"] for event in events_of(agent, kind="approval.consumed")] == [approval["id"]]


def test_an_agent_learns_why_and_that_no_is_final(
    agent: Agent, claimed: Any, decide: Callable[..., Any]
) -> None:
    denied = decide(claimed, DEPLOY, "deny", reason="Not on a Friday.")
    assert (denied["granted"], denied["final"]) == (False, True)
    for path, body in (("/effects", effect(claimed, DEPLOY)), ("/approvals", request(claimed, DEPLOY))):
        details = agent.refused("APPROVAL_DENIED", path, body)["details"]
        assert details["approval_id"] == denied["id"]
        assert (details["reason"], details["final"]) == ("Not on a Friday.", True)
        assert details["until"] > denied["ended_at"]


def test_an_approval_of_another_action_is_of_no_use(
    agent: Agent, claimed: Any, decide: Callable[..., Any]
) -> None:
    approval = decide(claimed, DEPLOY)
    other = {**DEPLOY, "arguments": {"build": 42}}
    error = agent.refused("DIGEST_MISMATCH", "/effects", effect(claimed, other, approval_id=approval["id"]))
    assert error["details"]["approved"] == approval["action_digest"] != error["details"]["sent"]
    agent.refused("APPROVAL_REQUIRED", "/effects", effect(claimed, other))
    assert agent.get(f"/approvals/{approval['id']}")["status"] == "decided"


def test_refusals_are_kept_and_leave_the_key_free(
    agent: Agent, claimed: Any, decide: Callable[..., Any]
) -> None:
    sent = effect(claimed, DEPLOY)
    agent.refused("APPROVAL_REQUIRED", "/effects", sent)
    (refused,) = effects_of(agent)
    assert (refused["status"], refused["code"]) == ("refused", "APPROVAL_REQUIRED")
    assert (refused["effect_key"], refused["action"]) == (sent["effect_key"], DEPLOY)
    (event,) = events_of(agent, kind="effect.refused")
    assert (event["subject_id"], event["data"]["code"]) == (refused["id"], "APPROVAL_REQUIRED")
    decide(claimed, DEPLOY)
    done = agent.post("/effects", sent)
    used = agent.refused("CONFLICT", "/effects", sent)
    assert used["details"] == {"effect_id": done["id"], "state": "authorized"}
    assert Task.objects.get(pk=uuid_of(claimed["task"]["id"])).open_effects == 1


def test_a_lost_answer_is_repeated_and_nothing_is_used_twice(
    agent: Agent, claimed: Any, decide: Callable[..., Any]
) -> None:
    approval, sent, key = decide(claimed, DEPLOY), effect(claimed, DEPLOY), {"Idempotency-Key": "lost"}
    first = agent.post("/effects", sent, headers=key)
    # Even what has come of it meanwhile does not change what was answered.
    agent.post(outcome(first), {"outcome": "succeeded"})
    assert agent.post("/effects", sent, headers=key) == first
    agent.refused("IDEMPOTENCY_MISMATCH", "/effects", {**sent, "effect_key": "else"}, headers=key)
    assert [each["status"] for each in effects_of(agent)] == ["succeeded"]
    assert agent.get(f"/approvals/{approval['id']}")["status"] == "consumed"
    assert len(events_of(agent, kind="approval.consumed")) == 1


def test_of_20_repeats_at_once_one_is_an_effect(
    agent: Agent, claimed: Any, decide: Callable[..., Any]
) -> None:
    decide(claimed, DEPLOY)
    sent, key = effect(claimed, DEPLOY), {"Idempotency-Key": "at once"}
    answers = at_once(range(20), lambda _: agent.client.post("/v1/effects", json=sent, headers=key))
    assert {answer.status_code for answer in answers} <= {201, 409}
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["error"]["details"] == {"reason": "in_flight"}
    made = {answer.json()["data"]["id"] for answer in answers if answer.status_code == 201}
    assert [each["id"] for each in effects_of(agent)] == list(made)


def test_a_refusal_is_not_repeated_for_its_key(
    agent: Agent, claimed: Any, decide: Callable[..., Any]
) -> None:
    sent, key = effect(claimed, DEPLOY), {"Idempotency-Key": "later"}
    agent.refused("APPROVAL_REQUIRED", "/effects", sent, headers=key)
    decide(claimed, DEPLOY)
    assert agent.post("/effects", sent, headers=key)["status"] == "authorized"


def test_a_list_is_filtered_and_read_page_by_page(agent: Agent, other: Agent, claimed: Any) -> None:
    other.create("Other work")
    second = other.claim()
    mine = [agent.post("/effects", effect(claimed, PUBLISH)) for _ in range(3)]
    theirs = other.post("/effects", effect(second, PUBLISH))
    agent.refused("APPROVAL_REQUIRED", "/effects", effect(claimed, DEPLOY))
    agent.post(outcome(mine[0]), {"outcome": "failed"})
    whole = [each["id"] for each in effects_of(agent)]
    assert len(whole) == 5
    assert whole[1:] == [each["id"] for each in (theirs, *reversed(mine))]
    for query, found in (
        ({"status": "failed"}, [mine[0]["id"]]),
        ({"status": "refused"}, [whole[0]]),
        ({"status": "authorized", "task": second["task"]["id"]}, [theirs["id"]]),
        ({"run": claimed["run"]["id"]}, [key for key in whole if key != theirs["id"]]),
        ({"principal": theirs["principal_id"]}, [theirs["id"]]),
        ({"status": "unknown"}, []),
    ):
        assert [each["id"] for each in effects_of(agent, **query)] == found, query
    pages = [agent.get("/effects", params={"limit": 2})]
    while cursor := pages[-1]["next_cursor"]:
        pages.append(agent.get("/effects", params={"limit": 2, "cursor": cursor}))
    assert [[each["id"] for each in page["effects"]] for page in pages] == [whole[:2], whole[2:4], whole[4:]]


def test_the_scopes_of_a_key_open_the_doors(company: Company, agent: Agent, claimed: Any) -> None:
    made = agent.post("/effects", effect(claimed, PUBLISH))
    reader, maker = company.agent(scopes="tasks:read"), company.agent(scopes="effects:write")
    assert effects_of(reader)[0]["id"] == reader.get(f"/effects/{made['id']}")["id"]
    for path in ("/effects", f"/effects/{made['id']}"):
        maker.refused("FORBIDDEN", path, method="GET")
    reader.refused("FORBIDDEN", "/effects", effect(claimed, PUBLISH))
    reader.refused("FORBIDDEN", outcome(made), {"outcome": "failed"})
    # Its scope lets it ask; the run is another's.
    maker.refused("NOT_HOLDER", "/effects", effect(claimed, PUBLISH))


def test_under_a_lease_on_anything_else_only_what_policy_allows(
    agent: Agent, other: Agent, company: Company
) -> None:
    listed(company, "look", "other")
    lease = agent.post("/leases", named("deploy/checkout"))

    def sent(action: Any, **more: Any) -> dict[str, Any]:
        ground = {"lease_id": lease["lease_id"], "epoch": lease["epoch"]}
        return {**ground, "action": action, "effect_key": next(keys), **more}

    keys = (f"under-{number}" for number in itertools.count())
    made = agent.post("/effects", sent(PUBLISH))
    assert (made["task_id"], made["run_id"], made["lease_id"]) == (None, None, lease["lease_id"])
    assert agent.post("/effects", sent({"tool": "look"}))["kind"] == "other"
    agent.refused("APPROVAL_REQUIRED", "/effects", sent(DEPLOY))
    agent.refused("CONFLICT", "/effects", sent(PUBLISH, effect_key=made["effect_key"]))
    agent.refused("STALE_EPOCH", "/effects", sent(PUBLISH, epoch=lease["epoch"] + 1))
    other.refused("NOT_HOLDER", "/effects", sent(PUBLISH))
    agent.post(f"/leases/{lease['lease_id']}/jeopardy")
    agent.refused("LEASE_IN_JEOPARDY", "/effects", sent(PUBLISH))
    agent.send("PATCH", f"/leases/{lease['lease_id']}", {})
    agent.post("/effects", sent(PUBLISH))
    agent.send("DELETE", f"/leases/{lease['lease_id']}")
    assert agent.send("POST", "/effects", sent(PUBLISH)).status_code == 409
    assert agent.post(outcome(made), {"outcome": "succeeded"})["late"] is True


def test_a_tasks_lease_names_its_run(agent: Agent, claimed: Any) -> None:
    body = effect(claimed, PUBLISH, lease_id=claimed["lease"]["lease_id"])
    del body["run_id"]
    assert agent.post("/effects", body)["run_id"] == under(claimed)["run_id"]


def test_reading_changes_nothing(agent: Agent, authorized: Any) -> None:
    def rows() -> Any:
        return sql("SELECT t::text FROM approvals_effect t WHERE id = %s", uuid_of(authorized["id"]))

    before = rows()
    for method in ("GET", "HEAD", "OPTIONS"):
        for path in ("/v1/effects", f"/v1/effects/{authorized['id']}"):
            assert agent.client.request(method, path).status_code < 500
    assert rows() == before
