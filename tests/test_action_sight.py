"""Who sees the arguments of an action: who asked or acted, holder, creator, target of an offer, and humans."""

import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from coordination import events
from coordination.models import Handoff

from . import effecting
from .acting import PUBLISH, effect, request, rule
from .cases.routes import PREFIXES, offered
from .cast import Agent, Company
from .clockwork import sql
from .servers import Server
from .sessions import Session

SECRET = "xylophone"
ARGUMENTS = {"token": SECRET, "list": [{SECRET: 1}]}
ASKED = {"tool": "deploy", "server": None, "arguments": ARGUMENTS}
ASKED_TOO = {"tool": "another", "server": None, "arguments": ARGUMENTS}
DONE = {**PUBLISH, "arguments": ARGUMENTS}


@dataclass
class Past:
    """A task with an approval and an effect of somebody who has left it; another holds it and offers it on."""

    parties: dict[str, Agent]
    claim: Any
    approval: Any
    effect: Any
    handoff: Any

    def shown_to(self, agent: Agent) -> list[Any]:
        """The actions as every list and page of the API shows them to this key."""
        return [
            agent.get(f"/approvals/{self.approval['id']}")["action"],
            agent.get("/approvals")["approvals"][0]["action"],
            agent.get(f"/effects/{self.effect['id']}")["action"],
            agent.get("/effects")["effects"][0]["action"],
        ]


@pytest.fixture
def past(company: Company) -> Past:
    names = ("asker", "holder", "creator", "target", "stranger")
    parties = {name: company.agent(name) for name in names}
    asker, holder, target = (parties[name] for name in ("asker", "holder", "target"))
    rule(company, "allow", PUBLISH["tool"])
    parties["creator"].create()
    claim = asker.claim()
    effect_made = asker.post("/effects", effect(claim, DONE))
    asked = asker.post("/approvals", request(claim, ASKED))
    effecting.decide(company.human("approver"), asked)
    asker.post(f"/runs/{claim['run']['id']}/release", {"epoch": 1})
    again = holder.claim(task_id=claim["task"]["id"])
    run = {"run_id": again["run"]["id"], "epoch": 2}
    offer = holder.post("/handoffs", {"to_principal": "target", "message": "Yours?", **run})
    assert target.principal.name == "target"
    return Past(parties, again, asker.get(f"/approvals/{asked['id']}"), effect_made, offer)


@pytest.mark.parametrize("party", ["asker", "holder", "creator", "target"])
def test_a_party_sees_them(party: str, past: Past) -> None:
    assert past.shown_to(past.parties[party]) == [ASKED, ASKED, DONE, DONE]


def test_anybody_else_sees_that_there_was_an_action_and_its_digest(past: Past) -> None:
    stranger = past.parties["stranger"]
    hidden = [{**action, "arguments": None} for action in (ASKED, ASKED, DONE, DONE)]
    assert past.shown_to(stranger) == hidden
    approval = stranger.get(f"/approvals/{past.approval['id']}")
    assert approval == {**past.approval, "action": hidden[0]}
    effect_shown = stranger.get(f"/effects/{past.effect['id']}")
    assert effect_shown["action_digest"] == past.effect["action_digest"]
    assert effect_shown["verdict"] == past.effect["verdict"]


def test_no_route_shows_them_to_a_stranger_with_every_scope(past: Past) -> None:
    known = {
        "task_id": past.claim["task"]["id"],
        "run_id": past.claim["run"]["id"],
        "lease_id": past.claim["lease"]["lease_id"],
        "approval_id": past.approval["id"],
        "effect_id": past.effect["id"],
        "handoff_id": past.handoff["handoff_id"],
    }
    ids = {name: f"{prefix}_{uuid.uuid4().hex}" for name, prefix in PREFIXES.items()} | known
    stranger = past.parties["stranger"]
    asked = [call for call in offered() if call.method == "GET"]
    for call in asked:
        answer = stranger.client.get(f"/v1{call.path(ids)}")
        assert answer.status_code in (200, 403, 404), call
        assert SECRET not in answer.text, call
    assert len(asked) > 20
    for path, body in (
        ("/runs/{run_id}/heartbeat", {"epoch": 2}),
        ("/approvals/{approval_id}/cancel", {}),
        ("/effects/{effect_id}/outcome", {"outcome": "failed"}),
        ("/tasks/{task_id}/comments", {"body": "What is it?"}),
    ):
        assert SECRET not in stranger.send("POST", path.format(**ids), body).text


def test_who_is_a_party_no_more_sees_them_no_more(past: Past) -> None:
    """The asker sees its own words for ever; the one who held it in between only while it did."""
    holder, target = past.parties["holder"], past.parties["target"]
    holder.post(f"/handoffs/{past.handoff['handoff_id']}/withdraw")
    holder.post(f"/runs/{past.claim['run']['id']}/release", {"epoch": 2})
    for agent in (holder, target):
        assert [action["arguments"] for action in past.shown_to(agent)] == [None] * 4
    assert past.shown_to(past.parties["asker"]) == [ASKED, ASKED, DONE, DONE]


def test_a_target_sees_them_no_more_once_the_offer_has_run_out(past: Past) -> None:
    Handoff.objects.filter(to_principal=past.parties["target"].principal).update(
        expires_at="2026-01-01T00:00Z"
    )
    assert [action["arguments"] for action in past.shown_to(past.parties["target"])] == [None] * 4


def test_the_holder_is_told_by_its_claim(past: Past) -> None:
    """That is its own answer: nobody else gets it. A heartbeat has no arguments."""
    context = past.claim["context"]
    assert [each["action"] for each in context["approvals"]] == [ASKED]
    assert [(each["action"], each["status"]) for each in context["effects"]] == [(DONE, "unknown")]
    holder = past.parties["holder"]
    beat = f"/runs/{past.claim['run']['id']}/heartbeat"
    holder.post(f"/approvals/{holder.post('/approvals', request(past.claim, ASKED_TOO))['id']}/cancel")
    (told,) = holder.post(beat, {"epoch": 2})["resolved_approvals"]
    assert (told["status"], SECRET in str(told)) == ("cancelled", False)
    past.parties["stranger"].refused("NOT_HOLDER", beat, {"epoch": 2})


def test_the_log_and_what_is_sent_of_it_hold_none_of_it(company: Company, past: Past) -> None:
    past.parties["stranger"].post("/webhooks", {"url": "http://127.0.0.2:9/events"})
    past.parties["asker"].refused("NOT_HOLDER", "/effects", effect(past.claim, DONE))
    past.parties["asker"].post(f"/effects/{past.effect['id']}/outcome", {"outcome": "failed", "note": SECRET})
    events.number()
    own = company.organization.pk
    for table in ("event", "delivery"):
        found = sql(
            f"SELECT count(*), count(*) FILTER (WHERE strpos(t::text, %s) > 0) FROM coordination_{table} t"
            " WHERE organization_id = %s",
            SECRET,
            own,
        )
        assert found[0][0] > 0, table
        assert found[0][1] == 0, table


def test_humans_see_them(company: Company, past: Past, web: Server) -> None:
    action = {"tool": "another", "server": None, "arguments": ARGUMENTS}
    asked = past.parties["holder"].post("/approvals", request(past.claim, action))
    with Session(company.human("approver"), web.url) as approver:
        path = f"/v1/effects/{past.effect['id']}/reconcile"
        found = approver.post(path, {"outcome": "failed", "note": "I looked."}).json()["data"]
        assert found["action"] == DONE
        assert approver.decide(asked, "deny").json()["data"]["action"] == action
