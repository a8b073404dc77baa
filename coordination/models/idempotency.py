"""Answers kept for repeated requests."""

from django.db import models

from .fields import stamped, uuid_key
from .identity import Principal


class StoredAnswer(models.Model):
    """What a POST with an `Idempotency-Key` answered; kept for 24 hours."""

    id = uuid_key()
    principal = models.ForeignKey(
        Principal, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    key = models.CharField(max_length=200)
    fingerprint = models.BinaryField(max_length=32)
    status = models.PositiveSmallIntegerField()
    body = models.JSONField(null=True)
    created_at = stamped()

    class Meta:
        constraints = [models.UniqueConstraint("principal", "key", name="one_answer_per_idempotency_key")]
        # The nightly clean-up.
        indexes = [models.Index(fields=["created_at"], name="stored_answers_by_age")]

    def __str__(self) -> str:
        return self.key
