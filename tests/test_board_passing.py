"""Handoffs and messages on the board over HTTP: who sees what, and what a person does with what is theirs."""

import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination import messages, offering
from coordination.board import fragments, passing_fragments, passing_state, task_fragments, task_state
from coordination.locks import clock
from coordination.models import Handoff, Message, Role, Run, Task
from titen.api.doors import transact
from titen.live import boards
from titen.live.channels import Subject

from .cast import Agent, Company, Human, found_company
from .clockwork import bring_into_jeopardy, sql, uuid_of
from .visitors import Elements, Visit, Visitor, said

EVIL = "<script>alert(1)</script><hx-partial hx-target='#toasts'>"


@pytest.fixture
def olga(company: Company) -> Human:
    """An operator to whom things are offered."""
    return company.human(Role.OPERATOR)


@pytest.fixture
def hers(visit: Visit, olga: Human) -> Visitor:
    """Olga's browser."""
    return visit(olga)


def offer(agent: Agent, to: Human, **more: Any) -> Any:
    """What `agent` offers to a person."""
    body = {"to_principal": to.caller.name, "subject_id": "incident-7", "message": "All yours.", **more}
    return agent.post("/handoffs", body)


def offer_task(agent: Agent, to: Human, claim: Any, **more: Any) -> Any:
    """The task that `agent` holds, offered to a person."""
    named = {"task_id": claim["task"]["id"], "run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    return offer(agent, to, **named, **more)


def offered_by(human: Human, agent: Agent) -> str:
    """The printed id of what a person offers to an agent."""
    made = transact(
        lambda: offering.offer(human.caller, to_principal=agent.principal.name, subject_id="incident-8")
    )
    return f"hoff_{made.pk.hex}"


def written(human: Human, to: str, body: str = "Please stop.") -> str:
    """The printed id of a message of a person."""
    sent = transact(lambda: messages.send(human.caller, body=body, to_principal=to))
    return f"msg_{sent.pk.hex}"


def handoff(printed: str) -> Handoff:
    return Handoff.objects.get(pk=uuid_of(printed))


def shown(page: str, printed: str) -> str:
    """The row of a handoff or message."""
    found = re.search(rf'<li id="row-{printed}".*?</li>', page, re.S)
    assert found, page
    return found[0]


def let_run_out(printed: str) -> None:
    """The offer's time is over; nobody has written it down."""
    changed = sql(
        "UPDATE coordination_handoff SET created_at = created_at - interval '2 d', expires_at = clock_timestamp()"
        " WHERE id = %s AND status = 'pending' RETURNING 1",
        uuid_of(printed),
    )
    assert changed


# --- what it shows


def test_pending_handoffs_come_first_and_each_row_says_who_and_until_when(
    agent: Agent, olga: Human, vera: Visitor, claimed: Any
) -> None:
    kept = agent.post("/checkpoints", {"subject_id": "incident-7", "kind": "notes", "state": {"at": 3}})
    gone = offer(agent, olga, message="Old news.")
    agent.post(f"/handoffs/{gone['handoff_id']}/withdraw", {"reason": "Too late."})
    plain = offer(agent, olga, checkpoint_id=kept["checkpoint_id"])
    task = offer_task(agent, olga, claimed)
    page = vera.open("/messages").text
    places = [page.index(f"row-{each['handoff_id']}") for each in (task, plain, gone)]
    assert places == sorted(places)
    row = shown(page, plain["handoff_id"])
    for words in ("incident-7", "<bdi>ada</bdi>", f"<bdi>{olga.caller.name}</bdi>", "All yours.", "pending"):
        assert words in row
    assert f'title="{kept["checkpoint_id"]}"' in row
    assert " v1<" in row
    assert 'data-tick="left"' in row
    assert f"/tasks/{claimed['task']['id']}" in shown(page, task["handoff_id"])
    assert "Claimed work" in shown(page, task["handoff_id"])
    assert "Too late." in shown(page, gone["handoff_id"])
    assert "withdrawn" in shown(page, gone["handoff_id"])


def test_an_offer_whose_time_is_over_is_shown_so_before_anybody_writes_it_down(
    company: Company, agent: Agent, olga: Human, vera: Visitor
) -> None:
    made = offer(agent, olga)
    let_run_out(made["handoff_id"])
    assert "ran out" in shown(vera.open("/messages").text, made["handoff_id"])
    assert passing_state.waiting_for(olga.caller.principal_id) == 0


def test_messages_say_whom_they_reached_also_through_what_they_hold(
    agent: Agent, other: Agent, vera: Visitor, claimed: Any
) -> None:
    agent.post("/leases", {"resource_type": "deploy", "resource_id": "checkout-service"})
    names = (("deploy", "checkout-service"), ("task", claimed["task"]["id"]))
    held, task = (
        other.post("/messages", {"body": "How long?", "resource_type": kind, "resource_id": name})
        for kind, name in names
    )
    plain = other.post("/messages", {"body": "first\nsecond", "to_principal": "ada"})
    agent.post(f"/messages/{plain['message_id']}/read")
    page = vera.open("/messages").text
    row = shown(page, held["message_id"])
    assert "the holder of <bdi>deploy/checkout-service</bdi> (<bdi>ada</bdi>)" in row
    assert "not read" in row
    assert "<bdi>Claimed work</bdi></a> (<bdi>ada</bdi>)" in shown(page, task["message_id"])
    row = shown(page, plain["message_id"])
    assert "first\nsecond" in row
    assert "<span>read</span>" in row
    assert f'href="/tasks/{claimed["task"]["id"]}"' in shown(page, task["message_id"])


def test_text_of_agents_is_text(
    company: Company, agent: Agent, olga: Human, hers: Visitor, claimed: Any
) -> None:
    offer(agent, olga, subject_id=EVIL, message=EVIL)
    offer_task(agent, olga, claimed, message=EVIL)
    agent.post("/messages", {"body": EVIL, "to_principal": olga.caller.name})
    for path in ("/messages", f"/tasks/{claimed['task']['id']}"):
        page = hers.open(path)
        assert EVIL not in page.text
        assert "&lt;script&gt;" in page.text
        found = Elements(page.text)
        assert found.scripts == 0
        assert not [name for name, _ in found.attributes if name == "style" or name.startswith("on")]
    rendered = passing_fragments.render(passing_state.read(company.organization.pk), "admin")
    assert "<hx-partial hx-target='" not in fragments.as_message(rendered)


@pytest.mark.parametrize("role", list(Role))
def test_fragments_are_one_element_each_and_the_same_for_all(
    company: Company, agent: Agent, olga: Human, claimed: Any, role: str
) -> None:
    made = offer_task(agent, olga, claimed, message="first\nsecond")
    agent.post("/messages", {"body": "first\nsecond", "to_principal": olga.caller.name})
    organization = company.organization.pk
    first, again = (passing_fragments.render(passing_state.read(organization), role) for _ in range(2))
    assert first == again
    page = task_state.read(organization, uuid_of(claimed["task"]["id"]))
    assert page is not None
    task = task_fragments.render(page, role)
    for name, html in {**first, **task}.items():
        assert Elements(html).roots == [name]
        assert "csrf" not in html.lower()
    assert "\r" not in fragments.as_message(first)
    # What only one person may do is hidden in everybody's bytes.
    for html in (first["handoffs"], task["task-passing"]):
        row = shown(html, made["handoff_id"])
        assert f'data-for="agent_{olga.caller.principal_id.hex}" hidden' in row
        assert ("/accept" in row) == Role(role).includes(Role.OPERATOR)


def test_agents_rows_have_no_buttons(agent: Agent, other: Agent, hers: Visitor) -> None:
    agent.post("/handoffs", {"to_principal": "bert", "subject_id": "incident-7"})
    agent.post("/messages", {"to_principal": "bert", "body": "Hello"})
    page = hers.open("/messages").text
    assert "data-for" not in page.partition("<main")[2]


def test_a_page_is_read_with_few_queries_however_many_rows(
    company: Company, agent: Agent, olga: Human, claimed: Any
) -> None:
    for number in range(5):
        made = offer(agent, olga, subject_id=f"gone-{number}")
        agent.post(f"/handoffs/{made['handoff_id']}/withdraw", {})
        offer(agent, olga, subject_id=f"kept-{number}")
        agent.post("/messages", {"body": "Hello", "to_principal": olga.caller.name})
    offer_task(agent, olga, claimed)
    with CaptureQueriesContext(connection) as asked:
        page = passing_state.read(company.organization.pk)
    assert (len(page.pending.rows), len(page.ended), len(page.messages)) == (6, 5, 5)
    # The organization, the clock, pending, ended, messages.
    assert len(asked) == 5, asked.captured_queries
    with CaptureQueriesContext(connection) as asked:
        passing_state.refresh(company.organization.pk, page)
    assert len(asked) == 1


def test_reading_marks_and_time_reach_the_stream(
    company: Company, agent: Agent, olga: Human, hers: Visitor
) -> None:
    key = boards.PassingKey(company.organization.pk)
    assert boards.find_passing({"org": company.organization.slug}) == Subject(key, key.organization_id)
    assert boards.find_passing({"org": "no-such"}) is None
    made = offer(agent, olga)
    sent = agent.post("/messages", {"body": "Hello", "to_principal": olga.caller.name})
    first = boards.read_passing(key, None)
    assert boards.read_passing(key, first).page == first.page
    hers.open("/messages")
    assert said(hers.click(f"/messages/{sent['message_id']}/read")) == "Marked as read."
    marked = boards.read_passing(key, first)
    assert marked.position == first.position
    assert [row.read_at is None for row in marked.page.messages] == [False]
    let_run_out(made["handoff_id"])
    due = replace(marked, page=replace(marked.page, due=clock()))
    assert [row.status for row in boards.read_passing(key, due).page.ended] == ["expired"]


# --- handoffs


def test_accepting_a_task_gives_it_and_leads_to_it(
    agent: Agent, olga: Human, hers: Visitor, claimed: Any
) -> None:
    made = offer_task(agent, olga, claimed)
    hers.open("/messages")
    answer = hers.click(f"/handoffs/{made['handoff_id']}/accept")
    assert (answer.status_code, said(answer)) == (200, "You hold the task now.")
    assert answer.headers["HX-Redirect"] == f"/tasks/{claimed['task']['id']}"
    run = Run.objects.get(task=uuid_of(claimed["task"]["id"]), ended_at=None)
    assert (run.principal_id, run.epoch) == (olga.caller.principal_id, 2)
    agent.refused("LEASE_SUPERSEDED", f"/runs/{claimed['run']['id']}/complete", {"epoch": 1})
    page = hers.open(f"/tasks/{claimed['task']['id']}").text
    assert "ended run 1 by accepting its handoff" in page
    assert f"offered it to {olga.caller.name}" in page
    again = hers.click(f"/handoffs/{made['handoff_id']}/accept")
    assert "HX-Redirect" not in again.headers
    assert f"{olga.caller.name} accepted it at" in said(again)
    assert Run.objects.filter(task=run.task_id, ended_at=None).get() == run


def test_without_htmx_accepting_leads_to_the_task(
    company: Company, agent: Agent, olga: Human, hers: Visitor, claimed: Any
) -> None:
    made, plain = offer_task(agent, olga, claimed), offer(agent, olga)
    hers.open("/messages")
    answer = hers.form(f"/handoffs/{made['handoff_id']}/accept")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/tasks/{claimed['task']['id']}")
    answer = hers.form(f"/handoffs/{plain['handoff_id']}/accept")
    assert answer.headers["Location"] == f"/messages?org={company.organization.slug}"
    assert handoff(plain["handoff_id"]).status == "accepted"
    assert hers.form(f"/handoffs/{plain['handoff_id']}/accept").status_code == 404


def test_rejecting_says_why_and_a_second_click_changes_nothing(
    agent: Agent, olga: Human, hers: Visitor
) -> None:
    made = offer(agent, olga)
    path = f"/handoffs/{made['handoff_id']}"
    hers.open("/messages")
    answer = hers.click(f"{path}/reject", reason="Not on call.")
    assert said(answer) == "Rejected. ada keeps what is theirs."
    assert 'hx-target="#handoffs"' in answer.text
    stored = handoff(made["handoff_id"])
    assert (stored.status, stored.reason) == ("rejected", "Not on call.")
    for verb in ("accept", "reject"):
        again = hers.click(f"{path}/{verb}", reason="Once more.")
        assert again.status_code == 404
        assert f"{olga.caller.name} rejected it at" in said(again)
    assert handoff(made["handoff_id"]).reason == "Not on call."


def test_a_person_takes_their_own_offer_back(agent: Agent, olga: Human, hers: Visitor) -> None:
    made = offered_by(olga, agent)
    page = hers.open("/messages").text
    assert f"/handoffs/{made}/withdraw" in shown(page, made)
    assert said(hers.click(f"/handoffs/{made}/withdraw")) == "Withdrawn."
    assert handoff(made).status == "withdrawn"
    assert "It was withdrawn at" in said(hers.click(f"/handoffs/{made}/withdraw"))


def test_only_whose_it_is_moves_a_handoff(agent: Agent, olga: Human, hers: Visitor, otto: Visitor) -> None:
    theirs, own = offer(agent, olga)["handoff_id"], offered_by(olga, agent)
    otto.open("/messages")
    hers.open("/messages")
    for visitor, path in (
        (otto, f"{theirs}/accept"),
        (otto, f"{theirs}/reject"),
        (otto, f"{theirs}/withdraw"),
        (hers, f"{theirs}/withdraw"),
        (hers, f"{own}/accept"),
        (otto, f"{own}/withdraw"),
    ):
        answer = visitor.click(f"/handoffs/{path}")
        assert answer.status_code == 400, path
        assert "principal can" in said(answer)
    assert (handoff(theirs).status, handoff(own).status) == ("pending", "pending")


def test_a_task_that_somebody_else_has_by_now_is_refused_and_said(
    agent: Agent, admin: Human, olga: Human, hers: Visitor, visit: Visit, claimed: Any
) -> None:
    made = offer_task(agent, olga, claimed)
    hers.open("/messages")
    ada = visit(admin)
    ada.open(f"/tasks/{claimed['task']['id']}")
    ada.act(claimed["task"]["id"], "takeover", to="me", reason="I do it.", epoch="1")
    answer = hers.click(f"/handoffs/{made['handoff_id']}/accept")
    assert answer.status_code == 404
    assert "It was withdrawn at" in said(answer)
    assert Run.objects.get(task=uuid_of(claimed["task"]["id"]), ended_at=None).epoch == 2


def test_a_viewer_refuses_an_offer_and_cannot_take_it(
    company: Company, agent: Agent, visit: Visit, claimed: Any
) -> None:
    vince = company.human(Role.VIEWER)
    visitor = visit(vince)
    made = offer_task(agent, vince, claimed)
    page = visitor.open("/messages").text
    assert "Accepting needs the role operator." in shown(page, made["handoff_id"])
    assert 'id="letter"' not in page
    path = f"/handoffs/{made['handoff_id']}"
    assert visitor.click(f"{path}/accept").status_code == 403
    assert visitor.click("/messages/new", to_principal="ada", body="Hello").status_code == 403
    assert said(visitor.click(f"{path}/reject")).startswith("Rejected.")
    assert Task.objects.get(pk=uuid_of(claimed["task"]["id"])).status == "in_progress"


# --- messages


def test_an_operator_writes_to_whom_they_choose(
    company: Company, agent: Agent, olga: Human, hers: Visitor
) -> None:
    gone = company.human(Role.VIEWER)
    sql("UPDATE coordination_membership SET ended_at = clock_timestamp() WHERE user_id = %s", gone.user.pk)
    page = hers.open("/messages").text
    offered = re.findall(r'<option value="(agent_\w+)">', page)
    assert f"agent_{agent.principal.pk.hex}" in offered
    assert f"agent_{olga.caller.principal_id.hex}" not in offered
    assert gone.user.email not in page
    for to in (offered[0], "ADA"):
        assert said(hers.click("/messages/new", to_principal=to, body="Please\r\nstop.")) == "Sent to ada."
    assert [each.body for each in Message.objects.filter(recipient=agent.principal)] == ["Please\nstop."] * 2
    for to in ("nobody", olga.caller.name, gone.user.email):
        answer = hers.click("/messages/new", to_principal=to, body="Hello")
        assert answer.status_code == 400
        assert "to_principal" in said(answer)


def test_a_message_is_marked_as_read_by_whom_it_reached_and_once(
    agent: Agent, olga: Human, hers: Visitor, otto: Visitor
) -> None:
    sent = agent.post("/messages", {"body": "Look, please.", "to_principal": olga.caller.name})["message_id"]
    own = written(olga, "ada")
    otto.open("/messages"), hers.open("/messages")
    assert otto.click(f"/messages/{sent}/read").status_code == 404
    assert hers.click(f"/messages/{own}/read").status_code == 400
    for _ in range(2):
        assert said(hers.click(f"/messages/{sent}/read")) == "Marked as read."
    first = Message.objects.get(pk=uuid_of(sent)).read_at
    hers.click(f"/messages/{sent}/read")
    assert Message.objects.get(pk=uuid_of(sent)).read_at == first
    assert Message.objects.get(pk=uuid_of(own)).read_at is None


def test_the_navigation_says_what_waits_for_whom_it_is_and_for_nobody_else(
    agent: Agent, olga: Human, hers: Visitor, otto: Visitor
) -> None:
    def badge(page: str) -> str:
        found = re.search(r'<b id="waiting"(.*?)</b>', page)
        assert found
        return found[1]

    assert " hidden" in badge(hers.open("/").text)
    made = offer(agent, olga)
    sent = agent.post("/messages", {"body": "Look, please.", "to_principal": olga.caller.name})["message_id"]
    for path in ("/", "/leases", "/messages"):
        assert ">2<" in badge(hers.open(path).text)
        assert " hidden" in badge(otto.open(path).text)
    assert ">1<" in badge(hers.click(f"/messages/{sent}/read").text)
    assert " hidden" in badge(hers.click(f"/handoffs/{made['handoff_id']}/reject").text)


# --- the task page


def test_the_task_page_shows_the_offer_what_was_asked_and_jeopardy(
    agent: Agent, other: Agent, olga: Human, vera: Visitor, claimed: Any
) -> None:
    path = f"/tasks/{claimed['task']['id']}"
    page = vera.open(path).text
    assert re.search(r'<section id="task-passing"[^>]*hidden', page)
    assert "Allowed in it" not in page
    made = offer_task(agent, olga, claimed)
    asked = other.post(
        "/messages", {"body": "How long?", "resource_type": "task", "resource_id": claimed["task"]["id"]}
    )
    bring_into_jeopardy(claimed)
    page = vera.open(path).text
    assert f"<bdi>{olga.caller.name}</bdi>" in shown(page, made["handoff_id"])
    assert "How long?" in shown(page, asked["message_id"])
    assert "its holder (<bdi>ada</bdi>)" in shown(page, asked["message_id"])
    assert "Its last renewal was" in page
    assert "heartbeat (a good one ends it), checkpoint, comment, ask, release, fail" in page
    agent.post(f"/runs/{claimed['run']['id']}/jeopardy", {"epoch": 1})
    page = vera.open(path).text
    assert "Its holder declared jeopardy" in page
    assert "declared its lease in jeopardy" in page
    board = vera.open("/").text
    assert 'class="row run is-jeopardy"' in board
    agent.post(f"/runs/{claimed['run']['id']}/heartbeat", {"epoch": 1})
    assert "Allowed in it" not in vera.open(path).text


def test_the_task_page_says_when_silence_becomes_jeopardy(company: Company, claimed: Any) -> None:
    page = task_state.read(company.organization.pk, uuid_of(claimed["task"]["id"]))
    assert page is not None
    assert page.open_run is not None
    assert page.due == page.open_run.jeopardy_from < page.open_run.expires_at


# --- whose they are


def test_another_organizations_are_as_unknown_as_none(
    company: Company, agent: Agent, olga: Human, hers: Visitor
) -> None:
    foreign = found_company(company.url)
    stranger, chief = foreign.agent(), foreign.human()
    made = stranger.post("/handoffs", {"to_principal": chief.caller.name, "subject_id": "x"})["handoff_id"]
    sent = stranger.post("/messages", {"to_principal": chief.caller.name, "body": "x"})["message_id"]
    pages = [hers.open(f"/messages?org={slug}") for slug in (foreign.organization.slug, "no-such")]
    assert [page.status_code for page in pages] == [404, 404]
    assert len({page.text for page in pages}) == 1
    hers.open("/messages")
    paths = [
        f"/handoffs/{one}/{verb}"
        for one in (made, f"hoff_{'0' * 32}", "x")
        for verb in ("accept", "reject", "withdraw")
    ]
    paths += [f"/messages/{one}/read" for one in (sent, f"msg_{'0' * 32}", "x")]
    answers = [hers.click(path) for path in paths]
    assert {answer.status_code for answer in answers} == {404}
    assert len({said(answer) for answer in answers}) == 1
    to = f"agent_{stranger.principal.pk.hex}"
    answer = hers.click("/messages/new", to_principal=to, body="Hello")
    assert said(answer) == said(hers.click("/messages/new", to_principal=f"agent_{'0' * 32}", body="Hello"))
    assert (
        hers.click(f"/messages/new?org={foreign.organization.slug}", to_principal="x", body="x").status_code
        == 404
    )
    stranger.close()


BAD_FIELDS: list[dict[str, str]] = [
    {},
    {"to_principal": "ada"},
    {"to_principal": "ada", "body": " \r\n "},
    {"to_principal": "\0", "body": "x", "reason": "\0"},
    {"to_principal": "two\nlines", "body": "x"},
    {"to_principal": "ada", "body": "\0"},
    {"to_principal": "x" * 121, "body": "x", "reason": "x" * 2001},
    {"to_principal": "ada", "body": "x" * 8001},
]


def test_bad_fields_are_refused(agent: Agent, olga: Human, hers: Visitor) -> None:
    made = offer(agent, olga)["handoff_id"]
    hers.open("/messages")
    for fields, send in product(BAD_FIELDS, (hers.click, hers.form)):
        assert send("/messages/new", **fields).status_code == 400, fields
        if "reason" in fields:
            assert send(f"/handoffs/{made}/reject", **fields).status_code == 400
    assert handoff(made).status == "pending"
    assert not Message.objects.filter(sender_id=olga.caller.principal_id).exists()


def test_an_ended_session_and_a_stale_token_change_nothing(agent: Agent, olga: Human, hers: Visitor) -> None:
    made = offer(agent, olga)["handoff_id"]
    hers.open("/messages")
    token, hers.token = hers.token, "stale" * 8
    stale = hers.click(f"/handoffs/{made}/accept")
    assert stale.status_code == 403
    assert "Reload it, then try again." in said(stale)
    hers.token = token
    hers.client.cookies.delete("sessionid")
    for path in (f"/handoffs/{made}/accept", f"/handoffs/{made}/reject", "/messages/new"):
        ended = hers.click(path, to_principal="ada", body="x")
        assert (ended.status_code, ended.headers["HX-Redirect"]) == (401, "/login?next=/messages")
    assert handoff(made).status == "pending"


def test_reading_changes_nothing(agent: Agent, olga: Human, hers: Visitor) -> None:
    made = offer(agent, olga)["handoff_id"]
    sent = agent.post("/messages", {"body": "x", "to_principal": olga.caller.name})["message_id"]
    for path in (
        f"/handoffs/{made}/accept",
        f"/handoffs/{made}/reject",
        f"/messages/{sent}/read",
        "/messages/new",
    ):
        assert hers.client.get(path).status_code == 405
    assert hers.client.head("/messages").status_code == 200
    assert handoff(made).status == "pending"
    assert Message.objects.get(pk=uuid_of(sent)).read_at is None
