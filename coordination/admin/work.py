"""Tasks, runs, comments and what is kept about them."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from coordination import digests, tasks
from coordination.audit import AuditAdmin, AuditInline, OrganizationFilter
from coordination.models import (
    Blocker,
    CapabilityProfile,
    Comment,
    Role,
    Run,
    StoredAnswer,
    Task,
    TaskDependency,
)
from coordination.verbs import Verb, member

from . import forms


def cancel(request: HttpRequest, row: Task, values: dict[str, Any]) -> None:
    """As a member of the organization."""
    tasks.cancel(member(request, row.organization_id, Role.OPERATOR), row.pk, reason=values["reason"])


def reopen(request: HttpRequest, row: Task, values: dict[str, Any]) -> None:
    """As a member of the organization."""
    tasks.reopen(member(request, row.organization_id, Role.OPERATOR), row.pk)


class BlockerInline(AuditInline):
    """Why the task is or was blocked."""

    model = Blocker
    fields = ("kind", "sentence", "subject_id", "opened_at", "closed_at")
    readonly_fields = fields


class DependencyInline(AuditInline):
    """What the task waits for."""

    model = TaskDependency
    verbose_name_plural = "dependencies"
    organization_path = "task__organization_id"
    fk_name = "task"
    fields = ("depends_on", "satisfied_at", "waived_at")
    readonly_fields = fields
    related = ("depends_on",)


class RunInline(AuditInline):
    """Its attempts."""

    model = Run
    fields = ("number", "principal", "status", "progress", "status_line", "epoch", "started_at", "ended_at")
    readonly_fields = fields
    related = ("principal",)
    show_change_link = True


class CommentInline(AuditInline):
    """What was said."""

    model = Comment
    fields = ("author", "body", "blocking", "answer", "answered_by", "created_at")
    readonly_fields = fields
    related = ("author", "answered_by")


@admin.register(Task)
class TaskAdmin(AuditAdmin):
    """The work."""

    list_display = (
        "printed_id",
        "title",
        "status",
        "priority",
        "profile",
        "attempt_count",
        "organization",
        "created_at",
    )
    list_filter = ("status", OrganizationFilter)
    list_select_related = ("organization", "profile")
    search_fields = ("title",)
    inlines = (BlockerInline, DependencyInline, RunInline, CommentInline)
    verbs = (
        Verb("cancel", "Cancel", cancel, forms.ReasonForm, explanation="Its run and its approvals end too."),
        Verb(
            "reopen",
            "Reopen",
            reopen,
            explanation="New attempts: out of its attempts blocker, or back from its end.",
        ),
    )

    def digest(self, obj: Task) -> str:
        """What the board's forms carry too."""
        return digests.of_task(obj)

    def log_of(self, obj: Task) -> dict[str, Any]:
        """All that happened to it."""
        return {"task_id": obj.pk}


@admin.register(Run)
class RunAdmin(AuditAdmin):
    """Attempts."""

    list_display = (
        "printed_id",
        "task",
        "number",
        "principal",
        "status",
        "progress",
        "started_at",
        "ended_at",
    )
    list_filter = ("status", OrganizationFilter)
    list_select_related = ("task", "principal")
    search_fields = ("task__title", "principal__name", "status_line")
    id_columns = ("pk", "task_id", "lease_id", "principal_id")

    def log_of(self, obj: Run) -> dict[str, Any]:
        """What happened under it."""
        return {"task_id": obj.task_id, "run_id": obj.pk}


@admin.register(CapabilityProfile)
class CapabilityProfileAdmin(AuditAdmin):
    """Distinct sets of required capabilities."""

    list_display = ("__str__", "organization")
    list_filter = (OrganizationFilter,)
    list_select_related = ("organization",)
    search_fields = ("organization__slug",)


@admin.register(Comment)
class CommentAdmin(AuditAdmin):
    """Notes and questions."""

    list_display = ("printed_id", "__str__", "task", "author", "blocking", "answered_at", "created_at")
    list_filter = ("blocking", ("answered_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("task", "author")
    search_fields = ("body", "task__title", "author__name")
    id_columns = ("pk", "task_id", "run_id", "author_id")

    def log_of(self, obj: Comment) -> dict[str, Any]:
        """What happened to it."""
        return {"task_id": obj.task_id, "subject_id": obj.pk}


@admin.register(Blocker)
class BlockerAdmin(AuditAdmin):
    """Why tasks are or were blocked."""

    list_display = ("task", "kind", "sentence", "opened_at", "closed_at")
    list_filter = ("kind", ("closed_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("task",)
    search_fields = ("sentence", "task__title")
    id_columns = ("pk", "task_id", "subject_id")

    def log_of(self, obj: Blocker) -> dict[str, Any]:
        """What happened to the task."""
        return {"task_id": obj.task_id}


@admin.register(StoredAnswer)
class StoredAnswerAdmin(AuditAdmin):
    """That a request was answered once, not what with."""

    organization_path = "principal__organization_id"
    fields = ("principal", "key_hash", "status", "created_at")
    list_display = ("key_hash", "principal", "status", "created_at")
    list_filter = ("status", OrganizationFilter)
    list_select_related = ("principal",)
    search_fields = ("principal__name",)
    id_columns = ("pk", "principal_id")

    @admin.display(description="SHA-256 of the Idempotency-Key", ordering="key_digest")
    def key_hash(self, obj: StoredAnswer) -> str:
        """In hexadecimal."""
        return str(obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without what was answered."""
        return super().get_queryset(request).defer("body", "sealed_body", "fingerprint")

    def log_of(self, obj: StoredAnswer) -> dict[str, Any]:
        """What the principal did."""
        return {"actor_id": obj.principal_id}
