"""Leases, handoffs and messages in Chromium, with real agents on the other side."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browsing import chromium, live, log_in, not_reloaded, somebody, toast
from tests.stack import Founded, Stack


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def firm(stack: Stack) -> Iterator[Founded]:
    """Two agents and two operators."""
    firm = stack.found(2, "operator", "admin")
    yield firm
    firm.close()


@pytest.fixture
def context(browser: Browser, stack: Stack) -> Iterator[BrowserContext]:
    """A person's browser."""
    with somebody(browser, stack.address) as context:
        yield context


@pytest.fixture
def page(context: BrowserContext, firm: Founded) -> Page:
    """The page of leases, after logging in."""
    return opened(context, firm.people[0])


def opened(context: BrowserContext, email: str, path: str = "/leases") -> Page:
    """A page of a person who has logged in."""
    page = context.new_page()
    page.goto(path)
    log_in(page, email)
    live(page)
    return page


def leased(firm: Founded, number: int = 0, **more: Any) -> Any:
    """What an agent leases."""
    body = {
        "resource_type": "deploy",
        "resource_id": "checkout-service",
        "purpose": "Deploy build 42",
        **more,
    }
    return firm.agents[number].post("/leases", body)


def row(page: Page, printed: str) -> Locator:
    """The row of a lease, handoff or message."""
    return page.locator(f"#row-{printed}")


def release_by_force(page: Page, lease_id: str, reason: str) -> None:
    """Open the row's form, say why, press the button."""
    if not row(page, lease_id).locator("details.more-of").evaluate("part => part.open"):
        row(page, lease_id).locator("summary", has_text="More").click()
    row(page, lease_id).locator("summary", has_text="Release by force").click()
    row(page, lease_id).get_by_label("Reason").fill(reason)
    row(page, lease_id).get_by_role("button", name="Release by force").click()


def test_an_operator_releases_by_force_while_the_holder_renews(page: Page, firm: Founded) -> None:
    agent, granted = firm.agents[0], leased(firm)
    shown = row(page, granted["lease_id"])
    expect(shown).to_contain_text("checkout-service")
    shown.locator("summary", has_text="More").click()
    shown.locator("summary", has_text="Release by force").click()
    reason = shown.get_by_label("Reason")
    reason.click()
    for number, word in enumerate(("It ", "hangs ", "again."), start=1):
        # The row is painted anew under the hands of who types.
        page.keyboard.type(word)
        assert agent.send("PATCH", f"/leases/{granted['lease_id']}", {}).status_code == 200
        expect(shown).to_contain_text(f"{number} renewal")
        assert reason.evaluate("field => document.activeElement === field")
    assert reason.input_value() == "It hangs again."
    shown.get_by_role("button", name="Release by force").dblclick()
    toast(page, "Released by force.")
    expect(page.locator("[data-settled]")).to_contain_text("released by force")
    page.mouse.move(2, 2)
    expect(page.locator("#leases-live")).not_to_contain_text("checkout-service")
    expect(page.locator("#leases-ended")).to_contain_text(f"released by force by {firm.people[0]}")
    expect(page.locator("#leases-ended")).to_contain_text("It hangs again.")
    expect(page.locator("#toasts .is-bad")).to_have_count(0)
    agent.refused("NOT_FOUND", f"/leases/{granted['lease_id']}", {}, method="PATCH")
    events = agent.get("/events", params={"kind": "lease.revoked"})["events"]
    assert [event["lease_id"] for event in events] == [granted["lease_id"]]
    assert leased(firm, 1)["epoch"] == 2
    expect(page.locator("#leases-live")).to_contain_text("agent-1")
    assert not_reloaded(page)


def test_of_two_operators_the_second_is_told_who_was_first(
    browser: Browser, stack: Stack, page: Page, firm: Founded
) -> None:
    granted = leased(firm)
    expect(row(page, granted["lease_id"])).to_be_visible()
    # The first one's page stands still from here on.
    page.route("**/live/**", lambda route: None)
    page.reload()
    expect(row(page, granted["lease_id"])).to_be_visible()
    with somebody(browser, stack.address) as other:
        second = opened(other, firm.people[1])
        release_by_force(second, granted["lease_id"], "Freeze")
        toast(second, "Released by force.")
    release_by_force(page, granted["lease_id"], "It hangs")
    toast(page, f"{firm.people[1]} released it by force at")
    # The page now shows how it stands.
    page.mouse.move(2, 2)
    expect(page.locator("#leases-live")).not_to_contain_text("checkout-service")
    expect(page.locator("#leases-ended")).to_contain_text("Freeze")


def test_a_handoff_to_a_person_is_accepted_by_a_click(page: Page, firm: Founded) -> None:
    agent = firm.agents[0]
    task = agent.create("Restore the backup")
    claim = agent.claim()
    page.get_by_role("link", name="Messages", exact=False).first.click()
    live(page)
    run = {"run_id": claim["run"]["id"], "epoch": 1, "task_id": task["id"]}
    mine = agent.post(
        "/handoffs", {**run, "to_principal": firm.people[0], "message": "It asks for a password."}
    )
    theirs = agent.post("/handoffs", {"to_principal": firm.people[1], "subject_id": "incident-7"})
    accept = row(page, mine["handoff_id"]).get_by_role("button", name="Accept the task")
    expect(accept).to_be_visible()
    expect(row(page, theirs["handoff_id"])).to_contain_text("incident-7")
    expect(row(page, theirs["handoff_id"]).get_by_role("button", name="Accept")).to_have_count(0)
    assert not_reloaded(page)
    page.reload()
    expect(page.locator("#waiting")).to_have_text(re.compile("^1"))
    accept.click()
    page.wait_for_url(f"**/tasks/{task['id']}")
    expect(page.locator(".holding")).to_be_visible()
    expect(page.locator("#task-head")).to_contain_text(f"{firm.people[0]} holds it")
    expect(page.locator("#waiting")).to_be_hidden()
    agent.refused("LEASE_SUPERSEDED", f"/runs/{claim['run']['id']}/complete", {"epoch": 1})


