"""What webhooks are owed: written when an event gets its position, put off, made due, cancelled, forgotten.

Nothing that is due lives in the broker: a delivery is a row with its time.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db.models import F

from titen.errors import Refused, not_found

from .callers import EVERYTHING
from .database import Row, fetch, fetch_all
from .models import Delivery, DeliveryStatus, Webhook
from .visibility import Sight

PING = "webhook.ping"
# So long the clean-up leaves what has ended, and what nobody takes because the webhook stays paused.
KEPT_DAYS = 30


def sight_of(webhook: Row) -> Sight:
    """What a webhook may see of the log."""
    return Sight(
        webhook["organization_id"],
        webhook["principal_id"],
        frozenset(webhook["scopes"]),
        everything=EVERYTHING in webhook["scopes"],
    )


def wants(kinds: Collection[str], kind: str) -> bool:
    """True when a filter lets a kind of event through; an empty one lets all."""
    return not kinds or kind in kinds or f"{kind.partition('.')[0]}.*" in kinds


# Shared, so that whoever deletes one waits, and cancels what is written here.
_WEBHOOKS = """
SELECT w.id, w.organization_id, w.principal_id, w.scopes, w.kinds
FROM coordination_webhook w JOIN coordination_principal p ON p.id = w.principal_id
WHERE w.organization_id = ANY (%(organizations)s::uuid[]) AND w.deleted_at IS NULL AND p.disabled_at IS NULL
ORDER BY w.id FOR KEY SHARE OF w"""

_OWE = """
INSERT INTO coordination_delivery
    (webhook_id, organization_id, kind, event_id, event_created_at, position, object_key)
SELECT w.id, e.organization_id, e.kind, e.event_id, e.at, e.position, e.object_key
FROM unnest(%(webhooks)s::uuid[], %(of)s::uuid[], %(wanted)s::varchar[]) w (id, organization_id, kind)
JOIN unnest(%(organizations)s::uuid[], %(kinds)s::varchar[], %(events)s::uuid[], %(times)s::timestamptz[],
    %(positions)s::bigint[], %(keys)s::varchar[]) e (organization_id, kind, event_id, at, position, object_key)
    ON e.organization_id = w.organization_id AND e.kind = w.kind
ORDER BY e.position
RETURNING 1 AS one"""


def owe(events: list[Row], positions: list[int]) -> int:
    """Write what the webhooks of the events' organizations get of them; how many deliveries.

    Called by the numbering step, with the positions that it has just given. Without webhooks it is one look.
    """
    webhooks = fetch_all(_WEBHOOKS, {"organizations": list({event["organization_id"] for event in events})})
    kinds = {(event["organization_id"], event["kind"]) for event in events} if webhooks else ()
    wanted = [
        (webhook["id"], organization_id, kind)
        for webhook in webhooks
        for organization_id, kind in kinds
        if organization_id == webhook["organization_id"]
        and wants(webhook["kinds"], kind)
        and sight_of(webhook).sees(kind)
    ]
    if not wanted:
        return 0
    return len(
        fetch_all(
            _OWE,
            {
                "webhooks": [webhook for webhook, _, _ in wanted],
                "of": [organization for _, organization, _ in wanted],
                "wanted": [kind for _, _, kind in wanted],
                "organizations": [event["organization_id"] for event in events],
                "kinds": [event["kind"] for event in events],
                "events": [event["event_id"] for event in events],
                "times": [event["event_created_at"] for event in events],
                "positions": positions,
                "keys": [object_key(event) for event in events],
            },
        )
    )


def object_key(event: Row) -> str:
    """What an event is about: its task, else its resource, its subject, or its lease."""
    data = event["data"]
    if event["task_id"]:
        return f"task {event['task_id'].hex}"
    if "resource_type" in data and "resource_id" in data:
        return f"resource {data['resource_type']} {data['resource_id']}"[:500]
    about = event["subject_id"] or event["lease_id"]
    return f"subject {about.hex}" if about else "organization"


def make_due(webhook_id: UUID, at: datetime) -> None:
    """What a webhook is owed is due now. The caller has locked the webhook."""
    Delivery.objects.filter(
        webhook_id=webhook_id, status=DeliveryStatus.PENDING, next_attempt_at__gt=at
    ).update(next_attempt_at=at)


def next_in_line(ended: Delivery, at: datetime) -> None:
    """What waited for a delivery that has ended is due now. The caller has locked the webhook."""
    first = Delivery.objects.filter(
        webhook_id=ended.webhook_id,
        object_key=ended.object_key,
        status=DeliveryStatus.PENDING,
        position__gt=ended.position,
    ).order_by("position")
    Delivery.objects.filter(pk__in=first.values("pk")[:1], next_attempt_at__gt=at).update(next_attempt_at=at)


def cancel_all(webhook_id: UUID, at: datetime) -> None:
    """A webhook is owed nothing any more. The caller has locked the webhook."""
    Delivery.objects.filter(webhook_id=webhook_id, status=DeliveryStatus.PENDING).update(
        status=DeliveryStatus.CANCELLED, ended_at=at, taken_until=None
    )


def owe_ping(webhook: Webhook) -> Delivery:
    """A delivery without an event; it waits for no other."""
    made = Delivery.objects.create(
        webhook=webhook, organization_id=webhook.organization_id, kind=PING, object_key="ping"
    )
    return Delivery.objects.get(pk=made.pk)


def owe_again(webhook_id: UUID, delivery_id: UUID, at: datetime) -> Delivery:
    """A delivery is due now, with a new budget of attempts. `CONFLICT` for a cancelled one.

    The caller has locked the webhook. One that is under way is left alone.
    """
    found = Delivery.objects.filter(pk=delivery_id, webhook_id=webhook_id)
    count = (
        found.exclude(status=DeliveryStatus.CANCELLED)
        .exclude(taken_until__gt=at)
        .update(
            status=DeliveryStatus.PENDING,
            ended_at=None,
            taken_until=None,
            next_attempt_at=at,
            earlier_attempts=F("attempt_count"),
        )
    )
    delivery = found.first()
    if delivery is None:
        raise not_found()
    if not count and delivery.status == DeliveryStatus.CANCELLED:
        raise Refused("CONFLICT", object="delivery", state=delivery.status)
    return delivery


_DROP = f"""WITH gone AS (
    DELETE FROM coordination_delivery WHERE ended_at < clock_timestamp() - interval '{KEPT_DAYS} days' RETURNING 1
), given_up AS (
    UPDATE coordination_delivery SET status = 'failed', ended_at = clock_timestamp(), taken_until = NULL,
        problem = 'too_old'
    WHERE status = 'pending' AND next_attempt_at < clock_timestamp() - interval '{KEPT_DAYS} days' RETURNING 1
)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM given_up) AS count"""


def drop_old() -> int:
    """Forget what ended 30 days ago, and give up what has been owed for so long; how many."""
    row = fetch(_DROP, {})
    return row["count"] if row else 0
