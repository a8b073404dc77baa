"""Deliveries: what is owed, in which order, what is tried again and until when."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from coordination import couriers, events, outcomes, taking, webhooks
from coordination.deliveries import drop_old
from coordination.models import Delivery, DeliveryStatus, Webhook
from coordination.outgoing import Answer
from titen.api.doors import transact

from .cast import Agent
from .clockwork import sql, uuid_of
from .locking import Work, second_connection, together, wait_until_blocked
from .processes import eventually
from .sinks import Sink, busy, deliver, deliveries, hang, hook, sink

pytestmark = pytest.mark.usefixtures("nothing_owed")


@pytest.fixture(autouse=True)
def quick(settings: Any) -> None:
    """Retries come within milliseconds."""
    settings.WEBHOOK_FIRST_RETRY_SECONDS = 0.01


@pytest.fixture
def later(settings: Any) -> None:
    """A retry is hours away."""
    settings.WEBHOOK_FIRST_RETRY_SECONDS = 8 * 3600


def until_quiet(agent: Agent, webhook: Any) -> list[Any]:
    """Deliver until the webhook is owed nothing; its deliveries."""

    def settled() -> list[Any] | None:
        deliver()
        found = deliveries(agent, webhook)
        return found if all(one["status"] != "pending" for one in found) else None

    return eventually(settled) or []


def all_due(webhook: Any) -> None:
    """Let the waits of a webhook's deliveries pass."""
    sql(
        "UPDATE coordination_delivery SET next_attempt_at = clock_timestamp(), taken_until = NULL"
        " WHERE webhook_id = %s AND status = 'pending'",
        uuid_of(webhook["webhook_id"]),
    )


def taken(webhook: Any, room: int = 200) -> list[taking.Taken]:
    """What somebody takes now for this webhook."""
    found = transact(lambda: taking.take(room))
    return [one for one in found if one.webhook_id == uuid_of(webhook["webhook_id"])]


def end(one: taking.Taken, status: int | None, **more: Any) -> Delivery | None:
    """An attempt came out so."""
    problem = "" if status == 200 else "bad_status"
    return transact(lambda: outcomes.record(one, Answer(status, problem, 5, **more)))


def test_the_body_says_what_happened_and_the_filter_what_is_sent(agent: Agent) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.completed", "lease.*"])
        task = agent.create("Never named")
        claim = agent.claim()
        run = claim["run"]["id"]
        agent.post(f"/runs/{run}/complete", {"epoch": 1, "summary": "Never told"})
        agent.post("/leases", {"resource_type": "deploy", "resource_id": "checkout"})
        assert deliver() == 2
        contents = [request.verified(made["secret"]) for request in receiver.requests]
    contents.sort(key=lambda content: int(content["data"]["cursor"]))
    assert [content["type"] for content in contents] == ["task.completed", "lease.acquired"]
    log = {event["kind"]: event for event in agent.get("/events", params={"limit": 200})["events"]}
    event = log["task.completed"]
    assert contents[0] == {
        "type": "task.completed",
        "timestamp": event["created_at"],
        "data": {
            "event": event["id"],
            "cursor": event["cursor"],
            "organization": agent.get("/principal")["organization_id"],
            "actor": agent.get("/principal")["principal_id"],
            "object": {
                "task_id": task["id"],
                "run_id": run,
                "lease_id": event["lease_id"],
                "subject_id": None,
            },
            "epoch": 1,
            "data": event["data"],
        },
    }
    assert b"Never" not in b"".join(request.body for request in receiver.requests)


def test_every_event_once_for_each_webhook_that_wants_it(agent: Agent, elsewhere: Any) -> None:
    with sink() as receiver, sink() as foreign:
        made = hook(agent, receiver)
        hook(elsewhere.agent(), foreign)
        together(*[agent.create] * 20)
        together(*[events.number] * 4)
        deliver()
        log = agent.get("/events", params={"limit": 200})["events"]
        first = next(number for number, event in enumerate(log) if event["kind"] == "webhook.created")
        seen = [request.verified(made["secret"])["data"]["event"] for request in receiver.requests]
        own = {event["id"] for event in log}
        assert set(seen) >= {event["id"] for event in log[first:]}
        assert set(seen) <= own
        assert len(seen) == len(set(seen))
        assert not own & {request.headers["webhook-id"] for request in foreign.requests}
        assert not [request for request in foreign.requests if b"task." in request.body]


