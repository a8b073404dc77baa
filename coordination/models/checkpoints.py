"""Durable state that agents keep, version by version, and packs that pin it."""

from django.db import models
from django.db.models import F, Q

from .fields import stamped, uuid_key
from .identity import Organization, Principal
from .runs import Run
from .tasks import Task


class Checkpoint(models.Model):
    """The versioned state of one agent about one subject. The row keeps the newest version's number."""

    PREFIX = "ckpt"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    principal = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    subject_id = models.CharField(max_length=200)
    kind = models.CharField(max_length=80)
    task = models.ForeignKey(
        Task, on_delete=models.PROTECT, null=True, db_index=False, related_name="checkpoints"
    )
    version = models.PositiveIntegerField()
    created_at = stamped()
    updated_at = stamped()
    expires_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-updated_at"]
        constraints = [
            # The upsert finds its row by it.
            models.UniqueConstraint(
                "organization", "principal", "subject_id", "kind", name="checkpoint_is_unique"
            ),
        ]
        indexes = [
            # Lists by task. The newest of a task's context is found by its runs.
            models.Index(
                F("task"),
                F("updated_at").desc(),
                condition=Q(task__isnull=False),
                name="checkpoints_of_a_task",
            ),
            # Lists by subject, newest first.
            models.Index(F("organization"), F("subject_id"), F("id").desc(), name="checkpoints_of_a_subject"),
            # The clean-up.
            models.Index(
                F("expires_at"), condition=Q(expires_at__isnull=False), name="checkpoints_that_expire"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.subject_id}, version {self.version}"


class CheckpointVersion(models.Model):
    """One version of a checkpoint; never changed."""

    id = uuid_key()
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.CASCADE, db_index=False, related_name="versions"
    )
    version = models.PositiveIntegerField()
    state = models.JSONField()
    # SHA-256 over the canonical JSON of the state, in hexadecimal digits.
    state_hash = models.CharField(max_length=64)
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, null=True, db_index=False, related_name="checkpoint_versions"
    )
    epoch = models.BigIntegerField(null=True)
    created_at = stamped()

    class Meta:
        ordering = ["-version"]
        constraints = [
            # Also serves "this version", and the history in order.
            models.UniqueConstraint("checkpoint", "version", name="checkpoint_versions_are_numbered"),
        ]
        indexes = [
            # What a run left: its newest checkpoint.
            models.Index(
                F("run"), F("id").desc(), condition=Q(run__isnull=False), name="checkpoint_versions_of_a_run"
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.version}"


class ContextPack(models.Model):
    """A pack that names what somebody should read, pinned as it stood when the pack was made."""

    PREFIX = "ctx"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    author = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    subject_id = models.CharField(max_length=200, blank=True)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, null=True, db_index=False, related_name="+")
    note = models.TextField(blank=True)
    created_at = stamped()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.note[:60]


class ContextItemKind(models.TextChoices):
    """What a pack can name."""

    TASK = "task"
    RUN = "run"
    CHECKPOINT = "checkpoint"
    COMMENT = "comment"


class ContextItem(models.Model):
    """One thing in a pack: its kind, its id, and for a checkpoint the version that was pinned."""

    id = uuid_key()
    pack = models.ForeignKey(ContextPack, on_delete=models.CASCADE, db_index=False, related_name="items")
    number = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=12, choices=ContextItemKind.choices)
    target_id = models.UUIDField()
    version = models.PositiveIntegerField(null=True)

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint("pack", "number", name="context_items_are_numbered"),
            models.CheckConstraint(
                condition=Q(kind="checkpoint", version__isnull=False)
                | (~Q(kind="checkpoint") & Q(version__isnull=True)),
                name="a_context_item_has_a_version_iff_it_is_a_checkpoint",
            ),
        ]
        indexes = [
            # The clean-up: which versions of checkpoints are pinned.
            models.Index(F("target_id"), F("version"), name="context_items_by_target"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.target_id}"
