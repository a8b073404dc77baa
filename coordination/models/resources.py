"""Resources and the leases on them: one mechanism for tasks, generic leases and sections."""

from django.db import models
from django.db.models import F, Q

from .fields import stamped, uuid_key
from .identity import Organization, Principal


class Resource(models.Model):
    """A thing that can be leased. The row keeps the epoch and anchors every lease on it."""

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    resource_type = models.CharField(max_length=80)
    resource_id = models.CharField(max_length=400)
    epoch = models.BigIntegerField(default=0)
    last_lease_id = models.UUIDField(null=True)
    previous_lease_id = models.UUIDField(null=True)
    created_at = stamped()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                "organization", "resource_type", "resource_id", name="resource_is_unique"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.resource_type}/{self.resource_id}"


class GrantReason(models.TextChoices):
    """Why a lease was granted."""

    CLAIM = "claim"
    REACQUIRE = "reacquire"
    AFTER_EXPIRY = "after_expiry"
    AFTER_FAILURE = "after_failure"
    TAKEOVER = "takeover"
    HANDOFF = "handoff"


class LeaseEnd(models.TextChoices):
    """How a lease ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    EXPIRED = "expired"
    REVOKED = "revoked"
    HANDED_OFF = "handed_off"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class GrantAnswer(models.TextChoices):
    """What is known of the answer that granted a lease. Empty: nothing speaks against its arrival."""

    LOST = "lost"
    REPEATED = "repeated"


class Lease(models.Model):
    """A time-bounded grant on a resource.

    Live while `ended_at` is null and `expires_at` is later than the database's clock. Nothing
    that a heartbeat changes is indexed, so that renewals stay heap-only updates.
    """

    PREFIX = "lease"

    id = uuid_key()
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, db_index=False, related_name="leases")
    principal = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="leases")
    purpose = models.CharField(max_length=400, blank=True, db_default="")
    epoch = models.BigIntegerField()
    ttl_seconds = models.PositiveIntegerField()
    granted_because = models.CharField(max_length=16, choices=GrantReason.choices)
    previous_lease_id = models.UUIDField(null=True)
    granted_at = stamped()
    renewed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    renewal_count = models.PositiveIntegerField(db_default=0)
    jeopardy_declared_at = models.DateTimeField(null=True)
    # Lost: the caller had hung up, and the lease ends within seconds unless the request is repeated.
    answer = models.CharField(max_length=8, choices=GrantAnswer.choices, blank=True, db_default="")
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=16, choices=LeaseEnd.choices, null=True)
    # Why it was revoked, in the words of who did it.
    end_note = models.TextField(blank=True, db_default="")

    class Meta:
        ordering = ["-granted_at"]
        indexes = [
            # Lists: a principal's own leases, newest first.
            models.Index(F("principal"), F("id").desc(), name="leases_of_a_principal"),
            # The board: what ended lately of an organization's. A task that is completed stays out of it.
            models.Index(
                F("organization"),
                F("ended_at").desc(),
                condition=Q(end_reason__in=["released", "expired", "revoked", "superseded"]),
                name="leases_that_ended",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "resource", condition=Q(ended_at__isnull=True), name="one_live_lease_per_resource"
            ),
            # Also serves "the leases of this resource, newest first".
            models.UniqueConstraint("resource", "epoch", name="epoch_is_unique_per_resource"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, end_reason__isnull=True)
                | Q(ended_at__isnull=False, end_reason__isnull=False),
                name="lease_has_a_reason_iff_it_ended",
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("granted_at")), name="lease_ends_after_it_began"
            ),
        ]

    def __str__(self) -> str:
        return f"epoch {self.epoch}"


class Renewal(models.Model):
    """One accepted heartbeat. Partitioned by month; folded away a week after the lease ended."""

    id = models.BigAutoField(primary_key=True)
    lease_id = models.UUIDField()
    renewed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    progress = models.SmallIntegerField(null=True)

    class Meta:
        managed = False
        db_table = "coordination_renewal"
        ordering = ["-renewed_at"]

    def __str__(self) -> str:
        return f"{self.renewed_at:%H:%M:%S}"
