"""Chromium: nothing is decided but by a deliberate press of the button that says so."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browsing import asked, button, card, chromium, live, log_in, somebody, toast
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
    """Three agents, an admin and an approver."""
    firm = stack.found(3, "admin", "approver")
    yield firm
    firm.close()


@pytest.fixture
def context(browser: Browser, stack: Stack) -> Iterator[BrowserContext]:
    """A person's browser."""
    with somebody(browser, stack.address) as context:
        yield context


@pytest.fixture
def page(context: BrowserContext, firm: Founded) -> Page:
    """The board, after logging in as the admin."""
    page = context.new_page()
    page.goto("/")
    log_in(page, firm.people[0])
    live(page)
    return page


def ask(agent: Agent, **more: Any) -> Any:
    """A pending approval of an action, under a claim of a new task."""
    words = {"question": "May I?", "action": RESTART, "options": ["approve", "deny"], **more}
    return asked(agent, **words)[1]


def status(agent: Agent, approval: Any) -> str:
    """How an approval stands."""
    return str(agent.get(f"/approvals/{approval['id']}")["status"])


def posts(page: Page) -> list[str]:
    """The paths of all POSTs from here on."""
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url) if request.method == "POST" else None)
    return seen


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_enter_in_a_reason_decides_nothing(
    scripts: bool, browser: Browser, stack: Stack, firm: Founded
) -> None:
    agent = firm.agents[0]
    approval = ask(agent)
    with somebody(browser, stack.address, java_script_enabled=scripts) as context:
        page = context.new_page()
        page.goto("/")
        log_in(page, firm.people[0])
        for path in ("/", "/approvals", f"/approvals/{approval['id']}", f"/tasks/{approval['task_id']}"):
            page.goto(path)
            sent = posts(page)
            field = page.locator("form.decide [name=reason]")
            field.click()
            for text in ("", "Seen"):
                page.keyboard.type(text)
                page.keyboard.press("Enter")
            # Enter in the field did not leave the page, and what was typed is still there.
            assert field.input_value().strip() == "Seen", path
            assert sent == [], path
    assert status(agent, approval) == "pending"


FIELDS = "input:not([type=hidden]):not([disabled]), select"


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_enter_in_no_field_of_a_form_that_changes_something_sends_it(
    scripts: bool, browser: Browser, stack: Stack, firm: Founded
) -> None:
    approval = ask(firm.agents[0])
    with somebody(browser, stack.address, java_script_enabled=scripts) as context:
        page = context.new_page()
        page.goto("/")
        log_in(page, firm.people[0])
        tried = 0
        for path in (f"/tasks/{approval['task_id']}", f"/approvals/{approval['id']}", "/policy"):
            page.goto(path)
            sent = posts(page)
            for summary in page.locator("#main details.verb:not([open]) > summary").all():
                if summary.is_visible():
                    summary.click()
            for field in page.locator("#main form[method=post]").locator(FIELDS).all():
                if field.is_visible():
                    field.focus()
                    field.press("Enter")
                    # A list that Enter has opened.
                    page.keyboard.press("Escape")
                    tried += 1
            assert sent == [], path
        assert tried > 20


def settled(page: Page, approval: Any) -> Any:
    """What stands in the place of a card whose approval or question is over."""
    return page.locator(f"#settled-{approval['id']}")


@pytest.fixture
def three(page: Page, firm: Founded) -> list[Any]:
    """Three cards alike, oldest first, of as many agents."""
    approvals = [ask(agent) for agent in firm.agents]
    expect(button(page, approvals[2], "approve")).to_be_visible()
    return approvals


def middle(page: Page, approval: Any, option: str = "approve") -> tuple[float, float]:
    """The middle of an option's button, in the window."""
    box = button(page, approval, option).bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def decide_elsewhere(firm: Founded, approval: Any) -> None:
    """The approver denies it, in another browser."""
    with firm.session(1) as other:
        assert other.decide(approval, "deny").status_code == 200


@pytest.mark.parametrize("path", ["/", "/approvals"])
def test_a_settled_card_keeps_its_place_until_the_pointer_has_left(
    path: str, page: Page, three: list[Any], firm: Founded
) -> None:
    first, second, _ = three
    page.goto(path)
    live(page)
    x, y = middle(page, first)
    place, second_place = card(page, first).bounding_box(), card(page, second).bounding_box()
    page.mouse.move(x, y)
    decide_elsewhere(firm, first)
    expect(settled(page, first)).to_contain_text(f"{firm.people[1]} decided deny")
    assert settled(page, first).bounding_box() == place
    assert card(page, second).bounding_box() == second_place
    page.mouse.move(x + 1, y)
    page.mouse.click(x + 1, y)
    page.mouse.click(*middle(page, second))
    toast(page, "You decided “approve”")
    # Both keep their places; the third has not moved either.
    expect(settled(page, second)).to_contain_text(f"{firm.people[0]} decided approve")
    assert settled(page, second).bounding_box() == second_place
    assert [status(*each) for each in zip(firm.agents, three, strict=True)] == [
        "decided",
        "decided",
        "pending",
    ]
    page.mouse.move(2, 2)
    expect(settled(page, first)).to_have_count(0)
    expect(settled(page, second)).to_have_count(0)
    assert button(page, three[2], "approve").bounding_box()


