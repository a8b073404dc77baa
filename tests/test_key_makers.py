"""A key that was made with a key ends no later than its maker, and is revoked along with it."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from coordination import identity
from coordination.locks import clock
from coordination.models import ApiKey, Event
from coordination.times import stamp
from titen.api.authentication import caller_by_digest
from titen.api.doors import transact
from titen.api.ids import public_id
from titen.errors import Refused

from .auditing import log_in, send
from .cast import Agent, Company
from .locking import wait_until_blocked
from .visitors import Visit, Visitor

SCOPES = ["keys:manage", "tasks:read"]
CLIENTS: list[Agent] = []


def with_key(agent: Agent, expires_at: Any = None) -> Agent:
    """The agent with a key that an admin made."""
    _, secret = identity.issue_key(agent.principal, scopes=SCOPES, expires_at=expires_at)
    return holder(agent, secret)


def holder(agent: Agent, secret: str) -> Agent:
    """The agent with that key."""
    CLIENTS.append(Agent(agent.principal, secret, agent.url))
    return CLIENTS[-1]


@pytest.fixture(autouse=True)
def hung_up() -> Iterator[None]:
    """No connection is left open."""
    yield
    while CLIENTS:
        CLIENTS.pop().close()


def child(maker: Agent, **more: Any) -> tuple[Agent, Any]:
    """The agent with a key that it made with its own, and what the answer said."""
    made = maker.post("/keys", {"scopes": SCOPES, **more})
    return holder(maker, made["api_key"]), made


def key_of(agent: Agent) -> ApiKey:
    """The row of the agent's key."""
    return ApiKey.objects.get(digest=identity.digest_of(agent.secret))


def works(agent: Agent) -> bool:
    """Whether the agent's key opens anything."""
    try:
        caller_by_digest(identity.digest_of(agent.secret))
    except Refused:
        return False
    return True


def log_of(agent: Agent, kind: str) -> list[Any]:
    """What the log says about the agent's key."""
    return [event.data for event in Event.objects.filter(subject_id=key_of(agent).pk, kind=kind)]


@pytest.fixture
def family(agent: Agent) -> list[Agent]:
    """A key, its child, its grandchild, and a second child."""
    maker = with_key(agent)
    first, _ = child(maker)
    grandchild, _ = child(first)
    second, _ = child(maker)
    return [maker, first, grandchild, second]


def test_a_child_ends_with_its_maker_when_no_end_is_given(agent: Agent) -> None:
    tomorrow = clock() + timedelta(days=1)
    maker = with_key(agent, tomorrow)
    first, made = child(maker)
    grandchild, _ = child(first)
    assert made["expires_at"] == stamp(tomorrow)
    assert made["made_by"] == public_id("key", key_of(maker).pk)
    assert key_of(first).expires_at == key_of(grandchild).expires_at == tomorrow
    assert key_of(grandchild).made_by == key_of(first)
    assert log_of(first, "key.created") == [{"made_by": made["made_by"], "expires_at": stamp(tomorrow)}]


@pytest.mark.parametrize("later", [timedelta(milliseconds=2), timedelta(days=3000)])
def test_a_later_end_is_refused_by_name(later: timedelta, agent: Agent) -> None:
    tomorrow = clock() + timedelta(days=1)
    maker = with_key(agent, tomorrow)
    body = {"scopes": SCOPES, "expires_at": stamp(tomorrow + later)}
    error = maker.refused("VALIDATION_ERROR", "/keys", body)
    assert list(error["details"]["fields"]) == ["expires_at"]
    assert stamp(tomorrow) in error["message"]
    # The child of a child is bound too.
    first, _ = child(maker, expires_at=stamp(tomorrow - timedelta(hours=1)))
    first.refused("VALIDATION_ERROR", "/keys", {"scopes": SCOPES, "expires_at": stamp(tomorrow)})


def test_an_earlier_end_and_an_endless_maker_bind_nothing(agent: Agent) -> None:
    tomorrow = clock() + timedelta(days=1)
    soon = stamp(tomorrow - timedelta(hours=1))
    assert child(with_key(agent, tomorrow), expires_at=soon)[1]["expires_at"] == soon
    assert child(with_key(agent), expires_at=soon)[1]["expires_at"] == soon
    assert child(with_key(agent))[1]["expires_at"] is None


