"""Names of closed lists: a misspelt one is refused with the one that was meant."""

import ast
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from approvals.models import ApprovalStatus, EffectStatus
from coordination.board.timeline import SENTENCES
from coordination.endings import KINDS as ENDINGS
from coordination.kinds import KINDS, PATTERNS, WORDS
from coordination.models import Event, HandoffStatus, LeaseEnd

from .cast import Agent
from .visitors import Visitor

REPOSITORY = Path(__file__).parent.parent
# Kinds that are put together: the first word, and what the code puts after it.
COMPOSED = {
    "approval": (ApprovalStatus.CANCELLED, ApprovalStatus.EXPIRED),
    "effect": (EffectStatus.SUCCEEDED, EffectStatus.FAILED, EffectStatus.COMPENSATED),
    "handoff": (*HandoffStatus.values[1:],),
    "lease": (LeaseEnd.EXPIRED, LeaseEnd.REVOKED),
    "task": ("abandoned", "parked"),
    "webhook": ("changed", "created", "deleted", "paused", "redelivered", "resumed"),
}
# What reads kinds, and a delivery that no event is behind.
READERS = ("coordination/kinds.py", "coordination/board/timeline.py")
NO_EVENT = {"webhook.ping"}


def strings(path: Path) -> list[str]:
    """The strings of a module."""
    return [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def written() -> set[str]:
    """The kinds that the code writes."""
    kind = rf"(?:{'|'.join(WORDS)})\.[a-z_]+"
    found = {f"{noun}.{verb}" for noun, verbs in COMPOSED.items() for verb in verbs}
    for path in chain.from_iterable(
        (REPOSITORY / app).rglob("*.py") for app in ("approvals", "coordination")
    ):
        if "migrations" in path.parts or str(path.relative_to(REPOSITORY)) in READERS:
            continue
        for text in strings(path):
            found |= {text} if re.fullmatch(kind, text) else set(re.findall(rf"'({kind})'", text))
    return found - NO_EVENT


def test_the_list_of_kinds_is_what_the_code_writes() -> None:
    assert written() == KINDS
    assert set(ENDINGS.values()) <= KINDS
    assert set(SENTENCES) <= KINDS


def test_what_was_written_here_is_in_the_list(agent: Agent, claimed: Any) -> None:
    """In whatever the tests before have left in the log, too; `test.` and `.happened` are theirs."""
    kinds = set(Event.objects.order_by().values_list("kind", flat=True).distinct())
    assert {"task.claimed", "task.created"} <= kinds
    assert {kind for kind in kinds if not re.search(r"^test\.|\.happened$", kind)} <= KINDS


MISSPELT = {
    "task.complted": "task.completed",
    "task.compleet": "task.completed",
    "approval.decide": "approval.decided",
    "lease.jeopardy": "lease.jeopardy_declared",
}


@pytest.mark.parametrize(("sent", "meant"), MISSPELT.items())
@pytest.mark.parametrize("path", ["/events", "/events/stream"])
def test_a_misspelt_kind_in_a_filter_is_refused_with_the_nearest(
    path: str, sent: str, meant: str, agent: Agent
) -> None:
    refused = agent.refused("VALIDATION_ERROR", path, method="GET", params={"kind": f"task.created,{sent}"})
    (problem,) = refused["details"]["fields"]["kind"]
    assert f"'{sent}' is no kind of event" in problem
    assert f"Did you mean '{meant}'?" in problem


@pytest.mark.parametrize("kind", ["task", "task.", "task.*", "task.created,", "zzz.qqq"])
def test_what_is_no_kind_is_refused_in_a_filter(kind: str, agent: Agent) -> None:
    agent.refused("VALIDATION_ERROR", "/events", method="GET", params={"kind": kind})


def test_a_webhook_takes_kinds_and_patterns_that_match_one(agent: Agent) -> None:
    body = {"url": "http://127.0.0.2:9/events"}
    for sent, meant in {**MISSPELT, "tasks.*": "task.*", "efect.*": "effect.*"}.items():
        refused = agent.refused("VALIDATION_ERROR", "/webhooks", {**body, "kinds": ["task.created", sent]})
        assert f"Did you mean '{meant}'?" in refused["details"]["fields"]["kinds"][0]
    for kind in ("zzz.*", "*", "task.*.x"):
        agent.refused("VALIDATION_ERROR", "/webhooks", {**body, "kinds": [kind]})


def test_every_pattern_matches_a_kind() -> None:
    assert {kind.partition(".")[0] for kind in KINDS} == {each.partition(".")[0] for each in PATTERNS}


LISTS = {
    "/tasks": ("status", "blockd", "blocked"),
    "/runs": ("status", "runing", "running"),
    "/approvals": ("status", "pendng", "pending"),
    "/effects": ("status", "authorised", "authorized"),
    "/handoffs": ("box", "inbx", "inbox"),
    "/messages": ("box", "snt", "sent"),
    "/leases": ("live", "tru", "true"),
}


@pytest.mark.parametrize("path", LISTS)
def test_a_misspelt_state_in_a_filter_is_refused_with_the_nearest(path: str, agent: Agent) -> None:
    name, sent, meant = LISTS[path]
    refused = agent.refused("VALIDATION_ERROR", path, method="GET", params={name: sent})
    (problem,) = refused["details"]["fields"][name]
    assert f"Did you mean '{meant}'?" in problem


@pytest.mark.parametrize(
    ("query", "meant"), [("status=pendng", "pending"), ("risk=hgih", "high"), ("stauts=pending", "status")]
)
def test_the_list_of_approvals_refuses_what_it_does_not_know(query: str, meant: str, otto: Visitor) -> None:
    answer = otto.client.get(f"/approvals?{query}")
    assert answer.status_code == 400
    assert f"Did you mean &#x27;{meant}&#x27;?" in answer.text
