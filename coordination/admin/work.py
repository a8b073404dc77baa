"""Resources, leases, tasks, runs, comments and what is kept about them."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join

from coordination import tasks
from coordination.audit import AuditAdmin, AuditInline, OrganizationFilter, link_to
from coordination.models import (
    Blocker,
    CapabilityProfile,
    Comment,
    Lease,
    Renewal,
    Resource,
    Role,
    Run,
    StoredAnswer,
    Task,
    TaskDependency,
)
from coordination.verbs import Verb, member

from . import forms

RENEWALS_SHOWN = 100


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
    fields = ("depends_on", "satisfied_at")
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


@admin.register(Resource)
class ResourceAdmin(AuditAdmin):
    """What can be leased, with its epoch."""

    list_display = ("resource_type", "resource_id", "epoch", "organization", "created_at")
    list_filter = (OrganizationFilter,)
    list_select_related = ("organization",)
    search_fields = ("resource_type", "resource_id")
    id_columns = ("pk", "last_lease_id", "previous_lease_id")


@admin.register(Lease)
class LeaseAdmin(AuditAdmin):
    """Grants, with their latest renewals."""

    list_display = (
        "printed_id",
        "resource",
        "principal",
        "epoch",
        "granted_because",
        "granted_at",
        "expires_at",
        "end_reason",
    )
    list_filter = ("granted_because", "end_reason", OrganizationFilter)
    list_select_related = ("resource", "principal")
    search_fields = ("resource__resource_id", "principal__name")
    id_columns = ("pk", "resource_id", "principal_id", "previous_lease_id")
    readonly_fields = ("renewals", "its_run")

    @admin.display(description="run")
    def its_run(self, obj: Lease) -> str:
        """The run under it, for a task's lease."""
        run = Run.objects.filter(lease=obj).first()
        return link_to("coordination_run", run.pk, str(run)) if run else "-"

    @admin.display(description=f"latest {RENEWALS_SHOWN} renewals")
    def renewals(self, obj: Lease) -> str:
        """When, until when, and how far the work was."""
        rows = Renewal.objects.filter(lease_id=obj.pk).order_by("-renewed_at")[:RENEWALS_SHOWN]
        lines = [
            (f"{row.renewed_at:%Y-%m-%d %H:%M:%S.%f} UTC", f"{row.expires_at:%H:%M:%S}", _per_cent(row))
            for row in rows
        ]
        return format_html_join("", "<p>{}, until {}{}</p>", lines) or "-"

    def log_of(self, obj: Lease) -> dict[str, Any]:
        """What happened under it."""
        task = Task.objects.filter(resource_id=obj.resource_id).values_list("pk", flat=True).first()
        return {"lease_id": obj.pk} | ({"task_id": task} if task else {})


def _per_cent(row: Renewal) -> str:
    return "" if row.progress is None else f", {row.progress} %"


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
    fields = ("principal", "key", "status", "created_at")
    list_display = ("key", "principal", "status", "created_at")
    list_filter = ("status", OrganizationFilter)
    list_select_related = ("principal",)
    search_fields = ("key", "principal__name")
    id_columns = ("pk", "principal_id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without what was answered."""
        return super().get_queryset(request).defer("body", "fingerprint")

    def log_of(self, obj: StoredAnswer) -> dict[str, Any]:
        """What the principal did."""
        return {"actor_id": obj.principal_id}
