"""Effects: attempts to act on the world, recorded before they happen."""

from django.db import models
from django.db.models import F, Q

from coordination.models.fields import stamped, uuid_key
from coordination.models.identity import Organization, Principal
from coordination.models.resources import Lease, Resource
from coordination.models.runs import Run
from coordination.models.tasks import Task

from .approvals import Approval
from .policy import Kind


class EffectStatus(models.TextChoices):
    """The states of an effect. `refused` and `authorized` begin it; the others are outcomes."""

    AUTHORIZED = "authorized"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    COMPENSATED = "compensated"
    REFUSED = "refused"


OUTCOMES = (EffectStatus.SUCCEEDED, EffectStatus.FAILED, EffectStatus.UNKNOWN, EffectStatus.COMPENSATED)


class Effect(models.Model):
    """One attempt under a lease and its epoch; `task` and `run` are empty for a lease on anything else.

    `verdict` is what policy said, with the rule as it was then. What was reported about its outcome stands in
    `reports`.
    """

    PREFIX = "eff"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, db_index=False, related_name="+")
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, db_index=False, related_name="+")
    task = models.ForeignKey(
        Task, on_delete=models.PROTECT, null=True, db_index=False, related_name="effects"
    )
    run = models.ForeignKey(Run, on_delete=models.PROTECT, null=True, db_index=False, related_name="effects")
    principal = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    epoch = models.BigIntegerField()
    effect_key = models.CharField(max_length=200)
    action = models.JSONField()
    action_digest = models.CharField(max_length=64)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    verdict = models.JSONField()
    approval = models.ForeignKey(
        Approval, on_delete=models.PROTECT, null=True, db_index=False, related_name="effects"
    )
    status = models.CharField(max_length=12, choices=EffectStatus.choices)
    code = models.CharField(max_length=40, blank=True)
    created_at = stamped()
    outcome_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=EffectStatus.values), name="effect_status_is_known"
            ),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="effect_kind_is_known"),
            models.CheckConstraint(
                condition=(Q(status="refused") & ~Q(code="")) | (~Q(status="refused") & Q(code="")),
                name="effect_has_a_code_iff_refused",
            ),
            models.CheckConstraint(
                condition=Q(status__in=OUTCOMES, outcome_at__isnull=False)
                | (~Q(status__in=OUTCOMES) & Q(outcome_at__isnull=True)),
                name="effect_has_an_outcome_time_iff_it_has_one",
            ),
            # A refusal frees the key.
            models.UniqueConstraint(
                "resource", "effect_key", condition=~Q(status="refused"), name="effect_key_is_used_once"
            ),
            models.UniqueConstraint(
                "approval", condition=~Q(status="refused"), name="an_approval_is_used_once"
            ),
        ]
        indexes = [
            # The end of a run: what becomes unknown. The working context and the task page: all of a task's.
            models.Index(F("task"), F("id"), name="effects_of_a_task"),
            # Every refusal: whether the same one was kept a moment ago.
            models.Index(
                F("lease"), F("created_at"), condition=Q(status="refused"), name="refusals_under_a_lease"
            ),
            # Lists, newest first.
            models.Index(F("organization"), F("id").desc(), name="effects_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.action.get('tool')} {self.status}"


class EffectReport(models.Model):
    """One statement about the outcome of an effect, by its maker or by a human. Reports are never changed.

    `late`: the maker had lost the lease by then.
    """

    PREFIX = "rpt"

    id = uuid_key()
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, db_index=False, related_name="reports")
    reported_by = models.ForeignKey(Principal, on_delete=models.PROTECT, db_index=False, related_name="+")
    was = models.CharField(max_length=12, choices=EffectStatus.choices)
    outcome = models.CharField(max_length=12, choices=EffectStatus.choices)
    note = models.TextField(blank=True)
    late = models.BooleanField(default=False)
    created_at = stamped()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=OUTCOMES), name="a_report_states_an_outcome"),
        ]
        indexes = [
            # An effect, its card and its context: what was reported, in order.
            models.Index(F("effect"), F("id"), name="reports_of_an_effect"),
        ]

    def __str__(self) -> str:
        return f"{self.was} -> {self.outcome}"
