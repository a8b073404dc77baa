"""The board's page of leases over HTTP: who sees what, and what releasing by force does and says."""

import re
from itertools import product
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination import leasing
from coordination.board import fragments, leases_fragments, leases_state
from coordination.database import fetch_all
from coordination.models import Event, Lease, Message, Role
from titen.api.doors import transact
from titen.live import boards
from titen.live.channels import Subject

from .cast import Agent, Company, Human, found_company
from .clockwork import bring_into_jeopardy, let_lease_run_out, uuid_of
from .servers import Server
from .visitors import Elements, Visit, Visitor, said

EVIL = "<script>alert(1)</script><hx-partial hx-target='#toasts'>"


def lease(agent: Agent, resource_id: str = "checkout-service", **more: Any) -> Any:
    """What `agent` leases."""
    body = {"resource_type": "deploy", "resource_id": resource_id, "purpose": "Deploy build 42", **more}
    return agent.post("/leases", body)


def as_claim(granted: Any) -> Any:
    """For what moves times: it takes claims."""
    return {"lease": granted}


def row_of(granted: Any) -> Lease:
    return Lease.objects.select_related("resource", "principal").get(pk=uuid_of(granted["lease_id"]))


def shown(page: str, granted: Any) -> str:
    """The row of a lease."""
    found = re.search(rf'<li id="row-{granted["lease_id"]}".*?</li>', page, re.S)
    assert found, page
    return found[0]


@pytest.fixture
def olga(visit: Visit, company: Company) -> Visitor:
    return visit(company.human(Role.OPERATOR))


# --- what it shows


def test_the_page_shows_each_lease_as_it_stands(agent: Agent, vera: Visitor) -> None:
    held, quiet = lease(agent), lease(agent, "quiet")
    unsure, over = lease(agent, "unsure"), lease(agent, "over")
    agent.send("PATCH", f"/leases/{held['lease_id']}", {})
    bring_into_jeopardy(as_claim(quiet))
    agent.post(f"/leases/{unsure['lease_id']}/jeopardy")
    let_lease_run_out(as_claim(over))
    page = vera.open("/leases").text
    for words in ("deploy", "checkout-service", "<bdi>ada</bdi>", "Deploy build 42", "epoch 1", "1 renewal<"):
        assert words in shown(page, held)
    assert 'class="certainty">held<' in shown(page, held)
    assert 'class="certainty">in jeopardy<' in shown(page, quiet)
    assert "Its last renewal was" in shown(page, quiet)
    assert "Its holder declared jeopardy" in shown(page, unsure)
    assert 'class="certainty">ran out<' in shown(page, over)
    assert "#g-jeopardy" in shown(page, unsure)
    assert "#g-failed" in shown(page, over)


def test_what_ended_stands_below_with_how_and_by_whom(agent: Agent, admin: Human, otto: Visitor) -> None:
    back, again, taken = lease(agent, "back"), lease(agent, "again"), lease(agent, "taken")
    agent.send("DELETE", f"/leases/{back['lease_id']}")
    new = lease(agent, "again")
    transact(lambda: leasing.revoke(admin.caller, uuid_of(taken["lease_id"]), reason="Freeze until Monday"))
    page = otto.open("/leases").text
    live, _, ended = page.partition('<section id="leases-ended"')
    assert shown(live, new)
    assert "given back" in shown(ended, back)
    assert "acquired anew" in shown(ended, again)
    assert f"released by force by <bdi>{admin.caller.name}</bdi>" in shown(ended, taken)
    assert "Freeze until Monday" in shown(ended, taken)
    assert "acquired again" in shown(live, new)


def test_tasks_have_their_rows_on_the_board(claimed: Any, otto: Visitor) -> None:
    page = otto.open("/leases").text
    assert claimed["lease"]["lease_id"] not in page
    assert "Nothing is leased." in page
    path = f"/leases/{claimed['lease']['lease_id']}/revoke"
    assert otto.click(path, epoch="1", reason="No.").status_code == 404
    assert row_of(claimed["lease"]).ended_at is None


