"""Answers kept for repeated requests."""

from django.db import models
from django.db.models import Q

from .fields import stamped, uuid_key
from .identity import Principal


class StoredAnswer(models.Model):
    """What a POST with an `Idempotency-Key` answered; kept for 24 hours.

    Of the key only its SHA-256 is stored. An answer with a secret is sealed under `TITEN_SECRET_KEYS`.
    """

    id = uuid_key()
    principal = models.ForeignKey(
        Principal, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    key_digest = models.BinaryField(max_length=32, editable=False)
    fingerprint = models.BinaryField(max_length=32)
    status = models.PositiveSmallIntegerField()
    body = models.JSONField(null=True)
    sealed_body = models.BinaryField(null=True, editable=False)
    created_at = stamped()

    class Meta:
        constraints = [
            models.UniqueConstraint("principal", "key_digest", name="one_answer_per_idempotency_key"),
            models.CheckConstraint(
                condition=Q(body__isnull=True) | Q(sealed_body__isnull=True),
                name="a_stored_answer_is_plain_or_sealed",
            ),
        ]
        # The nightly clean-up.
        indexes = [models.Index(fields=["created_at"], name="stored_answers_by_age")]

    def __str__(self) -> str:
        return bytes(self.key_digest).hex()
