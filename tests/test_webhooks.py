"""Webhooks: who makes them, what they see, their secrets, and what is said of them in the log."""

from typing import Any

import pytest
from django.urls import reverse

from coordination import events, identity
from coordination.models import Delivery, Principal, Webhook
from titen.api.doors import transact

from .auditing import log_in, send
from .cast import Agent, Company
from .clockwork import sql, uuid_of
from .locking import together
from .sinks import deliver, deliveries, hook, sink

pytestmark = pytest.mark.usefixtures("nothing_owed")

URL = {"url": "http://127.0.0.2:9/events"}


@pytest.fixture(autouse=True)
def one_attempt(settings: Any) -> None:
    """The next one is hours away."""
    settings.WEBHOOK_FIRST_RETRY_SECONDS = 8 * 3600


@pytest.fixture
def made(agent: Agent) -> Any:
    """A webhook for everything."""
    return agent.post("/webhooks", {**URL, "description": "To the pager"})


def at(webhook: Any) -> str:
    return f"/webhooks/{webhook['webhook_id']}"


def told(agent: Agent) -> list[tuple[str, Any]]:
    """What the log says of webhooks."""
    events = agent.get("/events", params={"limit": 200})["events"]
    return [(e["kind"].partition(".")[2], e["data"]) for e in events if e["kind"].startswith("webhook.")]


def test_its_secret_stands_in_the_answer_that_made_it_and_nowhere_else(agent: Agent) -> None:
    first, second = (agent.post("/webhooks", URL, headers={"Idempotency-Key": key}) for key in "12")
    assert first["secret"] != second["secret"]
    shown = agent.get("/webhooks")["webhooks"]
    assert [one["webhook_id"] for one in shown] == [second["webhook_id"], first["webhook_id"]]
    assert "secret" not in shown[0]
    assert agent.get(at(first)) == shown[1]
    bare = first["secret"].removeprefix("whsec_")
    for table in ("webhook", "storedanswer", "event", "delivery"):
        rows = sql(f"SELECT count(*) FROM coordination_{table} t WHERE strpos(t::text, %s) > 0", bare)
        assert rows == [(0,)], table
    stored = bytes(Webhook.objects.get(pk=uuid_of(first["webhook_id"])).secret)
    assert bare.encode() not in stored


def test_the_log_names_it_and_never_its_address(agent: Agent, made: Any) -> None:
    agent.send("PATCH", at(made), {"url": "http://127.0.0.2:9/other", "description": "Another"})
    agent.send("PATCH", at(made), {"description": "Another"})
    agent.send("PATCH", at(made), {"paused": True})
    agent.send("PATCH", at(made), {"paused": True})
    agent.send("PATCH", at(made), {"paused": False})
    agent.post(f"{at(made)}/rotate_secret")
    agent.send("DELETE", at(made))
    agent.send("DELETE", at(made))
    assert told(agent) == [
        ("created", {}),
        ("changed", {"changed": ["description", "url"]}),
        ("paused", {"reason": "asked"}),
        ("resumed", {}),
        ("changed", {"changed": ["secret"]}),
        ("deleted", {}),
    ]
    assert "127.0.0.2" not in str(agent.get("/events", params={"limit": 200}))


def test_pausing_and_resuming(agent: Agent, made: Any) -> None:
    paused = agent.send("PATCH", at(made), {"paused": True}).json()["data"]
    assert (paused["status"], paused["pause_reason"]) == ("paused", "asked")
    agent.refused("CONFLICT", f"{at(made)}/test")
    resumed = agent.send("PATCH", at(made), {"paused": False}).json()["data"]
    assert (resumed["status"], resumed["pause_reason"], resumed["paused_at"]) == ("active", None, None)