def test_text_of_agents_is_text(company: Company, agent: Agent, otto: Visitor) -> None:
    granted = lease(agent, EVIL[:200], purpose=EVIL, resource_type="x")
    otto.open("/leases")
    otto.click(f"/leases/{granted['lease_id']}/revoke", epoch="1", reason=EVIL)
    lease(agent, EVIL[:200], purpose=EVIL, resource_type="x")
    page = otto.open("/leases")
    assert EVIL not in page.text
    assert page.text.count("&lt;script&gt;") >= 5
    found = Elements(page.text)
    assert found.scripts == 0
    assert not [name for name, _ in found.attributes if name == "style" or name.startswith("on")]
    rendered = leases_fragments.render(leases_state.read(company.organization.pk), "admin")
    assert "<hx-partial hx-target='" not in fragments.as_message(rendered)


@pytest.mark.parametrize("role", list(Role))
def test_fragments_are_one_element_each_and_the_same_for_all(
    company: Company, agent: Agent, role: str
) -> None:
    lease(agent, "one", purpose="first\r\nsecond".replace("\r\n", " "))
    first, again = (
        leases_fragments.render(leases_state.read(company.organization.pk), role) for _ in range(2)
    )
    assert first == again
    for name, html in first.items():
        assert Elements(html).roots == [name]
        assert "csrf" not in html.lower()
    assert "\r" not in fragments.as_message(first)
    assert ("<form" in first["leases-live"]) == Role(role).includes(Role.OPERATOR)


