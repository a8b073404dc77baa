"""A small cast: an organization, its humans and its agents, and what each of them sends."""

import itertools
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx
from django.contrib.auth.hashers import make_password

from coordination import identity
from coordination.callers import Caller
from coordination.models import Organization, Principal, Role, User
from titen.api.authentication import caller_by_digest, human

from .openapi import check_answer

PASSWORD = "correct-horse-battery"
_numbers = itertools.count(1)
_making_clients = threading.Lock()


@cache
def hashed() -> str:
    """`PASSWORD` as it is stored. Hashed once: that is meant to take long."""
    return make_password(PASSWORD)


def make_user(email: str) -> User:
    """A person who can log in with `PASSWORD`."""
    return User.objects.create(email=email, password=hashed())


@dataclass
class Agent:
    """An agent with a key, speaking HTTP to a running server."""

    principal: Principal
    secret: str
    url: str
    _client: httpx.Client | None = field(default=None, repr=False)

    @property
    def caller(self) -> Caller:
        """The agent as rules see it."""
        return caller_by_digest(identity.digest_of(self.secret))

    @property
    def client(self) -> httpx.Client:
        """One keep-alive client, made once even when threads of a test ask for it together."""
        with _making_clients:
            if self._client is None:
                self._client = httpx.Client(
                    base_url=self.url, headers={"Authorization": f"Bearer {self.secret}"}, timeout=40
                )
            return self._client

    def send(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Send one request; whatever comes back must be what the OpenAPI document says."""
        if body is not None:
            options["json"] = body
        answer = self.client.request(method, f"/v1{path}", **options)
        check_answer(method, f"/v1{path}", answer.status_code, answer.content)
        return answer

    def get(self, path: str, **options: Any) -> Any:
        """The data of a GET that must succeed."""
        answer = self.send("GET", path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        """The data of a POST that must succeed; None for 204."""
        answer = self.send("POST", path, {} if body is None else body, **options)
        assert answer.status_code in (200, 201, 204), answer.text
        return answer.json()["data"] if answer.content else None

    def refused(
        self, code: str, path: str, body: Any = None, method: str = "POST", **options: Any
    ) -> dict[str, Any]:
        """The error of a request that must be refused with this code."""
        answer = self.send(method, path, {} if body is None and method == "POST" else body, **options)
        assert answer.status_code >= 400, answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert error["code"] == code, error
        return error

    def create(self, title: str = "Some work", **more: Any) -> dict[str, Any]:
        """A new task."""
        made: dict[str, Any] = self.post("/tasks", {"title": title, **more})
        return made

    def claim(self, **wish: Any) -> Any:
        """A claim, or None when nothing is ready."""
        return self.post("/tasks/claim", wish)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


@dataclass
class Human:
    """A person with a membership."""

    user: User
    organization: Organization
    role: Role

    @property
    def caller(self) -> Caller:
        """The person as rules see them."""
        found = human(self.user, self.organization.pk)
        assert found is not None
        return found


@dataclass
class Company:
    """An organization of a test's own, so that tests need no clean-up and may run beside each other."""

    organization: Organization
    url: str
    agents: list[Agent] = field(default_factory=list)

    def agent(
        self, name: str = "", *, scopes: str = "*", capabilities: list[str] | None = None, **more: Any
    ) -> Agent:
        """A new agent with a key."""
        principal = identity.make_principal(
            self.organization, name or f"agent-{next(_numbers)}", capabilities=capabilities or [], **more
        )
        _, secret = identity.issue_key(principal, scopes=scopes.split())
        agent = Agent(principal, secret, self.url)
        self.agents.append(agent)
        return agent

    def human(self, role: Role | str = Role.ADMIN) -> Human:
        """A new person with a role."""
        user = make_user(f"{role}-{secrets.token_hex(4)}@example.org")
        identity.add_member(self.organization, user, Role(role))
        return Human(user, self.organization, Role(role))


def found_company(url: str = "") -> Company:
    """A new organization."""
    slug = f"org-{secrets.token_hex(5)}"
    return Company(identity.make_organization(slug, slug), url)


@contextmanager
def founded(url: str) -> Iterator[Company]:
    """A new organization whose agents hang up at the end."""
    company = found_company(url)
    yield company
    for agent in company.agents:
        agent.close()
