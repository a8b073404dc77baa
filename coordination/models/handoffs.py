"""Handoffs: offers of a subject, and maybe of a task, to one principal."""

from django.db import models
from django.db.models import F, Q

from .checkpoints import Checkpoint, ContextPack
from .fields import stamped, uuid_key
from .identity import Organization, Principal
from .runs import Run
from .tasks import Task


class HandoffStatus(models.TextChoices):
    """The states of a handoff: one that is open, then one end."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


class Handoff(models.Model):
    """An offer. `to_address` is how the sender named the target: an id or a name."""

    PREFIX = "hoff"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    from_principal = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    to_principal = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    to_address = models.CharField(max_length=120)
    subject_id = models.CharField(max_length=200)
    task = models.ForeignKey(
        Task, on_delete=models.PROTECT, null=True, db_index=False, related_name="handoffs"
    )
    # The run that offered the task, and its epoch.
    run = models.ForeignKey(Run, on_delete=models.PROTECT, null=True, db_index=False, related_name="+")
    epoch = models.BigIntegerField(null=True)
    # The receiver's run, once it was accepted.
    accepted_run = models.ForeignKey(
        Run, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    context = models.ForeignKey(
        ContextPack, on_delete=models.PROTECT, null=True, db_index=False, related_name="handoffs"
    )
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.PROTECT, null=True, db_index=False, related_name="handoffs"
    )
    checkpoint_version = models.PositiveIntegerField(null=True)
    message = models.TextField(blank=True)
    status = models.CharField(max_length=10, choices=HandoffStatus.choices, default=HandoffStatus.PENDING)
    reason = models.TextField(blank=True)
    created_at = stamped()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=HandoffStatus.values), name="handoff_status_is_known"
            ),
            models.CheckConstraint(
                condition=Q(status="pending", ended_at__isnull=True)
                | (~Q(status="pending") & Q(ended_at__isnull=False)),
                name="handoff_has_an_end_time_iff_final",
            ),
            models.CheckConstraint(
                condition=Q(checkpoint__isnull=True, checkpoint_version__isnull=True)
                | Q(checkpoint__isnull=False, checkpoint_version__isnull=False),
                name="a_handoff_pins_its_checkpoint",
            ),
            models.CheckConstraint(
                condition=Q(accepted_run__isnull=True) | Q(status="accepted", task__isnull=False),
                name="only_an_accepted_handoff_has_a_run",
            ),
            models.UniqueConstraint(
                "task", condition=Q(status="pending", task__isnull=False), name="one_pending_handoff_per_task"
            ),
        ]
        indexes = [
            # The inbox: pending ones addressed to the caller.
            models.Index(
                F("to_principal"), F("id").desc(), condition=Q(status="pending"), name="handoff_inbox"
            ),
            # The sent box.
            models.Index(F("from_principal"), F("id").desc(), name="handoffs_sent"),
            # The board: an organization's handoffs, newest first.
            models.Index(F("organization"), F("id").desc(), name="handoffs_by_age"),
            # What led to a task's run, and who may read what is handed over.
            models.Index(
                F("task"), F("id").desc(), condition=Q(task__isnull=False), name="handoffs_of_a_task"
            ),
            models.Index(
                F("checkpoint"), condition=Q(checkpoint__isnull=False), name="handoffs_of_a_checkpoint"
            ),
            models.Index(F("context"), condition=Q(context__isnull=False), name="handoffs_of_a_context"),
            # The sweep.
            models.Index(F("expires_at"), condition=Q(status="pending"), name="handoffs_that_expire"),
        ]

    def __str__(self) -> str:
        return f"{self.subject_id} to {self.to_address}"