def test_a_page_is_read_with_few_queries_however_many_rows(
    company: Company, agent: Agent, admin: Human, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(sql: str, params: dict[str, Any]) -> Any:
        asked.append(sql)
        return fetch_all(sql, params)

    monkeypatch.setattr("coordination.board.leases_state.fetch_all", counted)
    for number in range(6):
        taken = lease(agent, f"taken-{number}")
        transact(lambda: leasing.revoke(admin.caller, uuid_of(taken["lease_id"]), reason="x"))  # noqa: B023
        lease(agent, f"kept-{number}")
    with CaptureQueriesContext(connection) as orm:
        page = leases_state.read(company.organization.pk)
    assert (len(page.live.rows), len(page.ended)) == (6, 6)
    assert (len(orm), len(asked)) == (1, 3)
    asked.clear()
    leases_state.refresh(company.organization.pk, page)
    assert len(asked) == 1


def test_a_renewal_and_the_coming_of_jeopardy_reach_the_stream(company: Company, agent: Agent) -> None:
    key = boards.LeasesKey(company.organization.pk)
    assert boards.find_leases({"org": company.organization.slug}) == Subject(key, key.organization_id)
    assert boards.find_leases({"org": "no-such"}) is None
    granted = lease(agent)
    first = boards.read_leases(key, None)
    assert boards.read_leases(key, first).page == first.page
    bring_into_jeopardy(as_claim(granted))
    quiet = boards.read_leases(key, first)
    assert [row.certainty for row in quiet.page.live.rows] == ["jeopardy"]
    assert quiet.position == first.position
    agent.send("PATCH", f"/leases/{granted['lease_id']}", {})
    renewed = boards.read_leases(key, quiet)
    assert [(row.certainty, row.renewals) for row in renewed.page.live.rows] == [("held", 1)]


# --- releasing by force


def test_an_operator_releases_by_force_and_a_second_click_changes_nothing(
    agent: Agent, other: Agent, otto: Visitor
) -> None:
    granted = lease(agent)
    path = f"/leases/{granted['lease_id']}/revoke"
    otto.open("/leases")
    answer = otto.click(path, epoch="1", reason="It hangs.")
    assert (answer.status_code, said(answer)) == (
        200,
        "Released by force. ada has lost deploy/checkout-service.",
    )
    assert 'hx-target="#leases-live"' in answer.text
    stored = row_of(granted)
    assert (stored.end_reason, stored.end_note) == ("revoked", "It hangs.")
    again = otto.click(path, epoch="1", reason="It hangs.")
    assert again.status_code == 409
    assert re.search(r"You released it by force at [\d:]{8} UTC\. Your click changed nothing\.", said(again))
    assert (row_of(granted).ended_at, row_of(granted).end_note) == (stored.ended_at, "It hangs.")
    assert Event.objects.filter(lease_id=stored.pk, kind="lease.revoked").count() == 1
    agent.refused("NOT_FOUND", f"/leases/{granted['lease_id']}", {}, method="PATCH")
    assert lease(other)["epoch"] == 2


def test_the_loser_of_two_operators_sees_who_did_it(agent: Agent, otto: Visitor, olga: Visitor) -> None:
    granted = lease(agent)
    path = f"/leases/{granted['lease_id']}/revoke"
    otto.open("/leases"), olga.open("/leases")
    assert otto.click(path, epoch="1", reason="Mine.").status_code == 200
    lost = olga.click(path, epoch="1", reason="No, mine.")
    assert lost.status_code == 409
    assert re.search(r"operator-\w+@example\.org released it by force at", said(lost))
    assert "Mine." in lost.text.partition("leases-ended")[2]
    assert row_of(granted).end_note == "Mine."


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("release", "ada gave it back at"),
        ("expire", "It ran out at"),
        ("run out", "It has run out."),
        ("reacquire", "ada acquired it anew at"),
    ],
)
def test_a_lease_that_is_over_is_not_released_and_the_page_says_why(
    agent: Agent, otto: Visitor, end: str, words: str
) -> None:
    granted = lease(agent)
    otto.open("/leases")
    match end:
        case "release":
            agent.send("DELETE", f"/leases/{granted['lease_id']}")
        case "expire":
            let_lease_run_out(as_claim(granted))
            leasing.sweep()
        case "run out":
            let_lease_run_out(as_claim(granted))
        case _:
            lease(agent)
    answer = otto.click(f"/leases/{granted['lease_id']}/revoke", epoch="1", reason="It hangs.")
    assert answer.status_code == 409
    assert words in said(answer)
    assert row_of(granted).end_reason != "revoked"
    if end == "reacquire":
        assert "epoch 2" in answer.text
        assert Lease.objects.get(resource=row_of(granted).resource, ended_at=None).epoch == 2


def test_the_epoch_that_the_page_showed_must_stand(agent: Agent, otto: Visitor) -> None:
    granted = lease(agent)
    otto.open("/leases")
    answer = otto.click(f"/leases/{granted['lease_id']}/revoke", epoch="7", reason="It hangs.")
    assert answer.status_code == 409
    assert "moved on since this page was shown" in said(answer)
    assert row_of(granted).ended_at is None


BAD_FIELDS: list[dict[str, str]] = [
    {},
    {"epoch": "1"},
    {"epoch": "1", "reason": " \r\n ", "body": " "},
    {"epoch": "x", "reason": "x"},
    {"epoch": "-1", "reason": "x"},
    {"epoch": "9" * 400, "reason": "x"},
    {"epoch": "1", "reason": "\0", "body": "\0"},
    {"epoch": "1", "reason": "x" * 2001, "body": "x" * 8001},
]


def test_bad_fields_are_refused(agent: Agent, otto: Visitor) -> None:
    granted = lease(agent)
    otto.open("/leases")
    for fields, verb, send in product(BAD_FIELDS, ("revoke", "messages"), (otto.click, otto.form)):
        answer = send(f"/leases/{granted['lease_id']}/{verb}", **fields)
        assert answer.status_code == 400, (verb, fields)
    assert row_of(granted).ended_at is None
    assert not Message.objects.filter(recipient=agent.principal).exists()


