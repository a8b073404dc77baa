"""Runs: one attempt at a task by one principal under one lease."""

from django.db import models
from django.db.models import F, Q

from .fields import stamped, uuid_key
from .identity import Organization, Principal
from .resources import Lease
from .tasks import CapabilityProfile, Task


class RunStatus(models.TextChoices):
    """The states of a run: two that are open, then one end."""

    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"
    PARKED = "parked"
    RELEASED = "released"
    HANDED_OFF = "handed_off"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


OPEN_RUNS = (RunStatus.RUNNING, RunStatus.WAITING)


class Run(models.Model):
    """One attempt. Progress and status line are the last accepted ones and stay after the end."""

    PREFIX = "run"

    id = uuid_key()
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    task = models.ForeignKey(Task, on_delete=models.PROTECT, db_index=False, related_name="runs")
    profile = models.ForeignKey(
        CapabilityProfile, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    principal = models.ForeignKey(
        Principal, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="runs"
    )
    lease = models.OneToOneField(Lease, on_delete=models.PROTECT, related_name="run")
    number = models.PositiveIntegerField()
    epoch = models.BigIntegerField()
    status = models.CharField(max_length=12, choices=RunStatus.choices, db_default=RunStatus.RUNNING)
    progress = models.SmallIntegerField(db_default=0)
    status_line = models.CharField(max_length=200, blank=True, db_default="")
    pause_requested_at = models.DateTimeField(null=True)
    has_asked = models.BooleanField(db_default=False)
    error = models.TextField(blank=True, db_default="")
    started_at = stamped()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-started_at"]
        constraints = [
            models.UniqueConstraint("task", condition=Q(ended_at__isnull=True), name="one_open_run_per_task"),
            # Also serves "the runs of this task, in order".
            models.UniqueConstraint("task", "number", name="runs_are_numbered"),
            models.CheckConstraint(condition=Q(status__in=RunStatus.values), name="run_status_is_known"),
            models.CheckConstraint(
                condition=Q(status__in=OPEN_RUNS, ended_at__isnull=True)
                | (~Q(status__in=OPEN_RUNS) & Q(ended_at__isnull=False)),
                name="run_has_an_end_time_iff_final",
            ),
            models.CheckConstraint(
                condition=Q(progress__gte=0, progress__lte=100), name="progress_is_a_percentage"
            ),
        ]
        indexes = [
            # Admission: the open runs of a principal. The board: the open runs of an organization.
            models.Index(
                F("organization"),
                F("principal"),
                F("profile"),
                condition=Q(ended_at__isnull=True),
                name="open_runs",
            ),
            # Lists, newest first.
            models.Index(F("organization"), F("id").desc(), name="runs_by_age"),
        ]

    def __str__(self) -> str:
        return f"run {self.number}"
