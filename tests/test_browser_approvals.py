"""Approvals in Chromium: exact actions, decided by people who do not wait for each other."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browsing import button, card, chromium, live, log_in, not_reloaded, somebody, toast
from tests.cast import Agent
from tests.stack import Founded, Stack

RESTART: dict[str, Any] = {"tool": "restart", "server": "nodes", "arguments": {"node": 3}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def firm(stack: Stack) -> Iterator[Founded]:
    """Two agents, an admin and an approver."""
    firm = stack.found(2, "admin", "approver")
    yield firm
    firm.close()


@pytest.fixture
def context(browser: Browser, stack: Stack) -> Iterator[BrowserContext]:
    """A person's browser."""
    with somebody(browser, stack.address) as context:
        yield context


@pytest.fixture
def page(context: BrowserContext, firm: Founded) -> Page:
    """The list of approvals, after logging in as the admin."""
    page = context.new_page()
    page.goto("/approvals")
    log_in(page, firm.people[0])
    live(page)
    return page


def ask(agent: Agent, action: dict[str, Any] = RESTART, **more: Any) -> tuple[Any, Any]:
    """A claim of a new task, and a pending approval of an action under it."""
    task = agent.create("Careful work")
    claim = agent.claim(task_id=task["id"])
    run = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    return claim, agent.post("/approvals", {**run, "question": "May I?", "action": action, **more})


def attempt(claim: Any, key: str, action: dict[str, Any] = RESTART) -> dict[str, Any]:
    """The body of an effect."""
    run = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    return {**run, "action": action, "effect_key": key}


def opened(page: Page, approval: Any) -> Page:
    """The page of an approval."""
    page.goto(f"/approvals/{approval['id']}")
    live(page)
    return page


def choice(page: Page, option: str) -> Locator:
    """An option's button on the page of an approval."""
    return page.locator(f'#approval-decide button[value="{option}"]')


def test_of_two_approvers_the_second_is_told_who_decided_what(
    browser: Browser, stack: Stack, page: Page, firm: Founded
) -> None:
    _, approval = ask(firm.agents[0])
    expect(button(page, approval, "approve")).to_have_text("Runs it once Approve")
    # The first one's page stands still from here on.
    page.route("**/live/**", lambda route: None)
    page.reload()
    expect(button(page, approval, "deny")).to_be_visible()
    with somebody(browser, stack.address) as other:
        second = other.new_page()
        second.goto(f"/approvals/{approval['id']}")
        log_in(second, firm.people[1])
        live(second)
        second.get_by_role("button", name="Wrong target.").click()
        expect(second.locator("#approval-reason")).to_have_value("Wrong target.")
        choice(second, "deny").click()
        toast(second, "You decided “deny”.")
        expect(second.locator("#approval-decide")).to_contain_text("Wrong target.")
        expect(choice(second, "deny")).to_have_count(0)
    button(page, approval, "approve").click()
    toast(page, f"{firm.people[1]} decided “deny” at")
    # The page now shows how it stands.
    expect(card(page, approval)).to_have_count(0)
    expect(page.locator("#approvals-ended")).to_contain_text(f"{firm.people[1]} decided deny")
    shown = firm.agents[0].get(f"/approvals/{approval['id']}")
    assert (shown["granted"], shown["final"], shown["reason"]) == (False, True, "Wrong target.")


def test_buttons_go_away_under_the_cursor_when_it_is_decided_elsewhere(page: Page, firm: Founded) -> None:
    claim, approval = ask(firm.agents[0])
    opened(page, approval)
    choice(page, "approve").hover()
    choice(page, "approve").focus()
    with firm.session(1) as other:
        assert other.decide(approval, "deny", reason="Not now.").status_code == 200
    expect(choice(page, "approve")).to_have_count(0)
    expect(page.locator("#approval-standing")).to_contain_text(f"{firm.people[1]} decided deny")
    page.mouse.down()
    page.mouse.up()
    page.keyboard.press("Enter")
    assert not_reloaded(page)
    firm.agents[0].refused("APPROVAL_DENIED", "/effects", attempt(claim, "k1"))


def test_a_button_that_comes_under_the_cursor_is_not_clicked(page: Page, firm: Founded) -> None:
    """The pointer is elsewhere on the page when the first card goes, so that the second takes its place."""
    (_, first), (_, second) = ask(firm.agents[0]), ask(firm.agents[1])
    expect(button(page, second, "approve")).to_be_visible()
    place = button(page, first, "approve").bounding_box()
    assert place
    page.mouse.move(2, 2)
    with firm.session(1) as other:
        assert other.decide(first, "deny").status_code == 200
    expect(card(page, first)).to_have_count(0)
    assert button(page, second, "approve").bounding_box() == place
    x, y = place["x"] + 5, place["y"] + 5
    page.mouse.click(x, y)
    toast(page, "Another button came under the cursor.")
    assert firm.agents[1].get(f"/approvals/{second['id']}")["status"] == "pending"
    # Whoever has seen it may click on it.
    page.mouse.click(x, y)
    toast(page, "You decided “approve”.")


