"""What tests start from. Fixtures are named for a state or for somebody of the cast."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from coordination import signing
from coordination.models import Role, SigningKey

from .acting import request
from .cast import Agent, Company, Human, founded
from .invariants import Watch, broken
from .keeping import keep
from .servers import Server, run_web
from .sessions import People
from .sinks import forget_all
from .stack import Stack
from .visitors import Visit, Visitor


@pytest.fixture(scope="session", autouse=True)
def database(django_db_blocker: Any) -> Iterator[None]:
    """The migrated database. Every test makes an organization of its own, so nothing is rolled back."""
    django_db_blocker.unblock()
    call_command("migrate", verbosity=0)
    yield
    connections.close_all()


@pytest.fixture(scope="session")
def watch(database: None) -> Iterator[Watch]:
    """Looks after the promises; when all tests are over, over the whole database."""
    yield Watch()
    assert broken() == {}


@pytest.fixture(autouse=True)
def promises_hold(watch: Watch) -> Iterator[None]:
    """After each test, whatever it did: INV1 to INV8."""
    yield
    watch.check()


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
    with founded(web.url) as company:
        yield company


@pytest.fixture
def elsewhere(web: Server) -> Iterator[Company]:
    """Another organization."""
    with founded(web.url) as company:
        yield company


@pytest.fixture
def nothing_owed(database: None) -> None:
    """No webhook of another test has anything due."""
    forget_all()


@pytest.fixture
def agent(company: Company) -> Agent:
    """An agent that may do everything a key can."""
    return company.agent("ada")


@pytest.fixture
def other(company: Company) -> Agent:
    """A second agent of the same organization."""
    return company.agent("bert")


@pytest.fixture
def third(company: Company) -> Agent:
    """A third one, who is no party to what the two do."""
    return company.agent("carl")


@pytest.fixture
def admin(company: Company) -> Human:
    """A human with every role."""
    return company.human("admin")


@pytest.fixture
def approver(company: Company) -> Human:
    """A human who decides."""
    return company.human("approver")


@pytest.fixture
def visit(web: Server) -> Iterator[Visit]:
    """Opens browsers, logged in as somebody or as nobody."""
    visitors: list[Visitor] = []

    def visit(human: Human | None = None) -> Visitor:
        visitors.append(Visitor(web.url))
        if human is not None:
            assert visitors[-1].log_in(human.user.email).status_code == 302
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.client.close()


@pytest.fixture
def otto(visit: Visit, company: Company) -> Visitor:
    """The browser of an operator."""
    return visit(company.human(Role.OPERATOR))


@pytest.fixture
def vera(visit: Visit, company: Company) -> Visitor:
    """The browser of a viewer."""
    return visit(company.human(Role.VIEWER))


@pytest.fixture
def people(company: Company, web: Server) -> Iterator[People]:
    """Somebody of every role, logged in."""
    people = People(company, web.url)
    yield people
    for session in people.values():
        session.client.close()


@pytest.fixture
def decide(agent: Agent, people: People) -> Callable[..., Any]:
    """Have an approval of an action requested under a claim, and decided."""

    def decided(claim: Any, action: Any, option: str = "approve", **more: Any) -> Any:
        asked = agent.post("/approvals", request(claim, action))
        answer = people["approver"].decide(asked, option, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    return decided


@pytest.fixture
def claimed(agent: Agent) -> Any:
    """A claim that `agent` holds."""
    agent.create("Claimed work")
    return agent.claim()


@pytest.fixture
def kept(agent: Agent) -> Any:
    """A checkpoint of `agent` in its first version."""
    return keep(agent, {"step": 1})


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


@pytest.fixture
def own_keys() -> Iterator[None]:
    """Signing keys that a test may change: they are put back, since other processes go on signing."""
    kept = [SigningKey(**row) for row in SigningKey.objects.values()]
    yield
    SigningKey.objects.all().delete()
    SigningKey.objects.bulk_create(kept)
    signing.forget()