def test_a_deleted_one_is_history(agent: Agent, made: Any) -> None:
    ping = agent.post(f"{at(made)}/test")
    agent.send("DELETE", at(made))
    assert agent.get("/webhooks")["webhooks"] == []
    assert agent.get(at(made))["status"] == "deleted"
    (cancelled,) = [one for one in deliveries(agent, made) if one["kind"] == "webhook.ping"]
    assert (cancelled["delivery_id"], cancelled["status"]) == (ping["delivery_id"], "cancelled")
    agent.refused("CONFLICT", at(made), {"description": "x"}, method="PATCH")
    for path in ("rotate_secret", "test", f"deliveries/{ping['delivery_id']}/redeliver"):
        agent.refused("CONFLICT", f"{at(made)}/{path}")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kinds", ["task"]),
        ("kinds", ["*"]),
        ("kinds", ["task.completed."]),
        ("kinds", ["Task.*"]),
        ("kinds", "task.*"),
        ("kinds", [f"task.k{'x' * 60}"]),
        ("url", "ftp://127.0.0.2/"),
        ("url", 7),
        ("description", "x" * 201),
        ("secret", "whsec_mine"),
    ],
)
def test_what_is_not_taken(agent: Agent, made: Any, field: str, value: Any) -> None:
    error = agent.refused("VALIDATION_ERROR", "/webhooks", {**URL, field: value})
    assert list(error["details"]["fields"]) == [field]
    agent.refused("VALIDATION_ERROR", at(made), {field: value}, method="PATCH")


def test_an_organization_has_twenty_at_most_however_many_ask_at_once(company: Company, agent: Agent) -> None:
    quiet = {**URL, "kinds": ["approval.decided"]}
    for _ in range(15):
        agent.post("/webhooks", quiet)
    agents = [company.agent() for _ in range(10)]
    answers = together(*[lambda one=one: one.send("POST", "/webhooks", quiet).status_code for one in agents])
    assert sorted(answers) == [201] * 5 + [409] * 5
    agent.send("DELETE", at(agent.get("/webhooks")["webhooks"][0]))
    agent.post("/webhooks", quiet)


def test_it_sees_what_its_makers_key_saw(company: Company, agent: Agent) -> None:
    """Not what the others of the organization may see, nor who holds a lease."""
    maker = company.agent(scopes="webhooks:manage events:read leases:read comments:write")
    with sink() as receiver:
        made = hook(maker, receiver)
        agent.create()
        lease = agent.post("/leases", {"resource_type": "deploy", "resource_id": "checkout"})
        deliver()
        seen = [request.verified(made["secret"]) for request in receiver.requests]
        owed = {one["kind"].partition(".")[0] for one in deliveries(maker, made)}
    assert owed <= {"lease", "webhook"}
    found = [content for content in seen if content["type"].startswith("lease.")]
    assert [content["type"] for content in found] == ["lease.acquired"]
    assert found[0]["data"]["object"]["lease_id"] == lease["lease_id"]
    assert found[0]["data"]["actor"] is None
    assert not [content for content in seen if content["type"].startswith(("task.", "principal.", "key."))]


def test_a_key_cannot_ask_for_what_it_does_not_see(company: Company, agent: Agent, made: Any) -> None:
    weak = company.agent(scopes="webhooks:manage events:read tasks:read")
    assert (
        "approvals:read"
        in weak.refused("FORBIDDEN", "/webhooks", {**URL, "kinds": ["approval.*"]})["message"]
    )
    blind = company.agent(scopes="webhooks:manage tasks:read")
    assert "events:read" in blind.refused("FORBIDDEN", "/webhooks", URL)["message"]
    blind.refused("FORBIDDEN", at(made), URL, method="PATCH")
    # Whoever says where it goes makes it see what their own key sees, the owed included.
    agent.create()
    events.number()
    with sink() as receiver:
        changed = weak.send("PATCH", at(made), {"url": receiver.url}).json()["data"]
        assert changed["scopes"] == ["events:read", "tasks:read", "webhooks:manage"]
        deliver()
        kinds = {request.verified(made["secret"])["type"].partition(".")[0] for request in receiver.requests}
    assert kinds <= {"task", "webhook"}
    assert "task" in kinds
    statuses = {one["kind"]: (one["status"], one["problem"]) for one in deliveries(agent, made)}
    assert statuses["principal.created"] == ("cancelled", "not_visible")