def test_100_kb_of_arguments_are_folded_complete_and_decided(page: Page, firm: Founded) -> None:
    arguments = {"to": [f"person-{number}@example.org" for number in range(3500)], "text": "x" * 20_000}
    claim, approval = ask(firm.agents[0], {**RESTART, "arguments": arguments})
    expect(button(page, approval, "approve")).to_have_count(0)
    card(page, approval).get_by_role("link", name="Read and decide").click()
    live(page)
    folded = page.locator("#approval-arguments")
    expect(folded.locator("pre")).to_be_hidden()
    folded.locator("summary").click()
    expect(folded.locator("pre")).to_be_visible()
    shown = folded.locator("pre").text_content()
    assert shown
    assert len(shown) > 100_000
    assert json.loads(shown) == arguments
    choice(page, "approve").click()
    toast(page, "You decided “approve”.")
    expect(page.locator("#approval-decide")).to_contain_text("It can be used once")
    assert folded.locator("pre").text_content() == shown
    sent = attempt(claim, "k1", {**RESTART, "arguments": arguments})
    assert firm.agents[0].post("/effects", sent)["status"] == "authorized"
    expect(page.locator("#approval-decide")).to_contain_text("Used by agent-0")


def test_turned_and_hidden_characters_are_seen(page: Page, firm: Founded) -> None:
    sly = "rm \u202egpj.atad\u202c \u200b\u2066x\u2069"
    action = {
        "tool": "shell",
        "server": None,
        "arguments": {"command": sly, "name": "שלום", "before": "a\nb", "after": "a\nb\u00a0"},
    }
    _, approval = ask(firm.agents[0], action, question=f"Delete {sly}?", context=sly)
    expect(card(page, approval)).to_be_visible()
    texts = [card(page, approval).text_content(), opened(page, approval).locator("#main").text_content()]
    for text in texts:
        assert text
        for code in ("U+202E", "U+202C", "U+200B U+2066", "U+2069", "U+00A0"):
            assert code in text, code
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\u00a0]", text)
    assert page.locator(".unseen").first.get_attribute("title") == "U+202E RIGHT-TO-LEFT OVERRIDE"
    # What comes after the control stands where it was sent: to the right of what came before.
    first = page.locator("h1 .unseen").first.bounding_box()
    second = page.locator("h1 .unseen").nth(1).bounding_box()
    assert first
    assert second
    assert first["x"] < second["x"]
    expect(page.locator(".diff .come")).to_have_text("+bU+00A0")


def test_always_allow_this_until_it_is_over(page: Page, firm: Founded, stack: Stack) -> None:
    agent = firm.agents[0]
    claim, approval = ask(agent)
    opened(page, approval)
    always = page.locator("#always")
    always.locator("summary").click()
    always.get_by_label("For how long").select_option("3600")
    always.get_by_label("Reason").fill("It is only a worker.")
    always.get_by_role("button").click()
    toast(page, "Approved. Until")
    expect(page.locator("#approval-decide")).to_contain_text("holds, 59 min")
    assert agent.get(f"/approvals/{approval['id']}")["granted"] is True
    # The same tool with other arguments needs no approval now.
    other = {**RESTART, "arguments": {"node": 4}}
    made = agent.post("/effects", attempt(claim, "k2", other))
    assert (made["status"], made["approval_id"], made["verdict"]["decision"]) == ("authorized", None, "allow")
    soon = stack.query(
        "UPDATE approvals_policyrule SET expires_at = clock_timestamp() + interval '2 s'"
        " WHERE made_from_id IS NOT NULL AND expires_at > clock_timestamp() AND organization_id ="
        " (SELECT id FROM coordination_organization WHERE slug = %s) RETURNING 1",
        firm.slug,
    )
    assert len(soon) == 1
    page.reload()
    expect(page.locator("#approval-decide")).to_contain_text("holds no more")
    agent.refused("APPROVAL_REQUIRED", "/effects", attempt(claim, "k3", other))


