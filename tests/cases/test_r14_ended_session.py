"""R14: the board after the session ended: never a login form inside a fragment, never a silent loss."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cast import Agent, Human
from tests.servers import Server
from tests.sessions import Session

FORM = 'name="password"'


@pytest.fixture
def tab(approver: Human, web: Server) -> Iterator[Session]:
    """An approver's tab with the board."""
    with Session(approver, web.url) as tab:
        assert tab.client.get("/").status_code == 200
        yield tab


def pending(agent: Agent, approval: Any) -> bool:
    """True when nothing at all has happened to it."""
    return bool(agent.get(f"/approvals/{approval['id']}") == approval)


def test_a_click_after_logging_out_elsewhere_leads_to_the_login_and_back(
    agent: Agent, awaiting_approval: Any, tab: Session, web: Server, approver: Human
) -> None:
    stale = tab.token
    tab.log_out()
    assert "sessionid" not in tab.client.cookies
    for answer in (tab.click(awaiting_approval, "Approve", token=stale), tab.htmx("GET", "/", token=stale)):
        assert answer.status_code in (401, 403)
        assert FORM not in answer.text
        assert answer.headers["HX-Redirect"] == "/login?next=/"
    away = tab.click(awaiting_approval, "Approve", token=stale, page=f"/tasks/{awaiting_approval['task_id']}")
    assert away.headers["HX-Redirect"] == f"/login?next=/tasks/{awaiting_approval['task_id']}"
    assert pending(agent, awaiting_approval)
    # `next` leads back, and never to another site.
    for target, lands in (("/", "/"), ("//evil.example/", "/"), ("https://evil.example/", "/")):
        page = tab.client.get("/login", params={"next": target})
        token = page.text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        form = {"username": tab.email, "password": "correct-horse-battery", "next": target}
        answer = tab.client.post("/login", data={**form, "csrfmiddlewaretoken": token})
        assert (answer.status_code, answer.headers["Location"]) == (302, lands)
        tab.log_out()


def test_without_htmx_it_is_an_ordinary_redirect(agent: Agent, awaiting_approval: Any, tab: Session) -> None:
    tab.log_out()
    answer = tab.client.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/login?next=/")
    form = {
        "option": "Approve",
        "shown_digest": awaiting_approval["digest"],
        "csrfmiddlewaretoken": tab.token,
    }
    answer = tab.client.post(f"/approvals/{awaiting_approval['id']}/decide", data=form)
    assert answer.status_code in (302, 403)
    assert pending(agent, awaiting_approval)


def test_a_click_after_logging_in_again_elsewhere_says_so(
    agent: Agent, awaiting_approval: Any, tab: Session
) -> None:
    stale = tab.token
    tab.log_out()
    tab.log_in()
    assert tab.token != stale
    answer = tab.click(awaiting_approval, "Approve", token=stale)
    assert answer.status_code == 403
    assert 'hx-target="#toasts"' in answer.text
    assert "logged in again" in answer.text
    assert "Reload" in answer.text
    assert pending(agent, awaiting_approval)
    # After that reload it works.
    assert tab.click(awaiting_approval, "Approve").status_code == 200


def test_20_looks_set_no_new_token_and_the_click_still_works(
    agent: Agent, awaiting_approval: Any, tab: Session
) -> None:
    token = tab.token
    for _ in range(20):
        answer = tab.htmx("GET", "/")
        assert answer.status_code == 200
        assert tab.token == token
    answer = tab.click(awaiting_approval, "Deny")
    assert answer.status_code == 200
    assert "You decided “Deny”." in answer.text
    assert agent.get(f"/approvals/{awaiting_approval['id']}")["decision"] == "Deny"


def test_without_a_token_nothing_is_decided(agent: Agent, awaiting_approval: Any, tab: Session) -> None:
    for token in ("", "x", "0" * 32):
        answer = tab.click(awaiting_approval, "Approve", token=token)
        assert answer.status_code == 403
        assert 'hx-target="#toasts"' in answer.text
    body = {"option": "Approve", "shown_digest": awaiting_approval["digest"]}
    answer = tab.client.post(f"/v1/approvals/{awaiting_approval['id']}/decide", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert pending(agent, awaiting_approval)


def test_the_loser_of_a_decision_is_told_who_decided_what(
    agent: Agent, awaiting_approval: Any, tab: Session, admin: Human, web: Server
) -> None:
    with Session(admin, web.url) as other:
        assert other.click(awaiting_approval, "Deny").status_code == 200
    answer = tab.click(awaiting_approval, "Approve")
    assert answer.status_code == 409
    assert f"{admin.user.email} decided “Deny”" in answer.text
    assert "Your click changed nothing." in answer.text
    # The page is shown as it now stands.
    assert "needs-you" in answer.text
    assert agent.get(f"/approvals/{awaiting_approval['id']}")["decision"] == "Deny"


def test_the_board_says_which_zone_its_times_are_in(awaiting_approval: Any, tab: Session) -> None:
    page = tab.client.get("/").text
    assert "UTC" in page
    assert "+00:00" in page or "Z" in page.split('datetime="')[1][:40]
