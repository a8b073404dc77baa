"""Webhooks, and what became of their deliveries."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from coordination import webhooks
from coordination.audit import AuditAdmin, OrganizationFilter
from coordination.models import Delivery, DeliveryStatus, Webhook
from coordination.verbs import Verb, acting


def pause(request: HttpRequest, row: Webhook, values: dict[str, Any]) -> None:
    """What it is owed is kept."""
    webhooks.pause(row, **acting(request, row.organization_id))


def resume(request: HttpRequest, row: Webhook, values: dict[str, Any]) -> None:
    """With what it is owed."""
    webhooks.resume(row, **acting(request, row.organization_id))


def redeliver(request: HttpRequest, row: Delivery, values: dict[str, Any]) -> None:
    """With the same id."""
    webhooks.redeliver(row.organization_id, row.webhook_id, row.pk, **acting(request, row.organization_id))


@admin.register(Webhook)
class WebhookAdmin(AuditAdmin):
    """Addresses that get events. Their secrets are shown to nobody."""

    list_display = (
        "printed_id",
        "url",
        "organization",
        "principal",
        "failures_in_a_row",
        "paused_at",
        "pause_reason",
        "deleted_at",
    )
    list_filter = ("pause_reason", ("deleted_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("organization", "principal")
    search_fields = ("url", "description", "principal__name")
    id_columns = ("pk", "principal_id")
    shown = ("url", "principal_id", "kinds", "paused_at", "pause_reason", "deleted_at")
    verbs = (
        Verb(
            "pause",
            "Pause",
            pause,
            explanation="Nothing is sent until it is resumed. What it is owed is kept for 30 days.",
            offered=lambda row: row.paused_at is None and row.deleted_at is None,
        ),
        Verb(
            "resume",
            "Resume",
            resume,
            explanation="What it is owed is sent at once, in order.",
            offered=lambda row: row.paused_at is not None and row.deleted_at is None,
        ),
    )


@admin.register(Delivery)
class DeliveryAdmin(AuditAdmin):
    """One event for one webhook each. What receivers answer is not kept, only its status."""

    list_display = (
        "printed_id",
        "kind",
        "webhook",
        "status",
        "attempt_count",
        "response_status",
        "problem",
        "next_attempt_at",
        "ended_at",
    )
    list_filter = ("status", OrganizationFilter)
    list_select_related = ("webhook",)
    search_fields = ("kind", "problem")
    id_columns = ("pk", "webhook_id", "event_id")
    shown = ("status", "ended_at")
    verbs = (
        Verb(
            "redeliver",
            "Redeliver",
            redeliver,
            explanation="It is sent at once, with the same id and body.",
            offered=lambda row: row.status != DeliveryStatus.CANCELLED,
        ),
    )

    def hold(self, obj: Delivery) -> Any:
        """The webhook comes first."""
        Webhook.objects.select_for_update(no_key=True).get(pk=obj.webhook_id)
        return super().hold(obj)

    def log_of(self, obj: Delivery) -> dict[str, Any]:
        """What happened to the webhook."""
        return {"subject_id": obj.webhook_id}