def test_for_a_day_both_secrets_sign(agent: Agent) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        new = agent.post(f"{at(made)}/rotate_secret")["secret"]
        agent.create()
        deliver()
        for secret in (made["secret"], new):
            assert receiver.requests[0].verified(secret)["type"] == "task.created"
        sql(
            "UPDATE coordination_webhook SET previous_until = clock_timestamp() WHERE id = %s",
            uuid_of(made["webhook_id"]),
        )
        agent.create()
        deliver()
        assert receiver.requests[1].verified(new)
        with pytest.raises(Exception, match="No matching signature"):
            receiver.requests[1].verified(made["secret"])


def test_a_ping_arrives_and_is_not_tried_again(agent: Agent) -> None:
    with sink(200, 500) as receiver:
        made = hook(agent, receiver, kinds=["approval.decided"])
        for status, response in (("delivered", 200), ("failed", 500)):
            ping = agent.post(f"{at(made)}/test")
            assert (ping["status"], ping["event_id"]) == ("pending", None)
            deliver()
            (last,) = [one for one in deliveries(agent, made) if one["delivery_id"] == ping["delivery_id"]]
            assert (last["status"], last["response_status"]) == (status, response)
            content = receiver.requests[-1].verified(made["secret"])
            assert content["type"] == "webhook.ping"
            assert content["data"]["webhook"] == made["webhook_id"]


def test_whose_maker_is_disabled_gets_nothing(company: Company, agent: Agent) -> None:
    maker = company.agent("maker")
    with sink() as receiver:
        made = hook(maker, receiver, kinds=["task.created"])
        agent.create()
        transact(lambda: identity.disable_principal(Principal.objects.get(pk=maker.principal.pk)))
        agent.create()
        deliver()
        assert receiver.requests == []
        assert agent.get(at(made))["status"] == "stopped"
        assert len(deliveries(agent, made)) <= 1
        agent.refused("CONFLICT", f"{at(made)}/test")
        # Somebody who takes it over gets what comes.
        agent.send("PATCH", at(made), {"url": receiver.url, "kinds": ["task.cancelled"]})
        task = agent.create()
        agent.post(f"/tasks/{task['id']}/cancel", {"reason": "Over"})
        deliver()
        assert "task.cancelled" in {request.verified(made["secret"])["type"] for request in receiver.requests}


def test_an_admin_pauses_resumes_and_sends_again(company: Company, agent: Agent) -> None:
    browser = log_in(company.human("admin").user)
    with sink(410, 200) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        webhook = Webhook.objects.get(pk=uuid_of(made["webhook_id"]))
        for verb, status in (("pause", "paused"), ("resume", "active")):
            assert send(browser, Webhook, verb, webhook).status_code == 302
            assert agent.get(at(made))["status"] == status
        agent.create()
        deliver()
        assert agent.get(at(made))["pause_reason"] == "gone"
        send(browser, Webhook, "resume", webhook)
        deliver()
        (done,) = Delivery.objects.filter(webhook=webhook)
        assert send(browser, Delivery, "redeliver", done).status_code == 302
        deliver()
        assert len(receiver.requests) == 3
        page = browser.get(reverse("admin:coordination_webhook_change", args=[webhook.pk])).content.decode()
        assert receiver.url in page
        assert made["secret"] not in page
    actors = [
        event["actor_id"] for event in agent.get("/events", params={"kind": "webhook.resumed"})["events"]
    ]
    assert len(set(actors)) == 1
    assert actors[0] not in (None, agent.get("/principal")["principal_id"])
