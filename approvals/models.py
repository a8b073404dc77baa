"""Approvals: a question to humans with options, answered by exactly one of them."""

from django.db import models
from django.db.models import F, Q

from coordination.models.fields import stamped, uuid_key
from coordination.models.identity import Organization, Principal, Role, User
from coordination.models.tasks import Task


class ApprovalStatus(models.TextChoices):
    """The states of an approval. `consumed` and `void` follow `decided` for actions."""

    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CONSUMED = "consumed"
    VOID = "void"


DECIDED = (ApprovalStatus.DECIDED, ApprovalStatus.CONSUMED, ApprovalStatus.VOID)


class Approval(models.Model):
    """A question to humans. Question and options never change after the request."""

    PREFIX = "appr"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    task = models.ForeignKey(
        Task, on_delete=models.PROTECT, null=True, db_index=False, related_name="approvals"
    )
    run_id = models.UUIDField(null=True)
    epoch = models.BigIntegerField(null=True)
    requested_by = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    question = models.TextField()
    context = models.TextField(blank=True)
    options = models.JSONField()
    digest = models.CharField(max_length=64)
    required_role = models.CharField(max_length=16, choices=Role.choices, default=Role.APPROVER)
    votes_required = models.PositiveSmallIntegerField(default=1)
    status = models.CharField(max_length=12, choices=ApprovalStatus.choices, default=ApprovalStatus.PENDING)
    decision = models.CharField(max_length=200, null=True)
    reason = models.TextField(blank=True)
    decided_by_user = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    decided_by_rule = models.UUIDField(null=True)
    created_at = stamped()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=ApprovalStatus.values), name="approval_status_is_known"
            ),
            models.CheckConstraint(
                condition=Q(status="pending", ended_at__isnull=True)
                | (~Q(status="pending") & Q(ended_at__isnull=False)),
                name="approval_has_an_end_time_iff_final",
            ),
            models.CheckConstraint(
                condition=(
                    Q(status__in=DECIDED, decision__isnull=False)
                    & (
                        Q(decided_by_user__isnull=False, decided_by_rule__isnull=True)
                        | Q(decided_by_user__isnull=True, decided_by_rule__isnull=False)
                    )
                )
                | (
                    ~Q(status__in=DECIDED)
                    & Q(decision__isnull=True, decided_by_user__isnull=True, decided_by_rule__isnull=True)
                ),
                name="approval_has_one_decider_iff_decided",
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="approval_expires_after_its_request"
            ),
        ]
        indexes = [
            # The board and the agents' lists: what is open, soonest expiry last read in memory.
            models.Index(F("organization"), F("id"), condition=Q(status="pending"), name="pending_approvals"),
            models.Index(F("organization"), F("id").desc(), name="approvals_by_age"),
            models.Index(F("task"), F("created_at"), name="approvals_of_a_task"),
        ]

    def __str__(self) -> str:
        return self.question[:60]


class Vote(models.Model):
    """One human's choice where more than one is required."""

    id = uuid_key()
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, db_index=False, related_name="votes")
    user = models.ForeignKey(User, on_delete=models.PROTECT, db_index=False, related_name="+")
    option = models.CharField(max_length=200)
    created_at = stamped()

    class Meta:
        constraints = [models.UniqueConstraint("approval", "user", name="one_vote_per_user")]

    def __str__(self) -> str:
        return self.option
