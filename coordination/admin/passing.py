"""Handoffs and messages."""

from typing import Any

from django.contrib import admin

from coordination.audit import AuditAdmin, OrganizationFilter
from coordination.models import Handoff, Message


@admin.register(Handoff)
class HandoffAdmin(AuditAdmin):
    """Who offered what to whom, and what came of it."""

    list_display = (
        "printed_id",
        "subject_id",
        "from_principal",
        "to_principal",
        "status",
        "task",
        "created_at",
        "expires_at",
        "ended_at",
    )
    list_filter = ("status", OrganizationFilter)
    list_select_related = ("from_principal", "to_principal", "task")
    search_fields = ("subject_id", "from_principal__name", "to_principal__name")
    id_columns = (
        "pk",
        "task_id",
        "run_id",
        "accepted_run_id",
        "checkpoint_id",
        "context_id",
        "from_principal_id",
        "to_principal_id",
    )

    def log_of(self, obj: Handoff) -> dict[str, Any]:
        """What happened to it."""
        return {"subject_id": obj.pk} | ({"task_id": obj.task_id} if obj.task_id else {})


@admin.register(Message)
class MessageAdmin(AuditAdmin):
    """Who wrote what to whom."""

    list_display = ("printed_id", "__str__", "sender", "recipient", "resource", "created_at", "read_at")
    list_filter = (("read_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("sender", "recipient", "resource")
    search_fields = ("body", "sender__name", "recipient__name")
    id_columns = ("pk", "sender_id", "recipient_id", "resource_id")
