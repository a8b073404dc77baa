"""People in front of a running server: logged in by the form, with the session and the token it gave."""

import re
from types import TracebackType
from typing import Any

import httpx

from .cast import PASSWORD, Company, Human
from .openapi import check_answer

TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Session:
    """A browser's session without the browser. `who` is a person of the cast, or an e-mail address."""

    def __init__(self, who: Human | str, url: str) -> None:
        self.email = who if isinstance(who, str) else who.user.email
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=30)
        self.log_in()

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    @property
    def token(self) -> str:
        """The CSRF token that a page loaded now would carry."""
        return self.client.cookies["csrftoken"]

    def log_in(self) -> None:
        """Fill in the login form."""
        found = TOKEN.search(self.client.get("/login").text)
        assert found, "the login page has no form"
        form = {"username": self.email, "password": PASSWORD, "csrfmiddlewaretoken": found[1]}
        answer = self.client.post("/login", data=form)
        assert answer.status_code == 302, answer.text

    def log_out(self) -> None:
        """As the form on every page does."""
        answer = self.client.post("/logout", data={"csrfmiddlewaretoken": self.token})
        assert answer.status_code == 302, answer.text

    def post(self, path: str, body: Any = None) -> httpx.Response:
        """A JSON POST to the API with the CSRF token; what comes back must be what the OpenAPI document says."""
        answer = self.client.post(path, json=body or {}, headers={"X-CSRFToken": self.token})
        check_answer("POST", path, answer.status_code, answer.content)
        return answer

    def decide(self, approval: dict[str, Any], option: Any, **more: Any) -> httpx.Response:
        """Decide over the API what the page showed."""
        body = {"option": option, "shown_digest": approval["digest"], **more}
        return self.post(f"/v1/approvals/{approval['id']}/decide", body)

    def htmx(
        self, method: str, path: str, form: Any = None, *, page: str = "/", token: str | None = None
    ) -> httpx.Response:
        """What htmx sends from `page`: a form with the token in a header, as the board asks it to."""
        headers = {
            "HX-Request": "true",
            "HX-Current-URL": f"{self.url}{page}",
            "X-CSRFToken": self.token if token is None else token,
        }
        return self.client.request(method, path, data=form, headers=headers)

    def always_allow(self, approval: dict[str, Any], **more: Any) -> httpx.Response:
        """Press the button that grants an action, and allows it for a day."""
        form = {"shown_digest": approval["digest"], "seconds": "86400"}
        return self.htmx("POST", f"/approvals/{approval['id']}/always-allow", form, **more)

    def click(self, approval: dict[str, Any], option: str, **more: Any) -> httpx.Response:
        """Press an option's button on the board."""
        form = {"option": option, "shown_digest": approval["digest"], "reason": ""}
        return self.htmx("POST", f"/approvals/{approval['id']}/decide", form, **more)


class People(dict[str, Session]):
    """Role -> somebody who has it, logged in as soon as they are needed."""

    def __init__(self, company: Company, url: str) -> None:
        super().__init__()
        self.company, self.url = company, url

    def __missing__(self, role: str) -> Session:
        self[role] = Session(self.company.human(role), self.url)
        return self[role]