def test_a_retry_has_the_same_id_and_body_and_a_fresh_time(agent: Agent) -> None:
    with sink(500, 503, 200) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        (done,) = until_quiet(agent, made)
        attempts = receiver.requests
        for request in attempts:
            assert request.verified(made["secret"])
            assert abs(int(request.headers["webhook-timestamp"]) - request.at) < 5
    assert (done["status"], done["attempt_count"], done["response_status"]) == ("delivered", 3, 200)
    assert done["problem"] is None
    assert done["ended_at"] >= done["last_attempt_at"]
    assert len({request.id for request in attempts}) == len({request.body for request in attempts}) == 1
    assert attempts[0].id == done["delivery_id"]


def test_the_time_is_signed_anew_at_each_attempt(agent: Agent, later: None) -> None:
    with sink(500) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        events.number()
        (first,) = taken(made)
        all_due(made)
        (second,) = taken(made)
    assert first.body == second.body
    assert second.at > first.at
    signed = [couriers.signed(one) for one in (first, second)]
    assert signed[0]["webhook-id"] == signed[1]["webhook-id"]
    assert signed[1]["webhook-timestamp"] == str(int(second.at.timestamp()))


def test_it_ends_after_so_many_attempts_and_says_so(agent: Agent, settings: Any) -> None:
    settings.WEBHOOK_ATTEMPTS = 3
    with sink(500) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        (failed,) = until_quiet(agent, made)
        assert len(receiver.requests) == 3
    assert (failed["status"], failed["attempt_count"]) == ("failed", 3)
    assert (failed["problem"], failed["response_status"]) == ("bad_status", 500)
    assert failed["next_attempt_at"] is None
    assert [one["delivery_id"] for one in deliveries(agent, made, status="failed")] == [failed["delivery_id"]]
    assert deliveries(agent, made, status="delivered") == []


def test_by_default_the_attempts_fill_a_day() -> None:
    from django.conf import settings as real

    windows = [min(10.0 * 3**n, outcomes.LONGEST_WAIT_SECONDS) for n in range(real.WEBHOOK_ATTEMPTS - 1)]
    # At random within each window: half of it in the mean.
    assert 22 * 3600 < sum(windows) / 2 < 27 * 3600


@pytest.mark.parametrize("attempts", [1, 2, 5, 13])
def test_a_wait_lies_at_random_within_its_window(settings: Any, attempts: int) -> None:
    settings.WEBHOOK_FIRST_RETRY_SECONDS = 10.0
    window = min(10.0 * 3 ** (attempts - 1), 8 * 3600)
    failed, now = Answer(500, "bad_status", 1), datetime.now(UTC)
    waits = [outcomes.wait(attempts, failed, now).total_seconds() for _ in range(300)]
    assert all(0 <= seconds <= window for seconds in waits)
    assert min(waits) < window * 0.1
    assert max(waits) > window * 0.9


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (503, "90", 90),
        (429, "Sun, 29 Nov 2026 12:01:30 GMT", 90),
        (503, "86400", 3600),
        (429, "9" * 5000, 3600),
        (500, "90", 0),
        (503, "-5", 0),
        (503, "soon", 0),
        (503, "Sun, 29 Nov 2026 11:00:00 GMT", 0),
    ],
)
def test_a_busy_receiver_is_given_the_time_it_asks_for(status: int, header: str, seconds: int) -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    found = outcomes.wait(1, Answer(status, "bad_status", 1, header), now).total_seconds()
    assert seconds <= found <= seconds + 0.02


def test_retry_after_arrives_from_the_wire(agent: Agent) -> None:
    with sink(busy(503, "120")) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        deliver()
        (owed,) = deliveries(agent, made)
        assert len(receiver.requests) == 1
    wait = datetime.fromisoformat(owed["next_attempt_at"]) - datetime.fromisoformat(owed["last_attempt_at"])
    assert timedelta(seconds=119) < wait < timedelta(seconds=130)


