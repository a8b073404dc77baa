"""The log: events, their positions, and what has none yet. Nothing of it can be changed."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from coordination.audit import AuditAdmin, OrganizationFilter, link_to
from coordination.models import Event, EventPosition, LogFloor, Run, UnnumberedEvent
from titen.api.ids import public_id

LATEST = 2000


class KindFilter(admin.SimpleListFilter):
    """What happened, among the kinds of the latest events."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Counting the kinds of a whole log would read all of it."""
        latest = model_admin.get_queryset(request).order_by("-pk")[:LATEST].values_list("kind", flat=True)
        return [(kind, kind) for kind in sorted(set(latest))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Exactly this kind."""
        return queryset if self.value() is None else queryset.filter(kind=self.value())


@admin.register(Event)
class EventAdmin(AuditAdmin):
    """What happened. Ids are ordered by time, and the list is read along their index."""

    list_display = ("created_at", "kind", "organization", "task", "actor")
    list_filter = (KindFilter, OrganizationFilter)
    list_select_related = ("organization",)
    search_fields = ("kind",)
    search_help_text = "An id (task_…, run_…, agent_…), or part of a kind."
    open_lookups = ("task_id", "run_id", "lease_id", "actor_id", "subject_id")

    @admin.display(description="task")
    def task(self, obj: Event) -> str:
        """A link; nothing is looked up for it."""
        return (
            link_to("coordination_task", obj.task_id, public_id("task", obj.task_id)) if obj.task_id else "-"
        )

    @admin.display(description="who")
    def actor(self, obj: Event) -> str:
        """A link; nothing is looked up for it."""
        if obj.actor_id is None:
            return str(obj.data.get("user_id", "-"))
        return link_to("coordination_principal", obj.actor_id, public_id("agent", obj.actor_id))

    def by_id(self, prefix: str, value: UUID) -> Q:
        """By task where that is known: the log has an index on it."""
        match prefix:
            case "evt":
                return Q(pk=value)
            case "task":
                return Q(task_id=value)
            case "run" | "lease":
                run = Run.objects.filter(Q(pk=value) | Q(lease_id=value)).only("pk", "task_id").first()
                if run is None:
                    return Q(lease_id=value, task_id=None) if prefix == "lease" else Q(pk__in=[])
                return Q(task_id=run.task_id, run_id=run.pk)
        return Q(pk=value) | Q(task_id=value) | Q(actor_id=value) | Q(subject_id=value)

    def log_of(self, obj: Event) -> dict[str, Any]:
        """What else happened to its task, or to its subject."""
        return {"task_id": obj.task_id} if obj.task_id else {"subject_id": obj.subject_id}


@admin.register(EventPosition)
class EventPositionAdmin(AuditAdmin):
    """The places of events in their organizations' logs, chained by hashes."""

    fields = ("organization", "position", "event_id", "event_created_at", "chained")
    list_display = ("position", "organization", "event_id", "event_created_at")
    list_filter = (OrganizationFilter,)
    list_select_related = ("organization",)
    search_fields = ("=position",)

    @admin.display(description="hash of this and all before")
    def chained(self, obj: EventPosition) -> str:
        """In hexadecimal digits."""
        return bytes(obj.digest).hex()

    def log_of(self, obj: EventPosition) -> dict[str, Any]:
        """The organization's log."""
        return {"organization": obj.organization.slug}


@admin.register(LogFloor)
class LogFloorAdmin(AuditAdmin):
    """Where logs begin whose oldest part was given up."""

    fields = ("organization", "position", "chained")
    list_display = ("organization", "position")
    list_filter = (OrganizationFilter,)
    list_select_related = ("organization",)
    search_fields = ("=position",)

    @admin.display(description="hash of all that is gone")
    def chained(self, obj: LogFloor) -> str:
        """In hexadecimal digits."""
        return bytes(obj.digest).hex()

    def log_of(self, obj: LogFloor) -> dict[str, Any]:
        """The organization's log."""
        return {"organization": obj.organization.slug}


@admin.register(UnnumberedEvent)
class UnnumberedEventAdmin(AuditAdmin):
    """Committed events without a position yet; stays near empty."""

    list_display = ("seq", "organization", "event_id", "event_created_at")
    list_filter = (OrganizationFilter,)
    list_select_related = ("organization",)
    search_fields = ("=seq",)
    id_columns = ("event_id",)

    def log_of(self, obj: UnnumberedEvent) -> dict[str, Any]:
        """The organization's log."""
        return {"organization": obj.organization.slug}
