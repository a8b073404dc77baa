"""A creation is repeated because its answer was lost: one object, and a secret that works."""

import hashlib
import uuid
from typing import Any

import pytest

from coordination.models import ApiKey, StoredAnswer, Webhook
from coordination.webhooks import SECRET_PREFIX

from .cast import Agent
from .clockwork import sql, uuid_of
from .locking import together
from .test_webhooks import told

URL = {"url": "http://127.0.0.2:9/events"}
KEY = {"scopes": ["tasks:read"], "label": "child"}


def key() -> dict[str, str]:
    """A fresh Idempotency-Key."""
    return {"Idempotency-Key": uuid.uuid4().hex}


def rotate(agent: Agent) -> str:
    """The path that changes a webhook's secret."""
    return f"/webhooks/{agent.post('/webhooks', URL)['webhook_id']}/rotate_secret"


# name -> (path, body, another body, the field with the secret)
CREATIONS: dict[str, tuple[Any, Any, Any, str]] = {
    "a webhook": (lambda agent: "/webhooks", URL, {**URL, "description": "other"}, "secret"),
    "a key": (lambda agent: "/keys", KEY, {**KEY, "label": "other"}, "api_key"),
    "a webhook's next secret": (rotate, {}, None, "secret"),
}


@pytest.mark.parametrize("name", CREATIONS)
def test_the_repeat_gets_the_same_object_and_secret(name: str, agent: Agent) -> None:
    path_of, body, other_body, secret = CREATIONS[name]
    path, headers = path_of(agent), key()
    before = Webhook.objects.count(), ApiKey.objects.count()
    first = agent.post(path, body, headers=headers)
    between = Webhook.objects.count(), ApiKey.objects.count()
    assert sum(between) - sum(before) == (other_body is not None)
    assert agent.post(path, body, headers=headers) == first
    assert (Webhook.objects.count(), ApiKey.objects.count()) == between
    if other_body is not None:
        agent.refused("IDEMPOTENCY_MISMATCH", path, other_body, headers=headers)
    # Without the header, or with another, it is a new request.
    assert agent.post(path, body, headers=key())[secret] != first[secret]


@pytest.mark.parametrize("name", CREATIONS)
def test_the_secret_is_stored_sealed_only(name: str, agent: Agent) -> None:
    path_of, body, _, secret = CREATIONS[name]
    headers = key()
    made = agent.post(path_of(agent), body, headers=headers)
    stored = StoredAnswer.objects.get(key_digest=hashlib.sha256(headers["Idempotency-Key"].encode()).digest())
    bare = made[secret].removeprefix(SECRET_PREFIX)
    assert stored.body is None
    assert stored.sealed_body is not None
    assert bare.encode() not in bytes(stored.sealed_body)
    for table in ("storedanswer", "apikey", "webhook", "event"):
        found = sql(f"SELECT count(*) FROM coordination_{table} t WHERE strpos(t::text, %s) > 0", bare)
        assert found == [(0,)], table


def test_the_key_that_was_lost_works_once_it_is_repeated(agent: Agent) -> None:
    headers = key()
    agent.post("/keys", KEY, headers=headers)
    again = agent.post("/keys", KEY, headers=headers)
    child = Agent(agent.principal, again["api_key"], agent.url)
    assert child.get("/principal")["key_id"] == again["key_id"]
    child.close()


def test_another_api_key_of_the_agent_does_not_get_the_secret(agent: Agent) -> None:
    headers = key()
    agent.post("/keys", KEY, headers=headers)
    sibling = Agent(agent.principal, agent.post("/keys", {"scopes": ["*"]})["api_key"], agent.url)
    sibling.refused("IDEMPOTENCY_MISMATCH", "/keys", KEY, headers=headers)
    sibling.close()


@pytest.mark.parametrize("path", ["/webhooks", "/keys"])
def test_repeats_at_the_same_instant_make_one(path: str, agent: Agent) -> None:
    headers, body = key(), URL if path == "/webhooks" else KEY
    answers = together(*[lambda: agent.send("POST", path, body, headers=headers)] * 6)
    made = [answer.json()["data"] for answer in answers if answer.status_code == 201]
    assert made
    assert all(one == made[0] for one in made)
    assert {answer.status_code for answer in answers} <= {201, 409}
    name = "webhook_id" if path == "/webhooks" else "key_id"
    model: Any = Webhook if path == "/webhooks" else ApiKey
    own = (
        {"principal": agent.principal}
        if path == "/webhooks"
        else {"principal": agent.principal, "label": "child"}
    )
    assert [row.pk for row in model.objects.filter(**own)] == [uuid_of(made[0][name])]


def test_a_rotation_that_is_repeated_keeps_the_secret_before_it(agent: Agent) -> None:
    """Twice rotated, the receiver's secret would have stopped signing at once."""
    made = agent.post("/webhooks", URL)
    path, headers = f"/webhooks/{made['webhook_id']}/rotate_secret", key()
    agent.post(path, headers=headers)
    agent.post(path, headers=headers)
    assert told(agent).count(("changed", {"changed": ["secret"]})) == 1


def test_an_idempotency_key_is_stored_as_its_digest(agent: Agent) -> None:
    """Also one that is an API key, sent as the wrong header."""
    for sent in (agent.secret, "titen_sk_" + "x" * 43, "plain-" + uuid.uuid4().hex):
        first = agent.post("/tasks", {"title": "Once"}, headers={"Idempotency-Key": sent})
        assert agent.post("/tasks", {"title": "Once"}, headers={"Idempotency-Key": sent}) == first
        rows = sql("SELECT count(*) FROM coordination_storedanswer t WHERE strpos(t::text, %s) > 0", sent)
        assert rows == [(0,)]
        assert StoredAnswer.objects.filter(key_digest=hashlib.sha256(sent.encode()).digest()).exists()
