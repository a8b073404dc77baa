"""Checkpoints with their versions, and context packs."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from coordination.audit import AuditAdmin, AuditInline, OrganizationFilter
from coordination.models import Checkpoint, CheckpointVersion, ContextItem, ContextPack


class VersionInline(AuditInline):
    """What was written, without the states: each has a page of its own."""

    model = CheckpointVersion
    organization_path = "checkpoint__organization_id"
    fields = ("version", "state_hash", "run", "epoch", "created_at")
    readonly_fields = fields
    related = ("run",)
    show_change_link = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without what they hold."""
        return super().get_queryset(request).defer("state")


class ItemInline(AuditInline):
    """What it pins."""

    model = ContextItem
    organization_path = "pack__organization_id"
    fields = ("number", "kind", "target_id", "version")
    readonly_fields = fields


@admin.register(Checkpoint)
class CheckpointAdmin(AuditAdmin):
    """What agents keep."""

    list_display = (
        "printed_id",
        "subject_id",
        "kind",
        "principal",
        "version",
        "task",
        "updated_at",
        "expires_at",
    )
    list_filter = (("expires_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("principal", "task")
    search_fields = ("subject_id", "kind", "principal__name")
    id_columns = ("pk", "principal_id", "task_id")
    inlines = (VersionInline,)


@admin.register(CheckpointVersion)
class CheckpointVersionAdmin(AuditAdmin):
    """What a checkpoint held, version by version."""

    organization_path = "checkpoint__organization_id"
    list_display = ("checkpoint", "version", "state_hash", "run", "epoch", "created_at")
    list_filter = (OrganizationFilter,)
    list_select_related = ("checkpoint", "run")
    search_fields = ("checkpoint__subject_id", "state_hash")
    id_columns = ("pk", "checkpoint_id", "run_id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """A list does not read what they hold."""
        return super().get_queryset(request).defer("state")

    def log_of(self, obj: CheckpointVersion) -> dict[str, Any]:
        """What happened to the checkpoint."""
        return {"subject_id": obj.checkpoint_id}


@admin.register(ContextPack)
class ContextPackAdmin(AuditAdmin):
    """What somebody should read."""

    list_display = ("printed_id", "subject_id", "author", "task", "created_at")
    list_filter = (OrganizationFilter,)
    list_select_related = ("author", "task")
    search_fields = ("subject_id", "note", "author__name")
    id_columns = ("pk", "author_id", "task_id")
    inlines = (ItemInline,)