def test_one_object_keeps_its_order_over_retries_and_holds_up_no_other(agent: Agent) -> None:
    def stubborn(handler: Any) -> None:
        """Each event of the first task fails twice."""
        request = handler.server.sink.requests[-1]
        mine = handler.server.sink.by_id()[request.id]
        handler.answer(500 if first["id"].encode() in request.body and len(mine) < 3 else 200)

    with sink(stubborn) as receiver:
        made = hook(agent, receiver, kinds=["task.*"])
        first = agent.create()
        claim = agent.claim()
        agent.post(f"/runs/{claim['run']['id']}/complete", {"epoch": 1, "summary": "Done"})
        others = [agent.create()["id"] for _ in range(6)]
        until_quiet(agent, made)
        contents = [request.verified(made["secret"]) for request in receiver.requests]
    of_first = [content for content in contents if content["data"]["object"]["task_id"] == first["id"]]
    assert [content["type"] for content in of_first] == [
        kind for kind in ("task.created", "task.claimed", "task.completed") for _ in range(3)
    ]
    about = [content["data"]["object"]["task_id"] for content in contents]
    assert set(about) == {first["id"], *others}
    assert max(about.index(other) for other in others) < len(about) - 3


def test_one_that_hangs_takes_four_places_and_delays_nobody(agent: Agent, settings: Any) -> None:
    settings.WEBHOOK_TIMEOUT_SECONDS = 3.0
    with sink(hang) as stuck, sink() as fine:
        hook(agent, stuck, kinds=["task.created"])
        made = hook(agent, fine, kinds=["task.created"])
        for _ in range(20):
            agent.create()
        events.number()
        sending = threading.Thread(target=couriers.deliver)
        sending.start()
        eventually(lambda: len(fine.requests) == 20, within=2.5)
        assert len(stuck.requests) == taking.AT_ONCE
        assert {one["status"] for one in deliveries(agent, made)} <= {"delivered", "pending"}
        agent.send("DELETE", f"/webhooks/{agent.get('/webhooks')['webhooks'][1]['webhook_id']}")
        sending.join(20)
        assert not sending.is_alive()


def test_what_waits_behind_another_costs_one_look(agent: Agent, later: None) -> None:
    """A receiver that fails, and one object with a long queue: it is put off, then comes in its order."""
    queue = 3 * taking.LOOK
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["lease.acquired"])
        lease = {"resource_type": "deploy", "resource_id": "checkout"}
        for _ in range(3):
            agent.post("/leases", lease)
        events.number()
        (first,) = taken(made)
        sql(
            "INSERT INTO coordination_delivery"
            " (webhook_id, organization_id, kind, object_key, position, event_id, event_created_at)"
            " SELECT webhook_id, organization_id, kind, object_key, position + n, event_id, event_created_at"
            " FROM coordination_delivery, generate_series(1000, 999 + %s) n WHERE id = %s",
            queue,
            first.delivery_id,
        )
        end(first, 500)
        looks = 0
        while taking.due():
            assert taken(made) == []
            looks += 1
        assert looks <= queue / taking.LOOK + 1
        all_due(made)
        order: list[Any] = []
        while len(order) < 3:
            (one,) = taken(made)
            order.append(one.delivery_id)
            end(one, 200)
        found = deliveries(agent, made, status="delivered")
        assert [uuid_of(one["delivery_id"]) for one in found] == order
        assert [int(one["cursor"]) for one in found] == sorted(int(one["cursor"]) for one in found)


def test_takers_never_take_the_same_one(agent: Agent) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        for _ in range(3):
            agent.create()
        events.number()
        assert len(taken(made, room=1)) == 1
        found = [one for some in together(*[lambda: taken(made)] * 6) for one in some]
        assert len({one.delivery_id for one in found}) == len(found) == 2
        assert taken(made) == []


def test_what_a_dead_worker_took_comes_back_and_its_late_word_does_not_count(
    agent: Agent, later: None
) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        events.number()
        (first,) = taken(made)
        assert taken(made) == []
        sql(
            "UPDATE coordination_delivery SET taken_until = clock_timestamp() WHERE id = %s",
            first.delivery_id,
        )
        (second,) = taken(made)
        assert (second.delivery_id, second.attempt) == (first.delivery_id, 2)
        assert end(first, 200) is None
        assert deliveries(agent, made)[0]["status"] == "pending"
        ended = end(second, 200)
        assert ended is not None
        assert ended.status == DeliveryStatus.DELIVERED
        assert end(second, 500) is None
        assert deliveries(agent, made)[0]["status"] == "delivered"


