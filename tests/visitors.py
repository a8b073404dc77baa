"""People with a browser: a session, the page's CSRF token, and what htmx sends."""

import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx

from .cast import PASSWORD

TOKEN = re.compile(r'X-CSRFToken": "([A-Za-z0-9]+)"|name="csrfmiddlewaretoken" value="([A-Za-z0-9]+)"')

VOID = {"meta", "link", "input", "br", "use", "rect", "path", "circle", "progress"}


class Visitor:
    """One browser."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=20)
        self.token = ""
        self.page = "/"

    def log_in(self, email: str, password: str = PASSWORD, **fields: str) -> httpx.Response:
        """Send the login form."""
        self.open("/login")
        return self.form("/login", username=email, password=password, **fields)

    def open(self, path: str) -> httpx.Response:
        """Load a page; its token and address are those of the clicks that follow."""
        answer = self.client.get(path)
        found = TOKEN.search(answer.text)
        if found:
            self.token = found[1] or found[2]
        self.page = path
        return answer

    def act(self, task_id: str, verb: str, /, **fields: Any) -> httpx.Response:
        """Click a verb of a task's page, as a page loaded just now shows it."""
        page = self.client.get(f"/tasks/{task_id}").text
        found = re.search(r'name="shown_digest" value="([0-9a-f]{64})"', page)
        assert found, "the page offers no verb"
        return self.click(f"/tasks/{task_id}/{verb}", **fields, shown_digest=found[1])

    def form(self, path: str, /, **fields: Any) -> httpx.Response:
        """Submit a plain form."""
        return self.client.post(path, data={"csrfmiddlewaretoken": self.token, **fields})

    def click(self, path: str, /, **fields: Any) -> httpx.Response:
        """Submit a form as htmx does, from the page that is open."""
        headers = {
            "HX-Request": "true",
            "HX-Current-URL": f"{self.url}{self.page}",
            "X-CSRFToken": self.token,
        }
        return self.client.post(path, data=fields, headers=headers)


# Opens a browser, logged in as somebody or as nobody.
Visit = Callable[..., Visitor]


class Elements(HTMLParser):
    """Counts the elements on the first level, and gathers every attribute."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.depth, self.scripts = 0, 0
        self.roots: list[str | None] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Whatever opens."""
        self.attributes += attrs
        self.scripts += tag == "script" and "src" not in dict(attrs)
        if self.depth == 0:
            self.roots.append(dict(attrs).get("id"))
        self.depth += tag not in VOID

    def handle_endtag(self, tag: str) -> None:
        """Whatever closes."""
        self.depth -= tag not in VOID


def said(answer: httpx.Response) -> str:
    """The message that an answer puts into the page's corner."""
    found = re.search(r'class="toast[^>]*>.*?<p>(.*?)</p>', answer.text, re.S)
    assert found, answer.text[:2000]
    return " ".join(unescape(re.sub(r"<[^>]+>", "", found[1])).split())
