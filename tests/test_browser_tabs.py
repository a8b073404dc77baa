"""Chromium: a tab that nobody looks at, and keys that somebody does not want."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browsing import asked, card, chromium, live, log_in, somebody
from tests.stack import Founded, Stack

# A tab in the background, as pages see it.
HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def firm(stack: Stack) -> Iterator[Founded]:
    """Two agents and an approver."""
    firm = stack.found(2, "approver")
    yield firm
    firm.close()


@pytest.fixture
def page(browser: Browser, stack: Stack, firm: Founded) -> Iterator[Page]:
    """The board, after logging in."""
    with somebody(browser, stack.address) as context:
        page = context.new_page()
        page.goto("/")
        log_in(page, firm.people[0])
        live(page)
        yield page


def test_the_title_of_a_hidden_tab_goes_on_counting(page: Page, firm: Founded) -> None:
    page.evaluate(HIDE, True)
    _, first = asked(firm.agents[0])
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    _, second = asked(firm.agents[1])
    expect(page).to_have_title(re.compile(r"^\(2\) "))
    for agent, approval in ((firm.agents[0], first), (firm.agents[1], second)):
        agent.post(f"/approvals/{approval['id']}/cancel")
    expect(page).to_have_title(re.compile(r"^(?!\()"))
    # Only the title: the page itself rests, and comes back with the tab.
    _, third = asked(firm.agents[0])
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    expect(card(page, third)).to_have_count(0)
    page.evaluate(HIDE, False)
    expect(card(page, third)).to_be_visible()


def test_single_keys_can_be_switched_off(page: Page, firm: Founded) -> None:
    _, approval = asked(firm.agents[0])
    expect(card(page, approval)).to_be_visible()
    page.keyboard.press("?")
    dialog = page.locator("#help")
    dialog.get_by_label("Single-key shortcuts").uncheck()
    dialog.get_by_role("button", name="Close").click()
    # In this browser, also after the page was left.
    for again in (False, True):
        if again:
            page.goto("/approvals")
            live(page)
        for key in ("j", "k", "a", "d", "/", "?"):
            page.keyboard.press(key)
        assert page.locator("[data-selected]").count() == 0
        assert not dialog.is_visible()
        assert page.evaluate("document.activeElement.tagName") == "BODY"
        expect(page.locator(".find kbd")).to_be_hidden()
    page.locator("details.me summary").click()
    page.get_by_role("button", name="Keyboard").click()
    dialog.get_by_label("Single-key shortcuts").check()
    dialog.get_by_role("button", name="Close").click()
    page.keyboard.press("j")
    expect(card(page, approval)).to_have_attribute("data-selected", "")


def test_a_key_that_is_no_letter_is_no_shortcut_of_one_key(page: Page, firm: Founded) -> None:
    """Escape leaves a field all the same."""
    page.evaluate("localStorage.setItem('titen: single-key shortcuts', 'off')")
    page.reload()
    live(page)
    page.locator("#find").fill("something")
    page.keyboard.press("Escape")
    assert page.locator("#find").input_value() == ""
