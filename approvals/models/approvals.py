"""Approvals: a question to humans with options, answered by exactly one of them; maybe about one action."""

from django.db import models
from django.db.models import F, Q

from coordination.models.fields import stamped, uuid_key
from coordination.models.identity import Organization, Principal, Role, User
from coordination.models.tasks import Task

from .policy import Kind, Risk


class ApprovalStatus(models.TextChoices):
    """The states of an approval. `consumed` and `void` follow `decided` for actions."""

    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CONSUMED = "consumed"
    VOID = "void"


DECIDED = (ApprovalStatus.DECIDED, ApprovalStatus.CONSUMED, ApprovalStatus.VOID)
CLOSED = (ApprovalStatus.CONSUMED, ApprovalStatus.VOID)


class Approval(models.Model):
    """A question to humans. Question, options and action never change after the request.

    With an `action`, a decision grants it or refuses it (`granted`), and a grant is used once, by the effect
    with the same digest, or becomes void: `closed_at`. `on_expiry` is what the agent falls back to, unless
    somebody decides in time. `verdict` is what policy said when it was asked. `round` is the task's when it
    was asked; when it was decided, once it is.
    """

    PREFIX = "appr"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    task = models.ForeignKey(
        Task, on_delete=models.PROTECT, null=True, db_index=False, related_name="approvals"
    )
    run_id = models.UUIDField(null=True)
    epoch = models.BigIntegerField(null=True)
    round = models.PositiveIntegerField(db_default=1)
    requested_by = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    question = models.TextField()
    context = models.TextField(blank=True)
    options = models.JSONField()
    digest = models.CharField(max_length=64)
    action = models.JSONField(null=True)
    action_digest = models.CharField(max_length=64, null=True)
    kind = models.CharField(max_length=12, choices=Kind.choices, blank=True)
    risk = models.CharField(max_length=8, choices=Risk.choices, default=Risk.MEDIUM)
    verdict = models.JSONField(null=True)
    on_expiry = models.CharField(max_length=200, null=True)
    valid_for_seconds = models.PositiveIntegerField(default=3600)
    required_role = models.CharField(max_length=16, choices=Role.choices, default=Role.APPROVER)
    votes_required = models.PositiveSmallIntegerField(default=1)
    status = models.CharField(max_length=12, choices=ApprovalStatus.choices, default=ApprovalStatus.PENDING)
    decision = models.CharField(max_length=200, null=True)
    granted = models.BooleanField(null=True)
    reason = models.TextField(blank=True)
    decided_by_user = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    decided_by_rule = models.UUIDField(null=True)
    created_at = stamped()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    withdrawn_by = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    withdrawal_reason = models.TextField(blank=True, db_default="")
    denial_lifted_at = models.DateTimeField(null=True)
    denial_lifted_by = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )

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
            models.CheckConstraint(
                condition=Q(action__isnull=True, action_digest__isnull=True, kind="")
                | Q(action__isnull=False, action_digest__isnull=False, kind__in=Kind.values),
                name="an_action_has_a_digest_and_a_kind",
            ),
            models.CheckConstraint(
                condition=Q(status__in=DECIDED, action_digest__isnull=False, granted__isnull=False)
                | (~(Q(status__in=DECIDED) & Q(action_digest__isnull=False)) & Q(granted__isnull=True)),
                name="a_decided_action_is_granted_or_not",
            ),
            models.CheckConstraint(
                condition=Q(status__in=CLOSED, granted=True, closed_at__isnull=False)
                | (~Q(status__in=CLOSED) & Q(closed_at__isnull=True)),
                name="only_a_grant_is_consumed_or_void",
            ),
            models.CheckConstraint(
                condition=Q(denial_lifted_at__isnull=True) | Q(granted=False), name="only_a_denial_is_lifted"
            ),
            models.CheckConstraint(
                condition=Q(withdrawn_by__isnull=True, withdrawal_reason="")
                | (Q(withdrawn_by__isnull=False, status="void") & ~Q(withdrawal_reason="")),
                name="a_withdrawn_grant_is_void_and_has_a_reason",
            ),
        ]
        indexes = [
            # The board and the agents' lists: what is open, soonest expiry last read in memory.
            models.Index(F("organization"), F("id"), condition=Q(status="pending"), name="pending_approvals"),
            models.Index(F("organization"), F("id").desc(), name="approvals_by_age"),
            # The board's list: what ended last.
            models.Index(F("organization"), F("ended_at").desc(), name="approvals_by_end"),
            # An approval's page: what was decided on the very same action. Every judgement: a denial that holds.
            models.Index(F("organization"), F("action_digest"), name="approvals_of_an_action"),
            models.Index(F("task"), F("created_at"), name="approvals_of_a_task"),
            # The limit of a principal.
            models.Index(F("requested_by"), condition=Q(status="pending"), name="pending_of_a_principal"),
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