def test_the_api_revokes_what_was_made_with_it(family: list[Agent]) -> None:
    maker, first, grandchild, second = family
    gone = [public_id("key", key_of(each).pk) for each in family]
    answer = maker.send("DELETE", f"/keys/{gone[0]}").json()["data"]
    assert (answer["key_id"], set(answer["also_revoked"])) == (gone[0], set(gone[1:]))
    assert [works(each) for each in family] == [False] * 4
    assert log_of(maker, "key.revoked") == [{}]
    for each in (first, grandchild, second):
        assert log_of(each, "key.revoked") == [{"revoked_with": gone[0]}]


def test_it_looks_behind_a_child_that_was_revoked_before(family: list[Agent], agent: Agent) -> None:
    maker, first, grandchild, _ = family
    own = agent.principal.organization_id
    transact(lambda: identity.revoke_key(own, key_of(first).pk))
    assert works(grandchild)
    agent.send("DELETE", f"/keys/{public_id('key', key_of(maker).pk)}")
    assert not works(grandchild)
    assert log_of(first, "key.revoked") == [{}]


def test_revoking_again_revokes_what_was_left(family: list[Agent], agent: Agent) -> None:
    maker, first, *_ = family
    key = key_of(maker)
    transact(lambda: identity.revoke_key(key.organization_id, key.pk))
    assert (works(maker), works(first)) == (False, True)
    answer = agent.send("DELETE", f"/keys/{public_id('key', key.pk)}").json()["data"]
    assert len(answer["also_revoked"]) == 3
    assert log_of(maker, "key.revoked") == [{}]


def test_the_board_offers_it(family: list[Agent], company: Company, visit: Visit) -> None:
    ada: Visitor = visit(company.human("admin"))
    maker, first, grandchild, second = family
    page = ada.open("/keys").text
    assert "and 3 keys made with it" in page
    assert ada.form(f"/keys/{public_id('key', key_of(second).pk)}/revoke").status_code == 303
    # Not ticked: only the key itself. The page offers the rest.
    assert ada.form(f"/keys/{public_id('key', key_of(maker).pk)}/revoke").status_code == 303
    assert [works(each) for each in family] == [False, True, True, False]
    assert "Revoke 2 keys made with it" in ada.open("/keys").text
    path = f"/keys/{public_id('key', key_of(maker).pk)}/revoke"
    assert ada.form(path, made_with_it="true").status_code == 303
    assert [works(each) for each in (first, grandchild)] == [False, False]
    assert "made with it" not in ada.open("/keys").text


def test_the_admin_offers_it(family: list[Agent], company: Company) -> None:
    browser = log_in(company.human("admin").user)
    maker, first, grandchild, second = family
    send(browser, ApiKey, "revoke", key_of(second))
    assert works(maker)
    send(browser, ApiKey, "revoke", key_of(maker), made_with_it="on")
    assert [works(each) for each in (maker, first, grandchild)] == [False] * 3


def test_a_key_that_a_human_makes_has_no_maker(company: Company, agent: Agent) -> None:
    admin = company.human("admin")
    key, _ = transact(lambda: identity.issue_key(agent.principal, scopes=SCOPES, maker=admin.caller))
    assert (key.made_by_id, key.created_by_id, key.expires_at) == (None, admin.caller.principal_id, None)


def test_a_key_made_while_its_maker_is_revoked_ends_with_it(agent: Agent) -> None:
    """The new key holds its maker's row; the revocation waits for it and sees it."""
    maker = with_key(agent)
    key, made = key_of(maker), threading.Event()
    caller = maker.caller

    def revoke() -> None:
        made.wait(10)
        transact(lambda: identity.revoke_key_and_made_with_it(key.organization_id, key.pk))
        connection.close()

    thread = threading.Thread(target=revoke)
    thread.start()
    with transaction.atomic():
        late, _ = identity.issue_key(agent.principal, scopes=SCOPES, maker=caller)
        made.set()
        wait_until_blocked()
    thread.join(10)
    assert not thread.is_alive()
    late.refresh_from_db()
    assert late.revoked_at is not None
    # Afterwards it makes none: the door had let it in before.
    with pytest.raises(Refused, match="UNAUTHENTICATED"):
        transact(lambda: identity.issue_key(agent.principal, scopes=SCOPES, maker=caller))