@pytest.mark.parametrize("falls", ["later", "before"])
def test_a_finger_does_not_decide_the_card_that_comes_next(
    falls: str, browser: Browser, stack: Stack, firm: Founded
) -> None:
    """It is down where the first card's button was, since or after another has decided that."""
    approvals = [ask(agent) for agent in firm.agents]
    options = {"has_touch": True, "is_mobile": True}
    with somebody(browser, stack.address, **options) as context, firm.session(1) as other:
        page = context.new_page()
        page.goto("/")
        log_in(page, firm.people[0])
        live(page)
        button(page, approvals[0], "approve").scroll_into_view_if_needed()
        x, y = middle(page, approvals[0])
        touch = context.new_cdp_session(page)
        down = {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
        if falls == "before":
            touch.send("Input.dispatchTouchEvent", down)
        assert other.decide(approvals[0], "deny").status_code == 200
        expect(settled(page, approvals[0])).to_contain_text("decided deny")
        if falls == "later":
            touch.send("Input.dispatchTouchEvent", down)
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        if falls == "later":
            # The place is given up when the finger has gone, and another tap at once is still nobody's decision.
            expect(settled(page, approvals[0])).to_have_count(0)
            page.touchscreen.tap(x, y)
            toast(page, "Another button came under the cursor.")
        stands = [status(*each) for each in zip(firm.agents, approvals, strict=True)]
        assert stands == ["decided", "pending", "pending"]


def test_a_new_card_does_not_push_another_away_from_under_the_pointer(
    page: Page, three: list[Any], firm: Founded, stack: Stack
) -> None:
    page.goto("/approvals")
    live(page)
    place = button(page, three[0], "approve").bounding_box()
    button(page, three[0], "approve").hover()
    critical = ask(firm.agents[0], risk="critical", action={**RESTART, "arguments": {"node": 4}})
    expect(card(page, critical)).to_be_visible()
    assert button(page, three[0], "approve").bounding_box() == place
    page.mouse.move(2, 2)
    expect(page.locator("article.card").first).to_have_id(critical["id"])


def test_an_answered_question_keeps_its_place_with_its_answer(page: Page, firm: Founded) -> None:
    claims = [agent.claim(task_id=agent.create("Careful work")["id"]) for agent in firm.agents[:2]]
    questions = [
        agent.post(
            f"/tasks/{claim['task']['id']}/comments",
            {
                "body": "Which one?",
                "blocking": True,
                "run_id": claim["run"]["id"],
                "epoch": claim["lease"]["epoch"],
            },
        )
        for agent, claim in zip(firm.agents, claims, strict=False)
    ]
    place = card(page, questions[0]).bounding_box()
    card(page, questions[0]).locator("textarea").hover()
    path = f"/tasks/{claims[0]['task']['id']}/comments/{questions[0]['id']}/answer"
    firm.agents[1].post(path, {"body": "Build 41"})
    expect(settled(page, questions[0])).to_contain_text("agent-1 answered")
    expect(settled(page, questions[0])).to_contain_text("Build 41")
    assert settled(page, questions[0]).bounding_box() == place


def test_a_decision_says_which_approval_it_was_for(page: Page, three: list[Any], firm: Founded) -> None:
    with page.expect_response(re.compile("/decide$")) as answer:
        button(page, three[1], "deny").click()
    words = f"It was “May I?”, asked by agent-1 for “Careful work” ({three[1]['id']})."
    toast(page, words)
    assert three[1]["id"] in answer.value.text()
    decide_elsewhere(firm, three[0])
    # A page that stands still learns it from the refusal.
    page.route("**/live/**", lambda route: None)
    page.goto("/")
    with firm.session(1) as other:
        assert other.decide(three[2], "deny").status_code == 200
    button(page, three[2], "approve").click()
    toast(
        page,
        f"Your click changed nothing. It was “May I?”, asked by agent-2 for “Careful work” ({three[2]['id']}).",
    )


def test_the_key_for_an_answer_does_not_jump_to_another_card(
    page: Page, three: list[Any], firm: Founded
) -> None:
    page.keyboard.press("j")
    expect(card(page, three[0])).to_have_attribute("data-selected", "")
    decide_elsewhere(firm, three[0])
    expect(card(page, three[0])).to_have_count(0)
    page.keyboard.press("a")
    expect(card(page, three[1])).to_have_attribute("data-selected", "")
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    page.keyboard.press("a")
    expect(button(page, three[1], "approve")).to_be_focused()
