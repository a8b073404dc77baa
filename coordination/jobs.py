"""Celery jobs. Each writes down what is already true; losing one, or running it twice, changes nothing."""

from celery import shared_task
from django.db import connection

from titen.postgres.limits import unhurried

from . import checkpoints, deliveries, events, handoffs, leasing, sweeping, taking
from .couriers import courier


@shared_task(name="coordination.jobs.sweep")
def sweep() -> int:
    """End the leases that have run out, and the runs under them; how many."""
    return sweeping.sweep() + leasing.sweep()


@shared_task(name="coordination.jobs.expire_handoffs")
def expire_handoffs() -> int:
    """End the handoffs whose time is over; how many."""
    return handoffs.expire_due()


@shared_task(name="coordination.jobs.number_events")
def number_events() -> int:
    """Give committed events their positions, when no reader did; how many."""
    return events.number()


@shared_task(name="coordination.jobs.deliver")
def deliver() -> int:
    """Have the courier send what webhooks are owed; how many of them. Numbers first, so that nothing waits for it."""
    events.number()
    due = taking.due()
    if due:
        courier.wake()
    return due


@shared_task(name="coordination.jobs.clean_up")
def clean_up() -> None:
    """Forget stored answers after a day, renewals a week after their lease ended, old checkpoints and deliveries."""
    with unhurried():
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM coordination_storedanswer WHERE created_at < clock_timestamp() - interval '24 hours'"
            )
            cursor.execute(
                "DELETE FROM coordination_renewal n USING coordination_lease l WHERE l.id = n.lease_id"
                " AND l.ended_at < clock_timestamp() - interval '7 days'"
            )
        checkpoints.drop_old()
        deliveries.drop_old()
