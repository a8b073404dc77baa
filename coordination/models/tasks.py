"""Tasks, what they wait for, and what blocks them."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from .fields import stamped, uuid_key
from .identity import Organization, Principal
from .resources import Resource


class CapabilityProfile(models.Model):
    """One distinct, sorted set of required capabilities; the claim looks up tasks by it."""

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    capabilities = ArrayField(models.CharField(max_length=80), default=list)

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", "capabilities", name="capability_profile_is_unique"),
        ]

    def __str__(self) -> str:
        return ", ".join(self.capabilities) or "anyone"


class TaskStatus(models.TextChoices):
    """The states of a task."""

    TODO = "todo"
    IN_PROGRESS = "in_progress"
    BLOCKED = "blocked"
    DONE = "done"
    CANCELLED = "cancelled"


class Task(models.Model):
    """A piece of work. The counters are the guards of its moves: they stand on the locked row."""

    PREFIX = "task"

    id = uuid_key()
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, db_index=False, related_name="tasks"
    )
    resource = models.OneToOneField(Resource, on_delete=models.PROTECT, related_name="task")
    profile = models.ForeignKey(CapabilityProfile, on_delete=models.PROTECT, db_index=False, related_name="+")
    title = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    status = models.CharField(max_length=12, choices=TaskStatus.choices, default=TaskStatus.TODO)
    priority = models.SmallIntegerField(default=0)
    payload = models.JSONField(default=dict)
    secret_refs = ArrayField(models.CharField(max_length=400), default=list)
    not_before = models.DateTimeField(null=True)
    backoff_until = models.DateTimeField(null=True)
    reserved_for = models.ForeignKey(
        Principal, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    reserved_until = models.DateTimeField(null=True)
    avoided = models.ForeignKey(
        Principal, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    avoided_until = models.DateTimeField(null=True)
    lease_ttl_seconds = models.PositiveIntegerField(null=True)
    max_attempts = models.PositiveSmallIntegerField(default=3)
    attempt_count = models.PositiveIntegerField(default=0)
    run_count = models.PositiveIntegerField(default=0)
    fruitless_ends = models.PositiveSmallIntegerField(default=0)
    open_blockers = models.PositiveIntegerField(default=0)
    open_dependencies = models.PositiveIntegerField(default=0)
    open_effects = models.PositiveIntegerField(default=0)
    # Effects of the open run that have no outcome yet: what becomes unknown should it end.
    unreported_effects = models.PositiveIntegerField(db_default=0)
    # Grants that nobody has used or withdrawn yet: they end with the task, and with each round of it.
    unused_grants = models.PositiveIntegerField(db_default=0)
    # Reopening begins the next one. Decisions and answers count for the round in which they were made.
    round = models.PositiveIntegerField(db_default=1)
    dependent_count = models.PositiveIntegerField(default=0)
    last_run_end = models.CharField(max_length=16, null=True)
    last_error = models.TextField(blank=True)
    summary = models.TextField(blank=True)
    result = models.JSONField(null=True)
    evidence = models.JSONField(default=list)
    created_by = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    created_at = stamped()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(status__in=TaskStatus.values), name="task_status_is_known"),
            models.CheckConstraint(
                condition=Q(status="blocked", open_blockers__gt=0)
                | (~Q(status="blocked") & Q(open_blockers=0)),
                name="task_is_blocked_iff_it_has_open_blockers",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["done", "cancelled"], finished_at__isnull=False)
                | (~Q(status__in=["done", "cancelled"]) & Q(finished_at__isnull=True)),
                name="task_has_an_end_time_iff_final",
            ),
            models.CheckConstraint(
                condition=Q(priority__gte=-100, priority__lte=100),
                name="priority_is_between_minus_100_and_100",
            ),
            models.CheckConstraint(
                condition=~Q(status="done") | Q(open_effects=0), name="a_done_task_has_no_open_effect"
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["todo", "done", "cancelled"]) | Q(unreported_effects=0),
                name="a_task_without_a_run_has_no_unreported_effect",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["done", "cancelled"]) | Q(unused_grants=0),
                name="a_task_that_is_over_has_no_unused_grant",
            ),
            models.CheckConstraint(
                condition=Q(reserved_for__isnull=True) | Q(reserved_until__isnull=False),
                name="a_reservation_has_an_end",
            ),
        ]
        indexes = [
            # The claim: the heads of the profiles that fit, highest priority first, then oldest.
            models.Index(
                F("organization"),
                F("profile"),
                F("priority").desc(),
                F("created_at"),
                F("id"),
                condition=Q(status="todo", open_dependencies=0),
                name="ready_tasks_by_profile",
            ),
            # Lists and the board: the tasks of one state, newest first.
            models.Index(
                F("organization"), F("status"), F("created_at").desc(), F("id").desc(), name="tasks_by_status"
            ),
            # Lists without a filter, newest first.
            models.Index(F("organization"), F("id").desc(), name="tasks_by_age"),
            # The board: what ended recently.
            models.Index(
                F("organization"),
                F("finished_at").desc(),
                condition=Q(finished_at__isnull=False),
                name="recently_ended_tasks",
            ),
        ]

    def __str__(self) -> str:
        return self.title


# Up to a megabyte each: what shows none of them does not read them (`defer`).
LONG_COLUMNS = ("payload", "result", "evidence")


class TaskDependency(models.Model):
    """`task` waits for `depends_on`; fixed at creation, and only existing tasks can be named.

    A human may waive one whose task was cancelled: it is satisfied then, and stays so.
    """

    id = uuid_key()
    task = models.ForeignKey(Task, on_delete=models.PROTECT, db_index=False, related_name="dependencies")
    depends_on = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="dependents")
    satisfied_at = models.DateTimeField(null=True)
    waived_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "task dependencies"
        constraints = [
            models.UniqueConstraint("task", "depends_on", name="a_dependency_is_named_once"),
            models.CheckConstraint(
                condition=Q(waived_at__isnull=True) | Q(satisfied_at__isnull=False),
                name="a_waived_dependency_is_satisfied",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} after {self.depends_on_id}"


class BlockerKind(models.TextChoices):
    """Why a task can be blocked."""

    APPROVAL = "approval"
    QUESTION = "question"
    ATTEMPTS = "attempts"
    DEPENDENCY = "dependency"
    MANUAL = "manual"


class Blocker(models.Model):
    """One reason why a task is blocked. `subject_id` is the approval, comment or task meant."""

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, db_index=False, related_name="blockers")
    kind = models.CharField(max_length=12, choices=BlockerKind.choices)
    sentence = models.CharField(max_length=400)
    subject_id = models.UUIDField(null=True)
    opened_at = stamped()
    closed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["opened_at"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=BlockerKind.values), name="blocker_kind_is_known"),
            models.UniqueConstraint(
                "task",
                "kind",
                "subject_id",
                condition=Q(closed_at__isnull=True),
                nulls_distinct=False,
                name="one_open_blocker_per_reason",
            ),
        ]
        indexes = [models.Index(fields=["task", "opened_at"], name="blockers_of_a_task")]

    def __str__(self) -> str:
        return self.sentence
