"""The board in Chromium, against the stack as `make up` starts it, with real agents on the other side."""

import re
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect

from tests.browsing import asked, button, card, chromium, live, log_in, not_reloaded, somebody, stale, toast
from tests.processes import eventually
from tests.stack import Founded, Stack
from titen.client import Answer, Decision, Titen


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def firm(stack: Stack) -> Iterator[Founded]:
    """Two agents, an approver and an admin."""
    firm = stack.found(2, "approver", "admin")
    yield firm
    firm.close()


@pytest.fixture
def context(browser: Browser, stack: Stack) -> Iterator[BrowserContext]:
    """A person's browser."""
    with somebody(browser, stack.address) as context:
        yield context


@pytest.fixture
def page(context: BrowserContext, firm: Founded) -> Page:
    """The board, after logging in."""
    page = context.new_page()
    page.goto("/")
    log_in(page, firm.people[0])
    live(page)
    return page


def test_a_heartbeat_moves_the_bar_without_a_reload(page: Page, firm: Founded) -> None:
    agent = firm.agents[0]
    task = agent.create("Checksum the static files")
    run = agent.claim()["run"]["id"]
    row = page.locator(f"#running #row-{task['id']}")
    expect(row).to_contain_text("Checksum the static files")
    for percent, status in ((0, "Listing"), (40, "Hashing a"), (85, "Hashing b")):
        agent.post(f"/runs/{run}/heartbeat", {"epoch": 1, "progress": percent, "status": status})
        expect(row.locator("progress")).to_have_attribute("value", str(percent))
        expect(row).to_contain_text(status)
    agent.post(f"/runs/{run}/complete", {"epoch": 1})
    expect(row).to_have_count(0)
    expect(page.locator("#ended")).to_contain_text("Checksum the static files")
    assert not_reloaded(page)


def test_an_approval_lets_the_waiting_agent_go_on(page: Page, firm: Founded, stack: Stack) -> None:
    heard: list[Decision | Answer] = []

    def work() -> None:
        with Titen(stack.address, firm.agents[0].secret) as titen:
            run = titen.claim()
            assert run is not None
            with run:
                heard.append(run.ask("Delete the old build?", ["Delete it", "Keep it"]))
                run.progress(60, "Deleting")
                heard.append(run.ask_question("Which one exactly?"))
                run.complete("Deleted")

    task = firm.agents[1].create("Clean up")
    agent = threading.Thread(target=work)
    agent.start()
    approval = page.locator("#needs-you article").filter(has_text="Delete the old build?")
    approval.locator("[name=reason]").fill("It is of no use")
    approval.locator('button[value="Delete it"]').click()
    toast(page, "You decided “Delete it”.")
    page.mouse.move(2, 2)
    expect(approval).to_have_count(0)
    question = page.locator("#needs-you article").filter(has_text="Which one exactly?")
    expect(question).to_be_visible()
    assert [one.decision for one in heard if isinstance(one, Decision)] == ["Delete it"]
    question.locator("textarea").fill("Build 41")
    question.get_by_role("button", name="Answer").click()
    page.mouse.move(2, 2)
    expect(question).to_have_count(0)
    agent.join(30)
    assert [one.body for one in heard if isinstance(one, Answer)] == ["Build 41"]
    expect(page.locator("#ended")).to_contain_text("Clean up")
    assert not_reloaded(page)
    assert firm.agents[1].get(f"/tasks/{task['id']}")["status"] == "done"
    (decided,) = firm.agents[1].get("/approvals")["approvals"]
    assert (decided["decision"], decided["reason"]) == ("Delete it", "It is of no use")


