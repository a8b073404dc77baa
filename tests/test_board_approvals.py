"""Approvals on the board: what a person sees before deciding, what a click does, and what is made visible."""

import json
import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import pytest

from approvals import pages_fragments, pages_many, pages_one
from approvals.models import Approval
from coordination.board import state, task_fragments, task_state
from coordination.models import Role
from titen.live import approval_boards

from . import acting, effecting
from .cast import Agent, Company, Human, founded
from .clockwork import bring_into_jeopardy, let_approval_run_out, uuid_of
from .servers import Server
from .visitors import Elements, Visit, Visitor, said

EVIL = "<script>alert(1)</script><hx-partial hx-target='#toasts'>"
ROLLBACK: dict[str, Any] = {
    "tool": "rollout.undo",
    "server": "prod",
    "arguments": {"to": 1234567890123456789, "name": "checkout"},
}


@pytest.fixture
def ada(visit: Visit, admin: Human) -> Visitor:
    return visit(admin)


@pytest.fixture
def bob(visit: Visit, approver: Human) -> Visitor:
    return visit(approver)


@pytest.fixture
def rollback(agent: Agent, claimed: Any) -> Any:
    """A pending approval of `ROLLBACK`."""
    return effecting.ask(agent, claimed, ROLLBACK)


@pytest.fixture
def stranger(web: Server) -> Iterator[Company]:
    """A company whose people are nobody here."""
    with founded(web.url) as company:
        yield company