def test_without_htmx_a_form_leads_back_to_the_page(company: Company, agent: Agent, otto: Visitor) -> None:
    granted = lease(agent)
    otto.open("/leases")
    answer = otto.form(f"/leases/{granted['lease_id']}/revoke", epoch="1", reason="It hangs.")
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        f"/leases?org={company.organization.slug}",
    )
    again = otto.form(f"/leases/{granted['lease_id']}/revoke", epoch="1", reason="It hangs.")
    assert again.status_code == 409
    assert "You released it by force" in again.text


# --- writing to the holder


def test_an_operator_writes_to_the_holder_and_sees_who_it_is(agent: Agent, otto: Visitor) -> None:
    granted = lease(agent)
    otto.open("/leases")
    path = f"/leases/{granted['lease_id']}/messages"
    assert said(otto.click(path, body="How\r\nlong?")) == "Sent to ada, who holds deploy/checkout-service."
    sent = Message.objects.get(recipient=agent.principal)
    assert (sent.body, str(sent.resource)) == ("How\nlong?", "deploy/checkout-service")
    agent.send("DELETE", f"/leases/{granted['lease_id']}")
    late = otto.click(path, body="Still there?")
    assert late.status_code == 409
    assert "Nobody holds this" in said(late)


# --- who may


def test_a_viewer_has_no_buttons(agent: Agent, vera: Visitor) -> None:
    granted = lease(agent)
    assert "hx-post" not in vera.open("/leases").text
    for verb in ("revoke", "messages"):
        answer = vera.click(f"/leases/{granted['lease_id']}/{verb}", epoch="1", reason="x", body="x")
        assert answer.status_code == 403
    assert row_of(granted).ended_at is None


def test_another_organizations_leases_are_as_unknown_as_none(company: Company, otto: Visitor) -> None:
    foreign = found_company(company.url)
    stranger = foreign.agent()
    granted = lease(stranger)
    stranger.close()
    pages = [otto.open(f"/leases?org={slug}") for slug in (foreign.organization.slug, "no-such")]
    assert [page.status_code for page in pages] == [404, 404]
    assert len({page.text for page in pages}) == 1
    otto.open("/leases")
    for verb in ("revoke", "messages"):
        ids = (granted["lease_id"], f"lease_{'0' * 32}", "x", "task_1")
        answers = [otto.click(f"/leases/{one}/{verb}", epoch="1", reason="x", body="x") for one in ids]
        assert [answer.status_code for answer in answers] == [404] * 4
        assert len({said(answer) for answer in answers}) == 1
    assert row_of(granted).ended_at is None


def test_an_ended_session_and_a_stale_token_change_nothing(agent: Agent, otto: Visitor) -> None:
    granted = lease(agent)
    path = f"/leases/{granted['lease_id']}/revoke"
    otto.open("/leases")
    token, otto.token = otto.token, "stale" * 8
    stale = otto.click(path, epoch="1", reason="x")
    assert stale.status_code == 403
    assert "Reload it, then try again." in said(stale)
    otto.token = token
    otto.client.cookies.delete("sessionid")
    ended = otto.click(path, epoch="1", reason="x")
    assert (ended.status_code, ended.headers["HX-Redirect"]) == (401, "/login?next=/leases")
    assert row_of(granted).ended_at is None


def test_reading_changes_nothing(agent: Agent, otto: Visitor, web: Server) -> None:
    granted = lease(agent)
    before = row_of(granted).__dict__
    assert otto.client.head("/leases").status_code == 200
    assert otto.client.get(f"/leases/{granted['lease_id']}/revoke").status_code == 405
    otto.open("/leases")
    assert otto.form("/leases").status_code == 405
    after = row_of(granted).__dict__
    assert {
        name: value for name, value in before.items() if not name.startswith("_")
    }.items() <= after.items()
