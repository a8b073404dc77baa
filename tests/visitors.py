"""People with a browser: a session, the page's CSRF token, and what htmx sends."""

import re
from html import unescape
from typing import Any

import httpx

from .cast import PASSWORD

TOKEN = re.compile(r'X-CSRFToken": "([A-Za-z0-9]+)"|name="csrfmiddlewaretoken" value="([A-Za-z0-9]+)"')


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


def said(answer: httpx.Response) -> str:
    """The message that an answer puts into the page's corner."""
    found = re.search(r'class="toast[^>]*>.*?<p>(.*?)</p>', answer.text, re.S)
    assert found, answer.text[:2000]
    return " ".join(unescape(re.sub(r"<[^>]+>", "", found[1])).split())