def test_gone_pauses_and_what_is_owed_goes_on_at_resume(agent: Agent) -> None:
    with sink(410, 200) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        path = f"/webhooks/{made['webhook_id']}"
        agent.create()
        deliver()
        paused = agent.get(path)
        assert (paused["status"], paused["pause_reason"], paused["failures_in_a_row"]) == (
            "paused",
            "gone",
            1,
        )
        agent.create()
        deliver()
        assert len(receiver.requests) == 1
        assert [one["status"] for one in deliveries(agent, made)] == ["pending", "pending"]
        agent.send("PATCH", path, {"paused": False})
        deliver()
        assert {one["status"] for one in deliveries(agent, made)} == {"delivered"}
        assert agent.get(path)["failures_in_a_row"] == 0
    log = agent.get("/events", params={"kind": "webhook.paused"})["events"]
    assert [(event["subject_id"], event["data"], event["actor_id"]) for event in log] == [
        (made["webhook_id"], {"reason": "gone"}, None)
    ]


@pytest.mark.parametrize(
    ("failures", "hours", "paused"), [(49, 25, True), (48, 25, False), (49, 23, False), (200, 23, False)]
)
def test_failing_for_more_than_a_day_pauses(
    agent: Agent, later: None, failures: int, hours: int, paused: bool
) -> None:
    with sink(500) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        sql(
            "UPDATE coordination_webhook SET failures_in_a_row = %s,"
            " failing_since = clock_timestamp() - %s * interval '1 hour' WHERE id = %s",
            failures,
            hours,
            uuid_of(made["webhook_id"]),
        )
        agent.create()
        deliver()
    assert agent.get(f"/webhooks/{made['webhook_id']}")["pause_reason"] == ("failing" if paused else None)


def test_one_good_answer_ends_the_row_of_failures(agent: Agent) -> None:
    with sink(500, 500, 200) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        until_quiet(agent, made)
        row = Webhook.objects.get(pk=uuid_of(made["webhook_id"]))
        assert (row.failures_in_a_row, row.failing_since, len(receiver.requests)) == (0, None, 3)


def test_redelivery_keeps_the_id_and_has_attempts_of_its_own(agent: Agent, settings: Any) -> None:
    settings.WEBHOOK_ATTEMPTS = 2
    with sink(500, 500, 500, 200) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        (failed,) = until_quiet(agent, made)
        path = f"/webhooks/{made['webhook_id']}/deliveries/{failed['delivery_id']}/redeliver"
        assert agent.post(path)["status"] == "pending"
        (again,) = until_quiet(agent, made)
        assert (again["status"], again["attempt_count"]) == ("delivered", 4)
        assert agent.post(path)["status"] == "pending"
        (again,) = until_quiet(agent, made)
        assert again["attempt_count"] == 5
        assert len({(request.id, request.body) for request in receiver.requests}) == 1
    asked = agent.get("/events", params={"kind": "webhook.redelivered"})["events"]
    assert [event["data"] for event in asked] == [{"delivery_id": failed["delivery_id"]}] * 2


def test_one_that_is_owed_is_sent_at_once_when_asked(agent: Agent, later: None) -> None:
    with sink(500, 200) as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        deliver()
        (owed,) = deliveries(agent, made)
        agent.post(f"/webhooks/{made['webhook_id']}/deliveries/{owed['delivery_id']}/redeliver")
        deliver()
        assert len(receiver.requests) == 2


def test_what_waited_for_another_comes_as_soon_as_that_is_delivered(agent: Agent, later: None) -> None:
    with sink(500, 200) as receiver:
        made = hook(agent, receiver, kinds=["task.*"])
        task = agent.create()
        agent.post(f"/tasks/{task['id']}/cancel", {"reason": "Over"})
        deliver()
        assert deliver() == 0
        first, second = deliveries(agent, made)
        assert second["next_attempt_at"] >= first["next_attempt_at"]
        agent.post(f"/webhooks/{made['webhook_id']}/deliveries/{first['delivery_id']}/redeliver")
        deliver()
        kinds = [request.verified(made["secret"])["type"] for request in receiver.requests]
    assert kinds == ["task.created", "task.created", "task.cancelled"]


