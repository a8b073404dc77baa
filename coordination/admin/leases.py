"""Resources and the leases on them, with the word that ends one."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html_join

from coordination import digests, leasing
from coordination.audit import AuditAdmin, OrganizationFilter, link_to
from coordination.models import Event, Lease, Renewal, Resource, Role, Run, Task
from coordination.verbs import Verb, member

from . import forms

RENEWALS_SHOWN = 100
HISTORY_SHOWN = 20
TIME = "%Y-%m-%d %H:%M:%S"


def revoke(request: HttpRequest, row: Lease, values: dict[str, Any]) -> None:
    """As a member of the organization."""
    leasing.revoke(member(request, row.organization_id, Role.OPERATOR), row.pk, reason=values["reason"])


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
    readonly_fields = ("renewals", "its_run", "leases_of_the_resource", "what_happened")
    shown = ("ended_at", "end_reason")
    verbs = (
        Verb(
            "revoke",
            "Revoke",
            revoke,
            forms.WhyForm,
            explanation="Its holder loses it at once. A task goes back to the queue, not to its last holder.",
            offered=lambda row: row.ended_at is None,
        ),
    )

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

    @admin.display(description=f"latest {HISTORY_SHOWN} leases of the resource")
    def leases_of_the_resource(self, obj: Lease) -> str:
        """Who held it when, and how that ended."""
        rows = (
            Lease.objects.filter(resource_id=obj.resource_id).select_related("principal").order_by("-epoch")
        )
        lines = [
            (
                link_to("coordination_lease", row.pk, str(row)),
                row.principal.name,
                f"{row.granted_at:{TIME}}",
                _end(row),
            )
            for row in rows[:HISTORY_SHOWN]
        ]
        return format_html_join("", "<p>{}: {}, from {} UTC, {}</p>", lines)

    @admin.display(description=f"latest {HISTORY_SHOWN} events")
    def what_happened(self, obj: Lease) -> str:
        """Under this lease."""
        task = Task.objects.filter(resource_id=obj.resource_id).values_list("pk", flat=True).first()
        # By its task, or by being no task's: the log has an index for each.
        rows = Event.objects.filter(lease_id=obj.pk, task_id=task).order_by("-seq")[:HISTORY_SHOWN]
        lines = [
            (f"{row.created_at:{TIME}}", link_to("coordination_event", row.pk, row.kind)) for row in rows
        ]
        return format_html_join("", "<p>{} UTC {}</p>", lines) or "-"

    def digest(self, obj: Lease) -> str:
        """With its task, if it has one: revoking its lease takes it over, so that whatever blocks it ends."""
        task = Task.objects.filter(resource_id=obj.resource_id).first()
        return digests.of_columns(obj, self.shown) + (digests.of_task(task) if task else "")

    def hold(self, obj: Lease) -> Any:
        """The task, or else the resource, comes first."""
        task = Task.objects.filter(resource_id=obj.resource_id).values_list("pk", flat=True).first()
        if task:
            Task.objects.select_for_update(no_key=True).get(pk=task)
        else:
            Resource.objects.select_for_update(no_key=True).get(pk=obj.resource_id)
        return super().hold(obj)

    def log_of(self, obj: Lease) -> dict[str, Any]:
        """What happened under it."""
        task = Task.objects.filter(resource_id=obj.resource_id).values_list("pk", flat=True).first()
        return {"lease_id": obj.pk, **({"task_id": task} if task else {"task_id__isnull": 1})}


def _end(row: Lease) -> str:
    if row.ended_at is None:
        return f"until {row.expires_at:{TIME}} UTC unless renewed"
    return f"{row.end_reason} {row.ended_at:{TIME}} UTC"


def _per_cent(row: Renewal) -> str:
    return "" if row.progress is None else f", {row.progress} %"
