"""What is reported about an effect is kept: each report is a row of its own, which the log names."""

from typing import Any

import pytest
from django.db import ProgrammingError

from approvals.models import EffectReport

from .acting import PUBLISH, effect, effects_of, rule
from .cases.tools import events_of
from .cast import Agent, Company
from .clockwork import sql, uuid_of
from .sessions import People


@pytest.fixture
def authorized(company: Company, agent: Agent, claimed: Any) -> Any:
    """An effect of `claimed` whose outcome is not known yet."""
    rule(company, "allow", PUBLISH["tool"])
    return agent.post("/effects", effect(claimed, PUBLISH))


@pytest.fixture
def reported_twice(agent: Agent, authorized: Any) -> Any:
    """`authorized`, reported as unknown with a note, then as succeeded without one."""
    path = f"/effects/{authorized['id']}/outcome"
    agent.post(path, {"outcome": "unknown", "note": "The upload timed out."})
    return agent.post(path, {"outcome": "succeeded"})


def _told(found: Any) -> list[tuple[str, str, str, bool]]:
    return [(each["was"], each["outcome"], each["note"], each["late"]) for each in found["reports"]]


BOTH = [
    ("authorized", "unknown", "The upload timed out.", False),
    ("unknown", "succeeded", "", False),
]


def test_a_later_report_stands_beside_the_earlier_one(agent: Agent, reported_twice: Any) -> None:
    assert _told(reported_twice) == BOTH
    assert (reported_twice["status"], reported_twice["note"]) == ("succeeded", "")
    assert agent.get(f"/effects/{reported_twice['id']}") == reported_twice
    assert effects_of(agent) == [reported_twice]


def test_the_log_names_each_report(agent: Agent, reported_twice: Any) -> None:
    named = [
        each["data"]["report_id"]
        for kind in ("effect.unknown", "effect.succeeded")
        for each in events_of(agent, kind=kind)
    ]
    assert named == [each["id"] for each in reported_twice["reports"]]


def test_the_next_attempt_reads_what_was_reported(agent: Agent, claimed: Any, authorized: Any) -> None:
    agent.post(
        f"/effects/{authorized['id']}/outcome", {"outcome": "unknown", "note": "The upload timed out."}
    )
    agent.post(f"/runs/{claimed['run']['id']}/release", {"epoch": 1})
    (left,) = agent.claim(task_id=claimed["task"]["id"])["context"]["effects"]
    assert _told(left) == BOTH[:1]


def test_the_end_of_a_run_is_no_report(agent: Agent, claimed: Any, authorized: Any) -> None:
    agent.post(f"/runs/{claimed['run']['id']}/release", {"epoch": 1})
    after = agent.get(f"/effects/{authorized['id']}")
    assert (after["status"], after["reports"]) == ("unknown", [])


def test_a_human_and_the_maker_stand_side_by_side(
    agent: Agent, claimed: Any, authorized: Any, people: People
) -> None:
    agent.post(f"/runs/{claimed['run']['id']}/release", {"epoch": 1})
    agent.post(f"/effects/{authorized['id']}/outcome", {"outcome": "succeeded", "note": "It answered 201."})
    undone = {"outcome": "compensated", "note": "I took it down again."}
    found = people["operator"].post(f"/v1/effects/{authorized['id']}/reconcile", undone).json()["data"]
    assert _told(found) == [
        ("unknown", "succeeded", "It answered 201.", True),
        ("succeeded", "compensated", "I took it down again.", False),
    ]
    assert [each["reconciled_by_user_id"] is None for each in found["reports"]] == [True, False]
    page = people["operator"].client.get(f"/tasks/{claimed['task']['id']}").text
    assert "It answered 201." in page
    assert "I took it down again." in page


@pytest.mark.parametrize(
    "change", ["UPDATE approvals_effectreport SET note = 'x'", "DELETE FROM approvals_effectreport"]
)
def test_the_application_cannot_change_a_report(reported_twice: Any, change: str) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"):
        sql(f"{change} WHERE effect_id = %s RETURNING id", uuid_of(reported_twice["id"]))
    assert EffectReport.objects.filter(effect_id=uuid_of(reported_twice["id"])).count() == 2
