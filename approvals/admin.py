"""Approvals, effects and policy, to read. The board decides and edits, where what is decided on is shown."""

from typing import Any

from django.contrib import admin

from coordination.audit import AuditAdmin, AuditInline, OrganizationFilter

from .models import Approval, Effect, EffectReport, PolicyRule, ToolEntry, Vote


class VoteInline(AuditInline):
    """Who chose what."""

    model = Vote
    organization_path = "approval__organization_id"
    fields = ("user", "option", "created_at")
    readonly_fields = fields
    related = ("user",)


@admin.register(Approval)
class ApprovalAdmin(AuditAdmin):
    """Questions to humans, and their answers."""

    list_display = (
        "printed_id",
        "__str__",
        "status",
        "risk",
        "decision",
        "granted",
        "decided_by_user",
        "task",
        "created_at",
        "expires_at",
    )
    list_filter = ("status", "kind", "risk", "required_role", OrganizationFilter)
    list_select_related = ("task", "decided_by_user")
    search_fields = ("question", "task__title")
    id_columns = ("pk", "task_id", "run_id", "requested_by_id", "decided_by_user_id")
    inlines = (VoteInline,)

    def log_of(self, obj: Approval) -> dict[str, Any]:
        """What happened to it."""
        return {"subject_id": obj.pk} | ({"task_id": obj.task_id} if obj.task_id else {})


@admin.register(Vote)
class VoteAdmin(AuditAdmin):
    """One human's choice."""

    organization_path = "approval__organization_id"
    list_display = ("approval", "user", "option", "created_at")
    list_filter = (OrganizationFilter,)
    list_select_related = ("approval", "user")
    search_fields = ("option", "user__email", "approval__question")
    id_columns = ("pk", "approval_id", "user_id")

    def log_of(self, obj: Vote) -> dict[str, Any]:
        """What happened to the approval."""
        return {"subject_id": obj.approval_id}


class EffectReportInline(AuditInline):
    """What was reported about the outcome, in order."""

    model = EffectReport
    organization_path = "effect__organization_id"
    fields = ("created_at", "reported_by", "was", "outcome", "late", "note")
    readonly_fields = fields
    related = ("reported_by",)


@admin.register(Effect)
class EffectAdmin(AuditAdmin):
    """Attempts to act on the world, and what came of them."""

    list_display = (
        "printed_id",
        "__str__",
        "kind",
        "status",
        "code",
        "principal",
        "task",
        "epoch",
        "created_at",
        "outcome_at",
    )
    list_filter = ("status", "kind", OrganizationFilter)
    list_select_related = ("principal", "task")
    search_fields = ("effect_key", "action_digest", "task__title", "principal__name")
    id_columns = ("pk", "task_id", "run_id", "lease_id", "principal_id", "approval_id")
    inlines = (EffectReportInline,)

    def log_of(self, obj: Effect) -> dict[str, Any]:
        """What happened to it."""
        return {"subject_id": obj.pk} | ({"task_id": obj.task_id} if obj.task_id else {})


@admin.register(EffectReport)
class EffectReportAdmin(AuditAdmin):
    """Statements about the outcomes of effects."""

    organization_path = "effect__organization_id"
    list_display = ("printed_id", "effect", "was", "outcome", "late", "reported_by", "created_at")
    list_filter = ("outcome", "late", OrganizationFilter)
    list_select_related = ("effect", "reported_by")
    search_fields = ("note", "effect__effect_key", "reported_by__name")
    id_columns = ("pk", "effect_id", "reported_by_id")

    def log_of(self, obj: EffectReport) -> dict[str, Any]:
        """What happened to the effect."""
        return {"subject_id": obj.effect_id}


@admin.register(PolicyRule)
class PolicyRuleAdmin(AuditAdmin):
    """Rules, those that have ended too."""

    list_display = (
        "printed_id",
        "rank",
        "decision",
        "tool",
        "server",
        "kind",
        "agent",
        "required_role",
        "made_by",
        "created_at",
        "expires_at",
        "ended_at",
    )
    list_filter = ("decision", ("ended_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("agent", "made_by")
    search_fields = ("tool", "server", "note", "made_by__email")
    id_columns = ("pk", "agent_id", "made_from_id", "made_by_id")


@admin.register(ToolEntry)
class ToolEntryAdmin(AuditAdmin):
    """The tool list, with lines that have ended."""

    list_display = ("printed_id", "rank", "tool", "server", "kind", "created_at", "ended_at")
    list_filter = ("kind", ("ended_at", admin.EmptyFieldListFilter), OrganizationFilter)
    search_fields = ("tool", "server")