def text_of(html: str) -> str:
    """What a person reads."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def shown_arguments(html: str) -> str:
    """The arguments of the first action on a page, as they can be copied from it."""
    found = re.search(r'<pre class="block arguments"[^>]*>(.*?)</pre>', html, re.S)
    assert found, html[:2000]
    return unescape(re.sub(r"<[^>]+>", "", found[1]))


def page_of(shown: Any) -> str:
    return f"/approvals/{shown['id']}"


# --- the card


def test_a_card_says_what_would_run_and_what_each_button_does(
    agent: Agent, claimed: Any, ada: Visitor
) -> None:
    options = [
        {"value": "wait", "label": "Later, maybe", "grants": False},
        {"value": "go", "label": "Deny nothing", "grants": True},
        "deny",
    ]
    asked = effecting.ask(agent, claimed, ROLLBACK, options=options, risk="critical")
    for path in ("/", "/approvals", f"/tasks/{claimed['task']['id']}", page_of(asked)):
        page = ada.open(path).text
        words = text_of(page)
        for each in ("critical risk", "rollout.undo on prod", "outward", "epoch 1", "lease held"):
            assert each in words, (path, each)
        assert json.loads(shown_arguments(page)) == ROLLBACK["arguments"]
        assert '"to": 1234567890123456789' in shown_arguments(page)
        buttons = re.findall(r'<button name="option" value="(\w+)"([^>]*)>(.*?)</button>', page)
        assert [(value, text_of(said)) for value, _, said in buttons] == [
            ("wait", "Refuses it Later, maybe"),
            ("go", "Runs it once Deny nothing"),
            ("deny", "Refuses it deny"),
        ]
        # The keys go by what a button does, not by where the agent put it.
        assert [rest.split() for _, rest, _ in buttons] == [[], ["data-first"], ["data-last"]]
    decided = ada.click(f"{page_of(asked)}/decide", option="go", shown_digest=asked["digest"])
    which = f"It was “{asked['question']}”, asked by ada for “Claimed work” ({asked['id']})."
    assert said(decided) == f"You decided “go”. {which}"
    assert agent.get(f"/approvals/{asked['id']}")["granted"] is True


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_long_arguments_are_decided_where_all_of_them_are_seen(
    agent: Agent, claimed: Any, ada: Visitor, size: int
) -> None:
    arguments = {"rows": [{"n": n, "text": "x" * 90} for n in range(size // 110)]}
    asked = effecting.ask(agent, claimed, {**ROLLBACK, "arguments": arguments})
    for path in ("/", "/approvals", f"/tasks/{claimed['task']['id']}"):
        page = ada.open(path).text
        assert 'name="option"' not in page
        assert f'href="{page_of(asked)}" data-first data-last>Read and decide</a>' in page
        assert len(page) < 60_000
    page = ada.open(page_of(asked)).text
    assert json.loads(shown_arguments(page)) == arguments
    assert re.search(r'<details id="approval-arguments"><summary>', page)
    assert 'name="option" value="approve"' in page
    # Nothing of it travels in the stream: it never changes.
    shown = pages_one.read(agent.principal.organization_id, uuid_of(asked["id"]))
    assert shown is not None
    assert sum(map(len, pages_fragments.render_page(shown, Role.ADMIN).values())) < 20_000


def test_many_short_lines_are_long_too(agent: Agent, claimed: Any, ada: Visitor) -> None:
    effecting.ask(agent, claimed, {**ROLLBACK, "arguments": {"l": [1] * 300}})
    assert "Read and decide" in ada.open("/").text


def test_a_mere_question_has_the_buttons_of_its_options(ada: Visitor, awaiting_approval: Any) -> None:
    page = ada.open(page_of(awaiting_approval)).text
    assert re.findall(r'<button name="option" value="(\w+)"', page) == ["Approve", "Deny"]
    assert "Runs it" not in page
    assert "What would run" not in page


# --- text of agents


def test_agents_text_is_text_everywhere(agent: Agent, claimed: Any, ada: Visitor, approver: Human) -> None:
    evil = {"tool": "t", "arguments": {EVIL: EVIL, "before": EVIL, "after": f"{EVIL}\u202e"}}
    asked = effecting.ask(
        agent, claimed, evil, question=EVIL, context=f"{EVIL}\u202e", options=["approve", f"x {EVIL}"]
    )
    paths = ["/", "/approvals", f"/tasks/{claimed['task']['id']}", page_of(asked)]
    for path in paths:
        assert 'title="U+202E RIGHT-TO-LEFT OVERRIDE"' in ada.open(path).text

    def look() -> None:
        for path in paths:
            page = ada.open(path).text
            assert EVIL not in page
            assert "\u202e" not in page
            assert Elements(page).scripts == 0

    look()
    effecting.decide(approver, asked, reason=EVIL)
    look()
    effecting.authorize(agent, claimed, evil, effect_key=f"k {EVIL}")
    look()


# --- the page of one


def test_the_page_says_what_policy_said_and_what_an_answer_would_mean(
    company: Company, agent: Agent, claimed: Any, ada: Visitor
) -> None:
    acting.listed(company, "rollout.*", "destructive")
    acting.rule(company, "ask", "rollout.undo", rank=3, required_role="admin", risk="high")
    change = {**ROLLBACK, "arguments": {"before": "a\nb", "after": "a\nc"}}
    asked = effecting.ask(
        agent, claimed, change, context="It fails.", on_expiry="deny", valid_for_seconds=5400
    )
    words = text_of(ada.open(page_of(asked)).text)
    for each in (
        "The rule of rank 3 says so",
        "The tool list calls it destructive",
        "high risk",
        "admin decides",
        "is used once, within 1 h 30 min of the decision",
        "the agent falls back to deny , which nobody will have decided; nothing runs",
        "It fails.",
        "1 line removed, 1 added",
        "What ada says about it",
        "asks in run 1, epoch 1",
        asked["action_digest"],
    ):
        assert each in words, (each, words)


def test_a_denial_is_seen_and_lifted(
    company: Company, agent: Agent, claimed: Any, bob: Visitor, otto: Visitor, vera: Visitor, approver: Human
) -> None:
    asked = effecting.deny(agent, approver, claimed, ROLLBACK, reason="Wrong target.")
    page = bob.open(page_of(asked)).text
    assert f"{approver.user.email} decided deny refused" in text_of(page)
    assert "Wrong target." in page
    assert "The denial holds" in page
    for visitor in (otto, vera):
        assert "Lift the denial" not in visitor.open(page_of(asked)).text
        assert visitor.click(f"{page_of(asked)}/lift").status_code == 403
    effecting.refused(agent, "APPROVAL_DENIED", claimed, ROLLBACK)
    lifted = bob.click(f"{page_of(asked)}/lift")
    assert said(lifted).startswith("Lifted.")
    assert "lifted the denial" in text_of(lifted.text)
    assert bob.click(f"{page_of(asked)}/lift").status_code == 409
    again = effecting.ask(agent, claimed, ROLLBACK)
    # The page of the next one shows what was decided on the very same action.
    words = text_of(bob.open(page_of(again)).text)
    assert "the very same action" in words
    assert f"{approver.user.email} decided deny refused" in words


def test_the_page_follows_a_grant_to_its_use(
    agent: Agent, claimed: Any, bob: Visitor, approver: Human
) -> None:
    asked = effecting.grant(agent, approver, claimed, ROLLBACK)
    assert "Not used yet. It can be used once" in text_of(bob.open(page_of(asked)).text)
    effecting.authorize(agent, claimed, ROLLBACK, effect_key="undo-1")
    words = text_of(bob.open(page_of(asked)).text)
    assert "Used by ada" in words
    assert "key undo-1 : authorized, no outcome yet" in words
    assert 'name="option"' not in bob.open(page_of(asked)).text


def test_who_comes_too_late_sees_who_decided_what(
    agent: Agent, claimed: Any, rollback: Any, ada: Visitor, bob: Visitor, approver: Human
) -> None:
    path = f"{page_of(rollback)}/decide"
    ada.open(page_of(rollback)), bob.open("/approvals")
    won = bob.click(path, option="deny", shown_digest=rollback["digest"], reason="Too risky.")
    assert 'hx-target="#approvals-pending"' in won.text
    lost = ada.click(path, option="approve", shown_digest=rollback["digest"])
    assert lost.status_code == 409
    assert f"{approver.user.email} decided “deny” at" in said(lost)
    assert 'hx-target="#approval-decide"' in lost.text
    assert 'name="option"' not in lost.text


def test_one_that_ran_out_has_no_buttons_before_it_is_written_down(rollback: Any, ada: Visitor) -> None:
    let_approval_run_out(rollback["id"])
    assert re.search(r'<section id="needs-you"[^>]*hidden', ada.open("/").text)
    for path in ("/", "/approvals", page_of(rollback)):
        page = ada.open(path).text
        assert 'name="option"' not in page
    assert "expired , nobody decided" in text_of(ada.open("/approvals").text)
    assert "expired" in text_of(ada.open(page_of(rollback)).text)


# --- the list


@pytest.fixture
def several(agent: Agent, other: Agent, approver: Human) -> dict[str, str]:
    """Approvals by what they ask: four pending, of two agents, and one that was denied."""
    ids = {}
    for name, who, risk in (
        ("first", agent, "medium"),
        ("second", agent, "critical"),
        ("third", other, "high"),
        ("fourth", other, "medium"),
        ("denied", other, "high"),
    ):
        who.create(name)
        asked = effecting.ask(who, who.claim(), acting.deploy(), question=f"The {name}?", risk=risk)
        ids[name] = asked["id"]
        if name == "denied":
            effecting.decide(approver, asked, "deny")
    return ids


def order_of(page: str) -> list[str]:
    """The names of the approvals on a page, in their order."""
    return re.findall(r"The (\w+)\?", text_of(page))


LISTS = {
    "": ["second", "third", "first", "fourth", "denied"],
    "status=pending": ["second", "third", "first", "fourth"],
    "status=decided": ["denied"],
    "risk=high": ["third", "denied"],
    "agent=AD": ["second", "first"],
    "agent=bert&risk=medium": ["fourth"],
    "status=expired": [],
    "agent=nobody": [],
}


def test_the_list_is_sorted_by_risk_and_age_and_filtered(several: dict[str, str], bob: Visitor) -> None:
    pages = {query: bob.open(f"/approvals?{query}").text for query in LISTS}
    assert {query: order_of(page) for query, page in pages.items()} == LISTS
    for query, page in pages.items():
        assert "1 critical 1 high 2 medium" in text_of(page)
        assert f"/live/approvals?{query.replace('&', '&amp;')}" in page


def test_a_filter_that_there_is_not_is_refused(bob: Visitor) -> None:
    for query in ("status=done", "risk=huge", f"agent={'x' * 121}", "agent=%00"):
        assert bob.open(f"/approvals?{query}").status_code == 400, query


def test_a_click_on_a_filtered_list_answers_with_that_list(
    several: dict[str, str], agent: Agent, bob: Visitor
) -> None:
    bob.open("/approvals?risk=critical")
    digest = agent.get(f"/approvals/{several['second']}")["digest"]
    answer = bob.click(f"/approvals/{several['second']}/decide", option="deny", shown_digest=digest)
    said_so, _, fragments = answer.text.partition("</hx-partial>")
    assert order_of(said_so) == order_of(fragments) == ["second"]
    assert "Nothing that is pending matches." in answer.text


def test_another_organizations_approvals_are_unknown(
    stranger: Company, visit: Visit, rollback: Any, company: Company, claimed: Any, agent: Agent
) -> None:
    outsider = visit(stranger.human(Role.ADMIN))
    random = f"appr_{'0' * 32}"
    outsider.open("/")
    for one in (rollback["id"], random):
        assert outsider.client.get(f"/approvals/{one}").status_code == 404
        for verb in ("decide", "lift", "always-allow"):
            assert outsider.click(f"/approvals/{one}/{verb}").status_code == 404
    assert outsider.client.get(f"/approvals?org={company.organization.slug}").status_code == 404
    assert outsider.client.get("/approvals/x").status_code == 404
    assert order_of(outsider.client.get("/approvals").text) == []
    effecting.refused(agent, "CONFLICT", claimed, acting.deploy())
    stored = agent.get("/effects")["effects"][0]
    assert outsider.click(f"/effects/{stored['id']}/reconcile", outcome="failed", note="x").status_code == 404


# --- effects on the task page


def test_effects_are_seen_and_reconciled(
    company: Company, agent: Agent, claimed: Any, otto: Visitor, vera: Visitor
) -> None:
    acting.rule(company, "allow", "publish")
    made = effecting.authorize(agent, claimed, acting.PUBLISH, effect_key="page-1")
    effecting.refused(agent, "APPROVAL_REQUIRED", claimed, ROLLBACK, effect_key="undo-1")
    path = f"/tasks/{claimed['task']['id']}"
    held_up = "1 effect without an outcome holds up completion"
    words = text_of(vera.open(path).text)
    for each in (
        held_up,
        "publish outward authorized, no outcome yet",
        "key page-1",
        "rollout.undo on prod outward refused",
        "nobody had approved it APPROVAL_REQUIRED",
    ):
        assert each in words, (each, words)
    assert held_up in text_of(vera.open("/").text)
    reconcile = f"/effects/{made['id']}/reconcile"
    assert "reconcile" not in vera.open(path).text
    assert vera.click(reconcile, outcome="failed", note="x").status_code == 403
    otto.open(path)
    for bad in (
        {},
        {"outcome": "unknown", "note": "x"},
        {"outcome": "failed"},
        {"outcome": "failed", "note": "\0"},
    ):
        assert otto.click(reconcile, **bad).status_code == 400
    answer = otto.click(reconcile, outcome="failed", note="I looked: the page is as it was.")
    assert said(answer) == "Recorded."
    assert held_up not in text_of(answer.text)
    assert "reported: failed I looked: the page is as it was." in text_of(answer.text)
    assert otto.click(reconcile, outcome="failed", note="Again.").status_code == 409
    agent.post(f"/runs/{claimed['run']['id']}/complete", {"epoch": 1})


def test_an_unknown_effect_of_a_run_that_ended_is_seen_in_the_queue(
    company: Company, agent: Agent, claimed: Any, otto: Visitor
) -> None:
    acting.rule(company, "allow", "publish")
    effecting.authorize(agent, claimed, acting.PUBLISH)
    agent.post(f"/runs/{claimed['run']['id']}/release", {"epoch": 1})
    assert "1 effect without an outcome holds up completion" in text_of(otto.open("/").text)
    assert "outcome unknown" in text_of(otto.open(f"/tasks/{claimed['task']['id']}").text)


# --- self-approval


def test_the_only_approver_is_told_that_self_approval_is_off(
    company: Company, agent: Agent, claimed: Any, rollback: Any, bob: Visitor, otto: Visitor
) -> None:
    sentence = "Self-approval is forbidden here, but you are the only approver, so it is off."
    for path in ("/", "/approvals", page_of(rollback)):
        assert sentence not in bob.open(path).text
    effecting.flag(company, forbid_self_approval=True)
    for path in ("/", "/approvals", page_of(rollback)):
        assert sentence in bob.open(path).text
        assert sentence not in otto.open(path).text
    company.human(Role.APPROVER)
    for path in ("/", "/approvals", page_of(rollback)):
        assert sentence not in bob.open(path).text


def test_who_owns_the_agent_has_a_sentence_instead_of_buttons(
    company: Company, agent: Agent, rollback: Any, approver: Human, bob: Visitor
) -> None:
    company.human(Role.APPROVER)
    agent.principal.owner = approver.user
    agent.principal.save()
    effecting.flag(company, forbid_self_approval=True)
    me = f"agent_{approver.caller.principal_id.hex}"
    for path in ("/", "/approvals", page_of(rollback)):
        page = bob.open(path).text
        # The bytes are the same for all: the page's script shows the one or the other.
        assert f'data-for="{me}" hidden>You own <bdi>ada</bdi>' in page
        assert f'class="decide" data-unless="{me}"' in page
    refused = bob.click(f"{page_of(rollback)}/decide", option="approve", shown_digest=rollback["digest"])
    assert refused.status_code == 403
    assert "You own ada, and this organization forbids" in said(refused)


# --- jeopardy


def test_jeopardy_is_seen_wherever_somebody_would_act(
    agent: Agent, other: Agent, claimed: Any, rollback: Any, ada: Visitor
) -> None:
    other.create("Runs")
    running = other.claim()
    words = text_of(ada.open("/").text)
    assert "in jeopardy" not in words.replace("lease held", "")
    for claim in (claimed, running):
        bring_into_jeopardy(claim)
    board = ada.open("/").text
    card = board[board.index('id="needs-you"') : board.index('id="running"')]
    assert "lease in jeopardy" in text_of(card)
    assert text_of(board).count("In jeopardy: no completion, no handoff, no effect") == 2
    assert "Whatever is decided, nothing runs until its holder renews." in ada.open(page_of(rollback)).text
    assert "Not allowed: complete" in ada.open(f"/tasks/{running['task']['id']}").text


def test_the_board_follows_the_leases_of_those_who_wait(
    company: Company, claimed: Any, rollback: Any
) -> None:
    """Heartbeats, and silence, write no events."""
    first = state.read(company.organization.pk)
    bring_into_jeopardy(claimed)
    then = state.refresh_running(company.organization.pk, first)
    assert [hold.certainty for hold in first.holds.values()] == ["held"]
    assert [hold.certainty for hold in then.holds.values()] == ["jeopardy"]
    assert [row.certainty for row in then.blocked.rows] == ["jeopardy"]


# --- live


@pytest.mark.parametrize("role", list(Role))
def test_fragments_are_one_element_each_and_the_same_for_all(
    company: Company, agent: Agent, claimed: Any, rollback: Any, role: str
) -> None:
    acting.rule(company, "allow", "publish")
    other = company.agent()
    other.create("Acts")
    acts = other.claim()
    effecting.authorize(other, acts, acting.PUBLISH)
    organization = company.organization.pk
    read: list[Callable[[], dict[str, str]]] = [
        lambda: pages_fragments.render_list(pages_many.read(pages_many.Wanted(organization)), role),
        lambda: pages_fragments.at(page_of(rollback), organization, role) or {},
        lambda: task_fragments.render(_found(organization, acts), role),
    ]
    for each in read:
        first, again = each(), each()
        assert first == again
        for name, html in first.items():
            assert Elements(html).roots == [name]
            assert "csrf" not in html.lower()
            assert "\r" not in html
    decides = Role(role).includes(Role.APPROVER)
    assert ('class="decide"' in read[0]()["approvals-pending"]) == decides
    assert ('class="decide"' in read[1]()["approval-decide"]) == decides
    assert ("always-allow" in read[1]()["approval-decide"]) == (role == Role.ADMIN)


def _found(organization: Any, claim: Any) -> task_state.TaskState:
    found = task_state.read(organization, uuid_of(claim["task"]["id"]))
    assert found is not None
    return found


def test_pages_are_read_anew_when_something_happened_or_fell_due(
    company: Company, agent: Agent, claimed: Any, rollback: Any, approver: Human
) -> None:
    slug = company.organization.slug
    lists = approval_boards.find_list({"org": slug, "risk": "medium"})
    one = approval_boards.find_approval({"id": rollback["id"]})
    assert lists is not None
    assert one is not None
    for query in ({"org": slug, "risk": "huge"}, {"org": "none"}, {}):
        assert approval_boards.find_list(query) is None
    for text in ("appr_x", f"appr_{'0' * 32}", ""):
        assert approval_boards.find_approval({"id": text}) is None

    def read(before: Any) -> Any:
        return [
            approval_boards.read_list(lists.key, before and before[0]),  # type: ignore[arg-type]
            approval_boards.read_approval(one.key, before and before[1]),  # type: ignore[arg-type]
        ]

    first = read(None)
    assert read(first) == first
    assert (
        first[0].page.due == first[1].page.due == Approval.objects.get(pk=uuid_of(rollback["id"])).expires_at
    )
    bring_into_jeopardy(claimed)
    quiet = read(first)
    assert quiet[0].page.holds != first[0].page.holds
    assert quiet[1].page.standing.certainty == "jeopardy"
    effecting.decide(approver, rollback)
    decided = read(quiet)
    assert decided[0].page.pending.total == 0
    assert decided[1].page.words["granted"] is True


def test_reading_changes_nothing(ada: Visitor, rollback: Any) -> None:
    before = Approval.objects.filter(pk=uuid_of(rollback["id"])).values().get()
    for verb in ("decide", "lift"):
        assert ada.client.get(f"{page_of(rollback)}/{verb}").status_code == 405
    for path in ("/approvals", page_of(rollback)):
        assert ada.client.get(path).status_code == 200
        assert ada.client.head(path).status_code == 200
        answer = ada.client.post(path, headers={"X-CSRFToken": ada.token})
        assert answer.status_code in (403, 405)
    assert Approval.objects.filter(pk=uuid_of(rollback["id"])).values().get() == before
