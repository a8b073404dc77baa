"""Documents whose sections are leased, and the places of events in their logs."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from coordination import sections
from coordination.audit import AuditAdmin, OrganizationFilter
from coordination.models import Document, DocumentPosition, Role
from coordination.verbs import Verb, member


def delete(request: HttpRequest, row: Document, values: dict[str, Any]) -> None:
    """As a member of the organization."""
    sections.delete_document(member(request, row.organization_id, Role.OPERATOR), row.slug)


@admin.register(Document)
class DocumentAdmin(AuditAdmin):
    """They appear when a section is first leased."""

    list_display = ("printed_id", "slug", "organization", "created_at", "deleted_at")
    list_filter = (("deleted_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("organization",)
    search_fields = ("slug",)
    shown = ("slug", "deleted_at")
    verbs = (
        Verb(
            "delete",
            "Delete",
            delete,
            explanation="Ends the leases on its sections. The next lease brings it back, with its log.",
            offered=lambda row: row.deleted_at is None,
        ),
    )


@admin.register(DocumentPosition)
class DocumentPositionAdmin(AuditAdmin):
    """The places of events in their documents' logs."""

    organization_path = "document__organization_id"
    list_display = ("position", "document", "event_id", "event_created_at")
    list_filter = (OrganizationFilter,)
    list_select_related = ("document",)
    search_fields = ("document__slug",)
    id_columns = ("event_id", "document_id")

    def log_of(self, obj: DocumentPosition) -> dict[str, Any]:
        """The document's events."""
        return {"subject_id": obj.document_id}
