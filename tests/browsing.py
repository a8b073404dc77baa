"""Chromium for tests, and what a person does with the board in it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from .browser import launch
from .cast import PASSWORD, Agent

SHOWN = 15_000  # milliseconds until a change must be on the page; the hub needs one or two seconds
# Chromium itself notes every refused request and cut stream; what scripts and policies say counts.
EXPECTED = re.compile(r"Failed to load resource: (the server|net::)")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Headless Chromium. Without one the test fails with one sentence."""
    # Playwright's loop runs in this thread, which Django takes for asynchronous code.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    expect.set_options(timeout=SHOWN)
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            yield browser
            browser.close()
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@contextmanager
def somebody(browser: Browser, address: str, **more: Any) -> Iterator[BrowserContext]:
    """A person's browser: nothing may go wrong in it that the person does not see."""
    context = browser.new_context(base_url=address, viewport={"width": 1200, "height": 900}, **more)
    context.set_default_timeout(SHOWN)
    problems: list[str] = []

    def listen(page: Page) -> None:
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)

    context.on("page", listen)
    yield context
    context.close()
    assert [text for text in problems if not EXPECTED.match(text)] == []


def log_in(page: Page, email: str) -> None:
    """Fill in the login form, from which one comes back to where one was."""
    expect(page).to_have_url(re.compile(r"/login\?next="))
    page.fill("input[name=username]", email)
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile(r"^(?!.*/login)"))


def live(page: Page) -> None:
    """Wait until the page's stream is open, and mark the page so that a reload would be seen."""
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.evaluate("window.sameVisit = true")


def not_reloaded(page: Page) -> bool:
    """True while the page has not been loaded anew."""
    return bool(page.evaluate("window.sameVisit === true"))


def asked(agent: Agent, title: str = "Careful work", **more: Any) -> tuple[Any, Any]:
    """A claim of a new task, and a pending approval under it."""
    task = agent.create(title)
    claim = agent.claim(task_id=task["id"])
    words = {"question": "Roll back to build 41?", "options": ["Approve", "Deny"], **more}
    run = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    return claim, agent.post("/approvals", {**run, **words})


def card(page: Page, item: Any) -> Locator:
    """The card of an approval or question."""
    return page.locator(f"#{item['id']}")


def button(page: Page, approval: Any, option: str) -> Locator:
    """An option's button."""
    return card(page, approval).locator(f'button[value="{option}"]')


def toast(page: Page, text: str) -> None:
    """Expect a message."""
    expect(page.locator("#toasts").get_by_text(text).first).to_be_visible()


def stale(page: Page, approval: Any) -> None:
    """Load the board with a stream that never opens, so that the page stands still."""
    page.route("**/live/**", lambda route: None)
    page.reload()
    expect(button(page, approval, "Approve")).to_be_visible()