def test_one_under_way_is_not_sent_a_second_time_beside(agent: Agent, later: None) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        events.number()
        (one,) = taken(made)
        (owed,) = deliveries(agent, made)
        agent.post(f"/webhooks/{made['webhook_id']}/deliveries/{owed['delivery_id']}/redeliver")
        assert taken(made) == []
        assert end(one, 200)


def test_a_deleted_webhook_is_owed_nothing_whoever_numbers_meanwhile(agent: Agent) -> None:
    """The numbering step has found the webhook; its deletion waits, and cancels what was written."""
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        with second_connection() as numbering:
            numbering.run(
                "SELECT id FROM coordination_webhook WHERE id = %s FOR KEY SHARE", uuid_of(made["webhook_id"])
            )
            deleting = Work(
                lambda: transact(lambda: webhooks.delete(agent.caller, uuid_of(made["webhook_id"])))
            )
            wait_until_blocked(numbering)
            numbering.run(
                "INSERT INTO coordination_delivery (webhook_id, organization_id, kind, object_key, position)"
                " VALUES (%s, %s, 'task.created', 'late', 10000)",
                uuid_of(made["webhook_id"]),
                agent.principal.organization_id,
            )
            numbering.commit()
            deleting.outcome()
        deliver()
        assert receiver.requests == []
        assert {one["status"] for one in deliveries(agent, made)} <= {"cancelled"}
        assert deliveries(agent, made)


def test_without_webhooks_numbering_writes_nothing(agent: Agent) -> None:
    agent.create()
    events.number()
    organization = agent.principal.organization_id
    assert not Delivery.objects.filter(organization_id=organization).exists()


def test_the_clean_up_forgets_what_ended_long_ago_and_gives_up_what_nobody_takes(agent: Agent) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        for _ in range(2):
            agent.create()
        deliver()
        agent.send("PATCH", f"/webhooks/{made['webhook_id']}", {"paused": True})
        for _ in range(2):
            agent.create()
        deliver()
        old, new, stale, owed = deliveries(agent, made)
        sql(
            "UPDATE coordination_delivery SET next_attempt_at = clock_timestamp() - interval '31 days',"
            " ended_at = ended_at - interval '31 days' WHERE id IN (%s, %s)",
            uuid_of(old["delivery_id"]),
            uuid_of(stale["delivery_id"]),
        )
        drop_old()
        left = {one["delivery_id"]: (one["status"], one["problem"]) for one in deliveries(agent, made)}
    assert left == {
        new["delivery_id"]: ("delivered", None),
        stale["delivery_id"]: ("failed", "too_old"),
        owed["delivery_id"]: ("pending", None),
    }


def test_an_event_that_is_no_longer_kept_ends_its_delivery(agent: Agent) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        events.number()
        sql(
            "UPDATE coordination_delivery SET event_id = titen_uuid7() WHERE webhook_id = %s",
            uuid_of(made["webhook_id"]),
        )
        deliver()
        (gone,) = deliveries(agent, made)
        assert (gone["status"], gone["problem"], receiver.requests) == ("failed", "event_gone", [])
        assert agent.get(f"/webhooks/{made['webhook_id']}")["failures_in_a_row"] == 0


def test_a_secret_that_no_key_opens_is_a_failure_like_any_other(
    agent: Agent, later: None, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    with sink() as receiver:
        made = hook(agent, receiver, kinds=["task.created"])
        agent.create()
        settings.SECRET_KEYS = ["another-ring-of-more-than-32-characters"]
        deliver()
        (owed,) = deliveries(agent, made)
        assert (owed["status"], owed["problem"], receiver.requests) == ("pending", "secret_unreadable", [])


def test_the_request_that_caused_it_waits_for_nobody(agent: Agent) -> None:
    with sink(hang) as receiver:
        hook(agent, receiver)
        began = datetime.now(UTC)
        for _ in range(5):
            agent.create()
        agent.get("/events")
        assert datetime.now(UTC) - began < timedelta(seconds=2)
        assert receiver.requests == []
        assert isinstance(receiver, Sink)


def test_an_event_that_is_undone_is_delivered_to_nobody(agent: Agent) -> None:
    with sink() as receiver:
        hook(agent, receiver, kinds=["task.created"])
        with transaction.atomic():
            events.record("task.created", organization_id=agent.principal.organization_id, actor_id=None)
            transaction.set_rollback(True)
        deliver()
        assert receiver.requests == []
