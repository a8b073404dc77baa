"""Long lists on the board: every line "and N more" leads to a list that shows the rest."""

import re
from html import unescape
from typing import Any

import pytest

from coordination.board import task_fragments, task_state, timeline

from .cast import Agent, Company
from .clockwork import uuid_of
from .leasing import named
from .passing import hand
from .visitors import Visitor

MANY = 52
LINE = re.compile(r'<a href="([^"]*)">and ([\d,]+\+?) (?:more|earlier)[^<]*</a>')
ANY_LINE = re.compile(r"\band [\d,]+\+? (?:more|earlier)")
ROW = r'id="(?:row-)?((?:task|appr|lease|hoff)_\w{32})"'


def part(page: str, section: str) -> str:
    """One section of a page."""
    begun = page[page.index(f'<section id="{section}"') :]
    return begun[: begun.index("</section>")]


def lines(html: str) -> list[str]:
    """Where its lines lead. None of them leads nowhere."""
    found = [unescape(href) for href, _ in LINE.findall(html)]
    assert len(found) == len(ANY_LINE.findall(html))
    return found


def rest(visitor: Visitor, path: str, section: str) -> list[str]:
    """The rows of a list from the page at `path` on, over all that follow, in their order."""
    found: list[str] = []
    while path:
        answer = visitor.client.get(path)
        assert answer.status_code == 200, path
        html = part(answer.text, section)
        found += re.findall(ROW, html)
        path = next(iter(lines(html)), "")
    return found


def ids(made: list[Any], name: str = "id") -> list[str]:
    """Their ids."""
    return [each[name] for each in made]


@pytest.fixture
def crowd(company: Company, agent: Agent, other: Agent, third: Agent) -> dict[str, list[str]]:
    """52 of everything that the board lists, in the order in which it does."""
    approvals = []
    for number in range(MANY):
        asker = (agent, other, third)[number % 3]
        claim = asker.claim(task_id=agent.create("Asked about")["id"])
        words = {"question": "May I?", "options": ["Yes", "No"]}
        approvals.append(asker.post("/approvals", {"run_id": claim["run"]["id"], "epoch": 1, **words}))
    running = [agent.claim(task_id=agent.create("Under way")["id"])["task"] for _ in range(MANY)]
    ready = [agent.create("Ready") for _ in range(MANY)]
    waiting = [agent.create("Waits", depends_on=[ready[0]["id"]]) for _ in range(MANY)]
    leases = [agent.post("/leases", named(f"host-{number}")) for number in range(MANY)]
    handoffs = [hand(agent, other, subject_id=f"subject-{number}") for number in range(MANY)]
    return {
        "needs-you": ids(approvals),
        "approvals-pending": ids(approvals),
        "running": ids(running),
        "blocked": [approval["task_id"] for approval in approvals],
        "ready": ids(ready),
        "waiting": ids(waiting),
        "leases-live": ids(leases, "lease_id"),
        "handoffs": ids(handoffs, "handoff_id")[::-1],
    }


PAGES = {
    "/": ("needs-you", "running", "blocked"),
    "/approvals": ("approvals-pending",),
    "/leases": ("leases-live",),
    "/messages": ("handoffs",),
}


def test_every_line_that_speaks_of_more_leads_to_the_rest(crowd: dict[str, list[str]], otto: Visitor) -> None:
    for path, sections in PAGES.items():
        page = otto.open(path).text
        for section in sections:
            html = part(page, section)
            (more,) = lines(html)
            assert re.findall(ROW, html) + rest(otto, more, section) == crowd[section], section
    # The queue has two lists, of which the board shows the second when there is room.
    html = part(otto.open("/").text, "queue")
    ready, waiting = lines(html)
    assert re.findall(ROW, html) + rest(otto, ready, "queue") == crowd["ready"]
    assert rest(otto, waiting, "queue") == crowd["waiting"]


def test_a_click_on_the_page_of_one_list_shows_that_list(awaiting_approval: Any, otto: Visitor) -> None:
    path = f"/?org={slug_of(otto)}&list=blocked&page=1"
    otto.open(path)
    task = awaiting_approval["task_id"]
    answer = otto.click(f"/tasks/{task}/comments", body="Seen.")
    assert re.findall(ROW, part(answer.text, "blocked")) == [task]
    assert 'hx-target="#running"' not in answer.text
    # Nothing is sent to a page that a stream would not fit.
    assert "hx-sse:connect" not in otto.open(path).text


def slug_of(visitor: Visitor) -> str:
    """The organization of who looks."""
    found = re.search(r'\?org=([\w-]+)"', visitor.open("/").text)
    assert found
    return found[1]


@pytest.mark.parametrize("query", ["page=0", "page=x", "page=201", "page=", "page=%D9%A2", "list=runing"])
def test_a_page_that_there_is_not_is_refused(query: str, otto: Visitor) -> None:
    answer = otto.client.get(f"/?{query}")
    assert answer.status_code == 400
    assert f"{query.partition('=')[0]}: must be" in answer.text


def test_the_earlier_events_of_a_task_are_on_its_later_pages(
    agent: Agent, company: Company, claimed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "SHOWN", 3)
    task = claimed["task"]["id"]
    for _ in range(5):
        agent.post(f"/tasks/{task}/comments", {"body": "Noted."})
    shown = []
    for page in (1, 2, 3):
        state = task_state.read(company.organization.pk, uuid_of(task), page)
        assert state
        shown += [entry.kind for entry in state.timeline]
        html = task_fragments.render(state, "viewer")["task-timeline"]
        assert lines(html) == ([f"/tasks/{task}?page={page + 1}#task-timeline"] if page < 3 else [])
    assert shown == ["comment.posted"] * 5 + ["task.claimed", "task.created"]


def test_a_task_that_waits_for_many_leads_to_all_of_them(agent: Agent, otto: Visitor) -> None:
    needed = [agent.create("Needed")["id"] for _ in range(5)]
    task = agent.create("Waits", depends_on=needed)["id"]
    html = part(otto.open("/").text, "queue")
    (all_of_them,) = lines(html)
    page = otto.open(all_of_them).text
    assert all_of_them == f"/tasks/{task}"
    assert all(f'href="/tasks/{each}"' in page for each in needed)
