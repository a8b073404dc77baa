"""Approvals and votes, to read. Deciding is not possible here: only the board shows what is decided on."""

from typing import Any

from django.contrib import admin

from coordination.audit import AuditAdmin, AuditInline, OrganizationFilter

from .models import Approval, Vote


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
        "decision",
        "decided_by_user",
        "task",
        "created_at",
        "expires_at",
    )
    list_filter = ("status", "required_role", OrganizationFilter)
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
