"""The keys that sign sequencers. They are the server's, so they are for superusers alone."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from coordination import signing
from coordination.audit import AuditAdmin
from coordination.models import SigningKey
from coordination.verbs import Verb


def rotate(request: HttpRequest, row: None, values: dict[str, Any]) -> SigningKey:
    """With an overlap."""
    return signing.rotate()


def rotate_at_once(request: HttpRequest, row: None, values: dict[str, Any]) -> SigningKey:
    """Without one."""
    return signing.rotate(at_once=True)


@admin.register(SigningKey)
class SigningKeyAdmin(AuditAdmin):
    """The private part is shown to nobody."""

    fields = ("id", "public", "signs_from", "withdrawn_at", "created_at")
    list_display = ("__str__", "signs_from", "withdrawn_at", "created_at")
    list_filter = (("withdrawn_at", admin.EmptyFieldListFilter),)
    search_fields = ("public",)
    verbs = (
        Verb(
            "rotate",
            "Rotate",
            rotate,
            explanation="A new key is published now and signs in ten minutes; what the old one signed stays good.",
            makes=True,
            superuser=True,
        ),
        Verb(
            "rotate-at-once",
            "Rotate at once",
            rotate_at_once,
            explanation="After a leak: a new key signs now, and every other one is withdrawn. Recipients refuse"
            " what those signed as soon as they fetch the keys again.",
            makes=True,
            superuser=True,
        ),
    )

    def limited(self, queryset: QuerySet[SigningKey], known: Any) -> QuerySet[SigningKey]:
        """They belong to no organization."""
        return queryset.none()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers."""
        user: Any = request.user
        return bool(user.is_active and user.is_superuser)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """The same."""
        return self.has_view_permission(request)
