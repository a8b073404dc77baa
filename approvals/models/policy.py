"""Policy: what a tool does, and what may be done with it. An organization's own, edited on the board."""

from django.db import models
from django.db.models import F, Q

from coordination.models.fields import stamped, uuid_key
from coordination.models.identity import Organization, Principal, Role, User

RANK_LIMIT = 1000
PATTERN_LENGTH = 200


class Kind(models.TextChoices):
    """What an action does to the world, the strictest first."""

    DESTRUCTIVE = "destructive"
    OUTWARD = "outward"
    OTHER = "other"

    @property
    def holds_up(self) -> bool:
        """True where a task cannot be completed before the outcome is known."""
        return self is not Kind.OTHER


class Risk(models.TextChoices):
    """How bad it is if the answer is wrong, the least first."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Decision(models.TextChoices):
    """What a rule decides, in the order in which rules of one rank are asked."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


def _rank() -> "models.SmallIntegerField[int, int]":
    return models.SmallIntegerField(default=0)


def _pattern() -> "models.CharField[str, str]":
    return models.CharField(max_length=PATTERN_LENGTH, default="*")


def on_server(pattern: str) -> str:
    """A server's pattern as the end of a sentence. Empty: actions that name no server."""
    return {"*": "", "": " without a server"}.get(pattern, f" on {pattern}")


class ToolEntry(models.Model):
    """A line of the tool list: what the tools that match do. The highest rank decides, then the strictest."""

    PREFIX = "tool"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    rank = _rank()
    tool = _pattern()
    server = _pattern()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    created_at = stamped()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "tool entries"
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="tool_kind_is_known"),
            # Its index also serves every judgement: what holds now.
            models.UniqueConstraint(
                "organization",
                "rank",
                "tool",
                "server",
                condition=Q(ended_at__isnull=True),
                name="a_tool_is_listed_once_per_rank",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool}{on_server(self.server)}: {self.kind}"


class PolicyRule(models.Model):
    """What may be done with the actions that match. Empty: any. The highest rank that matches decides.

    `expires_in_seconds`, `required_role` and `risk` are what an `ask` sets for the approval; `expires_at`
    is the end of the rule itself.
    """

    PREFIX = "rule"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, db_index=False, related_name="+")
    rank = _rank()
    tool = _pattern()
    server = _pattern()
    kind = models.CharField(max_length=12, choices=Kind.choices, blank=True)
    agent = models.ForeignKey(
        Principal, on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    capability = models.CharField(max_length=80, blank=True)
    decision = models.CharField(max_length=8, choices=Decision.choices)
    required_role = models.CharField(max_length=16, choices=Role.choices, default=Role.APPROVER)
    risk = models.CharField(max_length=8, choices=Risk.choices, blank=True)
    expires_in_seconds = models.PositiveIntegerField(null=True)
    note = models.CharField(max_length=400, blank=True)
    made_from = models.ForeignKey(
        "approvals.Approval", on_delete=models.PROTECT, null=True, db_index=False, related_name="rules_made"
    )
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, db_index=False, related_name="+")
    created_at = stamped()
    expires_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(decision__in=Decision.values), name="rule_decision_is_known"),
            models.CheckConstraint(
                condition=Q(kind__in=[*Kind.values, ""]), name="rule_kind_is_known_or_any"
            ),
            models.CheckConstraint(
                condition=Q(required_role__in=[Role.APPROVER, Role.ADMIN]), name="rule_role_can_decide"
            ),
        ]
        indexes = [
            # Every judgement: what holds now.
            models.Index(F("organization"), condition=Q(ended_at__isnull=True), name="rules_that_hold"),
        ]

    def __str__(self) -> str:
        return f"{self.decision} {self.tool}{on_server(self.server)}"