def test_people_and_agents_write_to_each_other(page: Page, firm: Founded) -> None:
    agent, granted = firm.agents[0], leased(firm)
    shown = row(page, granted["lease_id"])
    shown.locator("summary", has_text="More").click()
    shown.locator("summary", has_text="Message the holder").click()
    shown.get_by_label("Message to whoever").fill("How long will it take?")
    shown.get_by_role("button", name="Send").click()
    toast(page, "Sent to agent-0, who holds deploy/checkout-service.")
    (heard,) = agent.get("/messages")["messages"]
    assert heard["body"] == "How long will it take?"

    page.goto("/messages")
    live(page)
    agent.post("/messages", {"to_principal": firm.people[0], "body": "Ten minutes.\n<b>Promised.</b>"})
    answer = page.locator("#messages li", has_text="Ten minutes.")
    expect(answer).to_contain_text("<b>Promised.</b>")
    answer.get_by_role("button", name="Mark as read").click()
    toast(page, "Marked as read.")
    expect(answer).not_to_contain_text("not read")
    expect(answer.get_by_role("button")).to_have_count(0)
    expect(page.locator("#messages li", has_text="How long will it take?")).to_contain_text("not read")
    agent.post(f"/messages/{heard['message_id']}/read")
    # That somebody has read it is no event, and is seen all the same.
    expect(page.locator("#messages li", has_text="not read")).to_have_count(0)
    page.get_by_label("To", exact=True).select_option(label="agent-1")
    page.get_by_label("Message", exact=True).fill("Take over at noon.")
    page.get_by_role("button", name="Send").click()
    toast(page, "Sent to agent-1.")
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    assert not_reloaded(page)
    assert [each["body"] for each in firm.agents[1].get("/messages")["messages"]] == ["Take over at noon."]


def test_the_keyboard_walks_the_rows_and_opens_them(page: Page, firm: Founded) -> None:
    first, second = leased(firm), leased(firm, 1, resource_id="billing")
    expect(row(page, second["lease_id"])).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(row(page, second["lease_id"])).to_have_attribute("data-selected", "")
    page.keyboard.press("Enter")
    expect(row(page, second["lease_id"]).locator("details.more-of")).to_have_attribute("open", "")
    page.keyboard.press("k")
    page.keyboard.press("d")
    expect(row(page, first["lease_id"]).get_by_label("Reason")).to_be_focused()
    page.keyboard.type("It hangs")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("billing")
    expect(row(page, first["lease_id"])).to_be_hidden()
    expect(row(page, second["lease_id"])).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()


def test_jeopardy_is_shown_when_silence_brings_it(page: Page, firm: Founded) -> None:
    task = firm.agents[0].create("Quiet work", lease_ttl_seconds=12)
    claim = firm.agents[0].claim()
    page.goto(f"/tasks/{task['id']}")
    live(page)
    expect(page.locator("#task-head")).not_to_contain_text("Allowed in it")
    expect(page.locator("#task-head")).to_contain_text("Its last renewal was")
    firm.agents[0].post(f"/runs/{claim['run']['id']}/heartbeat", {"epoch": 1, "ttl_seconds": 300})
    expect(page.locator("#task-head")).not_to_contain_text("Allowed in it")
    firm.agents[0].post(f"/runs/{claim['run']['id']}/jeopardy", {"epoch": 1})
    expect(page.locator("#task-head")).to_contain_text("Its holder declared jeopardy")
    assert not_reloaded(page)


@pytest.mark.parametrize("width", [320, 390])
def test_a_narrow_page_needs_no_sideways_scrolling(
    width: int, context: BrowserContext, firm: Founded
) -> None:
    # An admin, whose navigation is the longest.
    page = opened(context, firm.people[1])
    word = "Donaudampfschifffahrtsgesellschaftskapitän" * 4
    granted = leased(firm, resource_type="x" * 80, resource_id=word[:160], purpose=word + word)
    task = firm.agents[0].create(word[:200])
    claim = firm.agents[0].claim()
    kept = firm.agents[0].post("/checkpoints", {"subject_id": word[:160], "kind": "k" * 60, "state": 1})
    firm.agents[0].post(
        "/handoffs",
        {
            "to_principal": firm.people[1],
            "run_id": claim["run"]["id"],
            "epoch": 1,
            "checkpoint_id": kept["checkpoint_id"],
            "message": word,
        },
    )
    for named in ({"resource_type": "task", "resource_id": task["id"]}, {"to_principal": firm.people[1]}):
        firm.agents[1].post("/messages", {"body": word, **named})
    page.set_viewport_size({"width": width, "height": 800})
    for path in ("/leases", "/messages", f"/tasks/{task['id']}"):
        page.goto(path)
        expect(page.locator("#main")).to_contain_text(word[:100])
        for part in page.locator("#main details").all():
            part.evaluate("part => { part.open = true; }")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width, path
    assert granted["epoch"] == 1
