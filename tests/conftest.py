"""What tests start from. Fixtures are named for a state or for somebody of the cast."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from .cast import Agent, Company, Human, found_company
from .invariants import check_invariants
from .servers import Server, run_web
from .stack import Stack


@pytest.fixture(scope="session", autouse=True)
def database(django_db_blocker: Any) -> Iterator[None]:
    """The migrated database. Every test makes an organization of its own, so nothing is rolled back."""
    django_db_blocker.unblock()
    call_command("migrate", verbosity=0)
    yield
    connections.close_all()


@pytest.fixture(autouse=True)
def promises_hold() -> Iterator[None]:
    """After each test, whatever it did: INV1 to INV8."""
    yield
    check_invariants()


@pytest.fixture(scope="session")
def static_files(database: None) -> None:
    """What pages need."""
    call_command("collectstatic", "--noinput", "--ignore", "redoc", verbosity=0)


@pytest.fixture(scope="session")
def web(static_files: None) -> Iterator[Server]:
    """Four web processes on one port; nothing they log may be a fault of theirs."""
    with run_web() as server:
        yield server
        assert not server.trouble()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything that `make up` starts, from a state folder of its own; tests may kill its parts."""
    folder = tmp_path_factory.mktemp("stack")
    with Stack(folder / "var") as running:
        yield running
        assert running.trouble() == []


@pytest.fixture
def company(web: Server) -> Iterator[Company]:
    """An organization."""
    company = found_company(web.url)
    yield company
    for agent in company.agents:
        agent.close()


@pytest.fixture
def agent(company: Company) -> Agent:
    """An agent that may do everything a key can."""
    return company.agent("ada")


@pytest.fixture
def other(company: Company) -> Agent:
    """A second agent of the same organization."""
    return company.agent("bert")


@pytest.fixture
def admin(company: Company) -> Human:
    """A human with every role."""
    return company.human("admin")


@pytest.fixture
def approver(company: Company) -> Human:
    """A human who decides."""
    return company.human("approver")


@pytest.fixture
def claimed(agent: Agent) -> Any:
    """A claim that `agent` holds."""
    agent.create("Claimed work")
    return agent.claim()


@pytest.fixture
def ask(agent: Agent) -> Callable[..., Any]:
    """Have `agent` request an approval under a claim."""

    def request(claim: Any, **more: Any) -> Any:
        return agent.post(
            "/approvals",
            {
                "run_id": claim["run"]["id"],
                "epoch": claim["lease"]["epoch"],
                "question": "Roll checkout-service back to build 41?",
                "options": ["Approve", "Deny"],
                **more,
            },
        )

    return request


@pytest.fixture
def awaiting_approval(claimed: Any, ask: Callable[..., Any]) -> Any:
    """A pending approval of `claimed`."""
    return ask(claimed)