def test_the_owner_of_who_asks_has_a_sentence_instead_of_buttons(
    page: Page, firm: Founded, stack: Stack
) -> None:
    stack.query(
        "UPDATE coordination_organization SET forbid_self_approval = true WHERE slug = %s RETURNING 1",
        firm.slug,
    )
    stack.query(
        "UPDATE coordination_principal SET owner_id = (SELECT id FROM coordination_user WHERE email = %s)"
        " WHERE name = 'agent-0' AND organization_id ="
        " (SELECT id FROM coordination_organization WHERE slug = %s) RETURNING 1",
        firm.people[0],
        firm.slug,
    )
    stack.query(
        "UPDATE coordination_principal SET owner_id = NULL WHERE name = 'agent-1' AND organization_id ="
        " (SELECT id FROM coordination_organization WHERE slug = %s) RETURNING 1",
        firm.slug,
    )
    (_, mine), (_, theirs) = ask(firm.agents[0]), ask(firm.agents[1])
    expect(button(page, theirs, "approve")).to_be_visible()
    expect(card(page, mine)).to_contain_text("You own agent-0")
    expect(button(page, mine, "approve")).to_be_hidden()
    opened(page, mine)
    expect(choice(page, "approve")).to_be_hidden()
    expect(page.locator("#always")).to_be_hidden()
    expect(page.locator("#approval-decide")).to_contain_text("You own agent-0")


def test_the_keyboard_decides(page: Page, firm: Founded) -> None:
    (_, low), (_, high) = ask(firm.agents[0]), ask(firm.agents[1], risk="critical")
    expect(button(page, high, "approve")).to_be_visible()
    expect(button(page, low, "approve")).to_be_visible()
    page.keyboard.press("j")
    expect(card(page, high)).to_have_attribute("data-selected", "")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("d")
    expect(button(page, high, "deny")).to_be_focused()
    page.keyboard.press("Enter")
    toast(page, "You decided “deny”.")
    expect(card(page, high)).to_have_count(0)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/approvals/{low['id']}")
    live(page)
    page.keyboard.press("a")
    expect(choice(page, "approve")).to_be_focused()
    page.keyboard.press("d")
    expect(choice(page, "deny")).to_be_focused()
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    toast(page, "You decided “approve”.")
    assert firm.agents[0].get(f"/approvals/{low['id']}")["granted"] is True


def test_an_operator_says_what_came_of_an_effect(page: Page, firm: Founded) -> None:
    agent = firm.agents[0]
    claim, approval = ask(agent)
    with firm.session(1) as other:
        assert other.decide(approval, "approve").status_code == 200
    page.goto(f"/tasks/{claim['task']['id']}")
    live(page)
    made = agent.post("/effects", attempt(claim, "k1"))
    row = page.locator(f"#{made['id']}")
    expect(row).to_contain_text("authorized, no outcome yet")
    expect(page.locator("#task-head")).to_contain_text("1 effect without an outcome holds up completion")
    agent.refused("EFFECTS_UNRECONCILED", f"/runs/{claim['run']['id']}/complete", {"epoch": 1})
    row.locator("summary", has_text="Say what came of it").click()
    row.get_by_label("What came of it").select_option("succeeded")
    row.get_by_label("How you know").fill("Node 3 is up.")
    row.get_by_role("button", name="Record it").click()
    toast(page, "Recorded.")
    expect(row).to_contain_text("Node 3 is up.")
    expect(page.locator("#task-head")).not_to_contain_text("holds up completion")
    agent.post(f"/runs/{claim['run']['id']}/complete", {"epoch": 1})
    assert not_reloaded(page)


def test_a_narrow_page_needs_no_sideways_scrolling(page: Page, firm: Founded) -> None:
    word = "Donaudampfschifffahrtsgesellschaftskapitän" * 4
    action = {
        "tool": "t" * 200,
        "server": "s" * 200,
        "arguments": {word: word, "before": f"a\n{word}", "after": f"b\n{word * 3}\u202e"},
    }
    options = [{"value": word[:190], "label": word[:190], "grants": True}, "deny"]
    claim, approval = ask(firm.agents[0], action, question=word, context=word, options=options)
    _, plain = ask(firm.agents[1])
    with firm.session(1) as other:
        assert other.decide(plain, "deny", reason=word).status_code == 200
    firm.agents[0].refused("CONFLICT", "/effects", attempt(claim, "k" * 200, action))
    page.set_viewport_size({"width": 320, "height": 800})
    shown = (f"/approvals/{each['id']}" for each in (approval, plain))
    for path in ("/", "/approvals", f"/tasks/{claim['task']['id']}", *shown):
        page.goto(path)
        live(page)
        for part in page.locator("#main details").all():
            part.evaluate("part => { part.open = true; }")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 320, path