def test_a_click_after_logging_out_elsewhere_loses_nothing_silently(
    page: Page, context: BrowserContext, firm: Founded
) -> None:
    agent = firm.agents[0]
    _, approval = asked(agent)
    card(page, approval).locator("[name=reason]").fill("Seen and checked")
    elsewhere = context.new_page()
    elsewhere.goto("/")
    elsewhere.locator("details.me summary").click()
    elsewhere.get_by_role("button", name="Log out").click()
    expect(elsewhere).to_have_url(re.compile("/login"))

    button(page, approval, "Approve").click()
    page.wait_for_url(re.compile(r"/login\?next=/"))
    assert agent.get(f"/approvals/{approval['id']}") == approval
    log_in(page, firm.people[0])
    expect(page).to_have_url(re.compile(r"^http://[^/]+/(\?.*)?$"))
    live(page)
    expect(button(page, approval, "Approve")).to_be_visible()
    button(page, approval, "Approve").click()
    toast(page, "You decided “Approve”.")
    assert agent.get(f"/approvals/{approval['id']}")["decision"] == "Approve"


def test_a_click_after_logging_in_again_elsewhere_is_answered(
    page: Page, context: BrowserContext, firm: Founded
) -> None:
    agent = firm.agents[0]
    _, approval = asked(agent)
    expect(card(page, approval)).to_be_visible()
    elsewhere = context.new_page()
    elsewhere.goto("/")
    elsewhere.locator("details.me summary").click()
    elsewhere.get_by_role("button", name="Log out").click()
    elsewhere.goto("/")
    log_in(elsewhere, firm.people[0])
    button(page, approval, "Approve").click()
    toast(page, "You have logged in again since this page was loaded")
    assert agent.get(f"/approvals/{approval['id']}") == approval
    with page.expect_navigation():
        page.locator("#toasts").get_by_role("button", name="Reload").click()
    live(page)
    button(page, approval, "Approve").click()
    toast(page, "You decided “Approve”.")


def test_typed_text_focus_and_caret_survive_20_updates(page: Page, firm: Founded) -> None:
    _, approval = asked(firm.agents[0])
    other, _ = asked(firm.agents[1], "Noisy work")
    field = card(page, approval).locator("[name=reason]")
    field.click()
    page.keyboard.type("because of teh outage")
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
    made = None
    for number in range(20):
        # The section that holds the field is painted anew: a card comes, and another goes.
        if made is not None:
            firm.agents[1].post(f"/approvals/{made['id']}/cancel")
        run = {"run_id": other["run"]["id"], "epoch": other["lease"]["epoch"]}
        words = {"question": f"Number {number}?", "options": ["Yes", "No"]}
        made = firm.agents[1].post("/approvals", {**run, **words})
        expect(card(page, made)).to_be_visible()
        state = field.evaluate(
            "field => [field.value, field.selectionStart, document.activeElement === field]"
        )
        assert state == ["because of teh outage", 12, True], (number, state)
    page.keyboard.press("Delete")
    assert field.input_value() == "because of th outage"
    assert not_reloaded(page)
    button(page, approval, "Deny").click()
    toast(page, "You decided “Deny”.")
    assert firm.agents[0].get(f"/approvals/{approval['id']}")["reason"] == "because of th outage"


def test_a_double_click_decides_once_and_says_so(page: Page, firm: Founded) -> None:
    agent = firm.agents[0]
    claim, approval = asked(agent)
    button(page, approval, "Approve").dblclick()
    toast(page, "You decided “Approve”.")
    expect(card(page, approval)).to_have_count(0)
    expect(page.locator("#toasts .is-bad")).to_have_count(0)
    events = agent.get("/events", params={"kind": "approval.decided"})["events"]
    assert [event["subject_id"] for event in events] == [approval["id"]]
    assert agent.get(f"/runs/{claim['run']['id']}")["status"] == "running"


