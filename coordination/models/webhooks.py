"""Webhooks: who is told of what, and every delivery that is owed."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from .fields import stamped, uuid_key
from .identity import Organization, Principal


class PauseReason(models.TextChoices):
    """Why a webhook gets nothing for now."""

    NONE = ""
    ASKED = "asked"
    GONE = "gone"
    FAILING = "failing"


class Webhook(models.Model):
    """An address that gets the organization's events. `kinds` is empty for all that it may see.

    It sees what the key saw that made it, or that last said where it goes and what it gets: the key's
    principal and scopes are kept. Its secret is stored sealed by the keyring of `TITEN_SECRET_KEYS`; the
    one before signs beside it until `previous_until`.
    """

    PREFIX = "whk"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    principal = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    scopes = ArrayField(models.CharField(max_length=40), default=list)
    url = models.CharField(max_length=2000)
    kinds = ArrayField(models.CharField(max_length=60), default=list)
    description = models.CharField(max_length=200, blank=True)
    secret = models.BinaryField(editable=False)
    previous_secret = models.BinaryField(null=True, editable=False)
    previous_until = models.DateTimeField(null=True)
    failures_in_a_row = models.PositiveIntegerField(default=0)
    failing_since = models.DateTimeField(null=True)
    paused_at = models.DateTimeField(null=True)
    pause_reason = models.CharField(max_length=10, choices=PauseReason.choices, blank=True, default="")
    created_at = stamped()
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(paused_at__isnull=True, pause_reason="")
                | (Q(paused_at__isnull=False) & ~Q(pause_reason="")),
                name="webhook_has_a_reason_iff_paused",
            ),
        ]
        indexes = [
            # The numbering step: the webhooks that get an organization's events.
            models.Index(F("organization"), condition=Q(deleted_at__isnull=True), name="webhooks_that_live"),
        ]

    def __str__(self) -> str:
        return self.url


class DeliveryStatus(models.TextChoices):
    """The states of a delivery: one that is owed, then one end."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Delivery(models.Model):
    """One event that one webhook gets: written when the event gets its position. A ping has no event.
    Its id stays the same over all attempts.

    `object_key` names what the event is about: deliveries to one webhook about one object keep their order.
    """

    PREFIX = "dlv"

    id = uuid_key()
    webhook = models.ForeignKey(Webhook, on_delete=models.PROTECT, db_index=False, related_name="deliveries")
    organization = models.ForeignKey(
        Organization, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    kind = models.CharField(max_length=40)
    event_id = models.UUIDField(null=True)
    event_created_at = models.DateTimeField(null=True)
    position = models.BigIntegerField(null=True)
    object_key = models.CharField(max_length=500)
    status = models.CharField(
        max_length=10, choices=DeliveryStatus.choices, db_default=DeliveryStatus.PENDING
    )
    attempt_count = models.PositiveIntegerField(db_default=0)
    # How many of them came before it was asked for anew: those after it have a budget of their own.
    earlier_attempts = models.PositiveIntegerField(db_default=0)
    next_attempt_at = stamped()
    # Until when the attempt that is under way may take; another worker takes it over after that.
    taken_until = models.DateTimeField(null=True)
    last_attempt_at = models.DateTimeField(null=True)
    response_status = models.PositiveSmallIntegerField(null=True)
    # Why the last attempt failed: a code of ours, never the receiver's words.
    problem = models.CharField(max_length=40, blank=True, db_default="")
    duration_ms = models.PositiveIntegerField(null=True)
    created_at = stamped()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint("webhook", "position", name="one_delivery_per_webhook_and_event"),
            models.CheckConstraint(
                condition=Q(status="pending", ended_at__isnull=True)
                | (~Q(status="pending") & Q(ended_at__isnull=False)),
                name="delivery_has_an_end_time_iff_final",
            ),
            models.CheckConstraint(
                condition=Q(status="pending") | Q(taken_until__isnull=True),
                name="only_an_owed_delivery_is_under_way",
            ),
        ]
        indexes = [
            # The list of a webhook's deliveries.
            models.Index(F("webhook"), F("id").desc(), name="deliveries_of_a_webhook"),
            # What is due, the longest overdue first.
            models.Index(
                F("webhook"), F("next_attempt_at"), condition=Q(status="pending"), name="deliveries_due"
            ),
            # Whether an earlier one about the same object is still owed.
            models.Index(
                F("webhook"),
                F("object_key"),
                F("position"),
                condition=Q(status="pending"),
                name="deliveries_owed",
            ),
            # How many of a webhook are under way.
            models.Index(F("webhook"), condition=Q(taken_until__isnull=False), name="deliveries_under_way"),
            # The clean-up.
            models.Index(F("ended_at"), condition=Q(ended_at__isnull=False), name="deliveries_that_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.webhook_id}"
