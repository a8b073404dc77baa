"""What came of an attempt to deliver: delivered, to be tried again, or given up; and when a webhook is paused."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.utils.http import parse_http_date_safe

from . import webhooks
from .deliveries import PING, next_in_line
from .locks import clock
from .models import Delivery, DeliveryStatus, PauseReason, Webhook
from .outgoing import Answer
from .taking import Taken

# A wait is at most so long, and a receiver may ask for at most so much.
LONGEST_WAIT_SECONDS = 8 * 3600
LONGEST_RETRY_AFTER_SECONDS = 3600
# So many failures in a row, over more than a day, pause a webhook.
FAILURES = 50
FAILING_FOR = timedelta(days=1)
GONE = 410
BUSY = (429, 503)
# Problems that no other attempt mends, and what becomes of the delivery.
_FINAL = {"event_gone": DeliveryStatus.FAILED, "not_visible": DeliveryStatus.CANCELLED}


def record_all(ended: Iterable[tuple[Taken, Answer]]) -> None:
    """`record` each, in the order of the webhooks' ids, which is the order of their locks."""
    for taken, answer in sorted(ended, key=lambda one: one[0].webhook_id):
        record(taken, answer)


def record(taken: Taken, answer: Answer) -> Delivery | None:
    """Write down what came of an attempt. None, and nothing, when the delivery has gone on without it."""
    webhook = Webhook.objects.select_for_update(no_key=True).get(pk=taken.webhook_id)
    at = clock()
    delivery = Delivery.objects.filter(
        pk=taken.delivery_id, status=DeliveryStatus.PENDING, attempt_count=taken.attempt
    ).first()
    if delivery is None:
        return None
    delivery.taken_until = None
    delivery.response_status = answer.status
    delivery.problem = answer.problem
    delivery.duration_ms = answer.milliseconds
    if answer.good:
        delivery.status = DeliveryStatus.DELIVERED
    elif answer.problem in _FINAL:
        delivery.status = _FINAL[answer.problem]
    elif delivery.kind == PING or taken.attempt - delivery.earlier_attempts >= settings.WEBHOOK_ATTEMPTS:
        delivery.status = DeliveryStatus.FAILED
    else:
        delivery.next_attempt_at = at + wait(taken.attempt - delivery.earlier_attempts, answer, at)
    if delivery.status != DeliveryStatus.PENDING:
        delivery.ended_at = at
    delivery.save(
        update_fields=[
            "status",
            "ended_at",
            "taken_until",
            "next_attempt_at",
            "response_status",
            "problem",
            "duration_ms",
        ]
    )
    if delivery.ended_at is not None and delivery.position is not None:
        next_in_line(delivery, at)
    if answer.problem not in _FINAL:
        _judge(webhook, answer, at)
    return delivery


def wait(attempts: int, answer: Answer, at: datetime) -> timedelta:
    """How long after the `attempts`th failure the next attempt comes: at random within a window that
    grows threefold, and not before a busy receiver wants it."""
    window = min(settings.WEBHOOK_FIRST_RETRY_SECONDS * 3 ** (attempts - 1), LONGEST_WAIT_SECONDS)
    seconds = random.uniform(0, window)  # noqa: S311  (spreads load)
    if answer.status in BUSY and answer.retry_after:
        seconds = max(seconds, min(_asked(answer.retry_after, at), LONGEST_RETRY_AFTER_SECONDS))
    return timedelta(seconds=seconds)


def _asked(retry_after: str, at: datetime) -> float:
    """The seconds that `Retry-After` asks for, as a number or as a date; 0 for anything else."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    moment = parse_http_date_safe(retry_after)
    return moment - at.astimezone(UTC).timestamp() if moment is not None else 0.0


def _judge(webhook: Webhook, answer: Answer, at: datetime) -> None:
    """Count failures in a row; pause a webhook whose receiver is gone, or has failed for too long."""
    if answer.good:
        if webhook.failures_in_a_row:
            Webhook.objects.filter(pk=webhook.pk).update(failures_in_a_row=0, failing_since=None)
        return
    failures, since = webhook.failures_in_a_row + 1, webhook.failing_since or at
    Webhook.objects.filter(pk=webhook.pk).update(failures_in_a_row=failures, failing_since=since)
    if webhook.paused_at is not None or webhook.deleted_at is not None:
        return
    if answer.status == GONE:
        webhooks.stop(webhook, PauseReason.GONE, at)
    elif failures >= FAILURES and at - since >= FAILING_FOR:
        webhooks.stop(webhook, PauseReason.FAILING, at)