@pytest.mark.parametrize("winner", ["oneself", "another"])
def test_an_answer_that_comes_after_the_card_has_gone_is_still_seen(
    winner: str, page: Page, firm: Founded
) -> None:
    """The stream may be quicker than the answer to the click, and take away what was clicked on."""
    agent = firm.agents[0]
    _, approval = asked(agent)
    held: list[tuple[Route, Request]] = []
    page.route("**/decide", lambda route, request: held.append((route, request)))
    button(page, approval, "Approve").click()
    while not held:
        page.wait_for_timeout(20)
    ((route, _),) = held
    if winner == "another":
        with firm.session(1) as other:
            assert other.decide(approval, "Deny").status_code == 200
    answer = route.fetch()
    expect(card(page, approval)).to_have_count(0)
    route.fulfill(response=answer)
    toast(page, "You decided “Approve”." if winner == "oneself" else f"{firm.people[1]} decided “Deny”")


def test_a_script_that_loads_slowly_does_not_cost_the_stream(page: Page) -> None:
    """htmx opens the stream when everything that listens to it has been loaded."""

    def slowly(route: Route) -> None:
        page.wait_for_timeout(1500)
        route.continue_()

    page.route(re.compile(r"/js/live[^/]*\.js"), slowly)
    page.route(re.compile(r"/htmx/hx-sse[^/]*\.js"), slowly)
    page.reload()
    live(page)


def test_the_loser_sees_who_decided_what(page: Page, firm: Founded) -> None:
    agent = firm.agents[0]
    _, approval = asked(agent)
    stale(page, approval)
    with firm.session(1) as other:
        assert other.decide(approval, "Deny").status_code == 200
    button(page, approval, "Approve").click()
    toast(page, f"{firm.people[1]} decided “Deny”")
    # The page now shows how it stands.
    expect(card(page, approval)).to_have_count(0)
    assert agent.get(f"/approvals/{approval['id']}")["decision"] == "Deny"


def test_an_expired_card_refuses_visibly(page: Page, firm: Founded) -> None:
    agent = firm.agents[0]
    _, approval = asked(agent, expires_in_seconds=4)
    stale(page, approval)
    eventually(lambda: agent.get(f"/approvals/{approval['id']}")["status"] == "expired")
    expect(card(page, approval)).to_contain_text("ran out")
    button(page, approval, "Approve").click()
    toast(page, "It expired at")
    seen = agent.get(f"/approvals/{approval['id']}")
    assert (seen["status"], seen["decision"]) == ("expired", None)


@pytest.mark.parametrize("width", [320, 390])
def test_a_narrow_page_needs_no_sideways_scrolling(width: int, page: Page, firm: Founded) -> None:
    word = "Donaudampfschifffahrtsgesellschaftskapitän" * 4
    claim, approval = asked(firm.agents[0], word[:200], question=word, options=[word[:100], "No"])
    running = firm.agents[1].create("https://example.org/" + "a" * 170)
    run = firm.agents[1].claim(task_id=running["id"])["run"]["id"]
    firm.agents[1].post(f"/runs/{run}/heartbeat", {"epoch": 1, "progress": 5, "status": "x" * 200})
    firm.agents[1].create(word[:200], priority=-100, required_capabilities=["c" * 80])
    page.set_viewport_size({"width": width, "height": 800})
    for path in ("/", f"/tasks/{claim['task']['id']}", f"/tasks/{running['id']}"):
        page.goto(path)
        expect(page.locator("#main")).to_be_visible()
        if path == "/":
            expect(card(page, approval)).to_be_visible()
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width, path


def test_what_an_agent_sends_is_text(page: Page, firm: Founded) -> None:
    nasty = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    claim, approval = asked(
        firm.agents[0], nasty[:200], question=nasty, context=nasty, options=[nasty[:100], "No"]
    )
    beat = {"epoch": claim["lease"]["epoch"], "progress": 3, "status": nasty[:200]}
    firm.agents[0].post(f"/runs/{claim['run']['id']}/heartbeat", beat)
    expect(card(page, approval)).to_contain_text("<script>")
    page.goto(f"/tasks/{claim['task']['id']}")
    expect(page.locator("#main")).to_contain_text("onerror")
    assert "owned" not in page.title().split("<")[0]
    assert page.locator("img[src=x]").count() == 0
