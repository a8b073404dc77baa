"""Organizations, users, memberships, principals, API keys, capability limits."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet

from coordination import keys
from coordination.audit import AuditAdmin, AuditInline, OrganizationFilter
from coordination.identity import CONFIGURABLE
from coordination.models import (
    ApiKey,
    CapabilityLimit,
    Membership,
    Organization,
    Principal,
    PrincipalKind,
    User,
)
from coordination.verbs import Verb

from . import forms, moves


class OfOrganization(AuditInline):
    """Members of an organization or of a user."""

    model = Membership
    fields = ("organization", "user", "role", "ended_at")
    readonly_fields = fields
    related = ("organization", "user")


@admin.register(Organization)
class OrganizationAdmin(AuditAdmin):
    """Tenants."""

    organization_path = "pk"
    list_display = ("printed_id", "name", "slug", "lease_ttl_seconds", "forbid_self_approval", "created_at")
    list_filter = (
        "require_approval_for_destructive_tools",
        "require_approval_for_outward_actions",
        "forbid_self_approval",
    )
    search_fields = ("name", "slug")
    inlines = (OfOrganization,)
    shown = ("name", *CONFIGURABLE)
    verbs = (
        Verb(
            "make",
            "New organization",
            moves.make_organization,
            forms.OrganizationForm,
            makes=True,
            superuser=True,
        ),
        Verb("configure", "Configure", moves.configure, forms.ConfigureForm),
    )

    def log_of(self, obj: Organization) -> dict[str, Any]:
        """All of its events."""
        return {"organization": obj.slug}


@admin.register(User)
class UserAdmin(AuditAdmin):
    """People who log in. Staff see the members of their organizations."""

    fields = (
        "printed_id",
        "email",
        "name",
        "is_active",
        "is_staff",
        "is_superuser",
        "last_login",
        "created_at",
    )
    list_display = ("email", "name", "is_active", "is_staff", "is_superuser", "last_login")
    list_filter = ("is_active", "is_staff", "is_superuser", OrganizationFilter)
    search_fields = ("email", "name")
    inlines = (OfOrganization,)
    shown = ("email", "password", "is_active", "is_superuser")
    verbs = (
        Verb(
            "password",
            "Set password",
            moves.set_password,
            forms.PasswordForm,
            explanation="Ends the user's sessions; their organizations' logs say that it happened.",
            superuser=True,
        ),
    )

    def limited(self, queryset: QuerySet[User], known: Any) -> QuerySet[User]:
        """Members, also former ones."""
        return queryset.filter(pk__in=Membership.objects.filter(organization_id__in=known).values("user_id"))


@admin.register(Membership)
class MembershipAdmin(AuditAdmin):
    """Who may do what where."""

    list_display = ("user", "organization", "role", "ended_at", "created_at")
    list_filter = ("role", ("ended_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("user", "organization")
    search_fields = ("user__email", "organization__slug")
    id_columns = ("pk", "user_id", "organization_id")
    shown = ("role", "ended_at")
    verbs = (
        Verb("add", "Add member", moves.add_member, forms.MemberForm, makes=True),
        Verb("role", "Change role", moves.change_role, forms.RoleForm),
        Verb(
            "end",
            "End membership",
            moves.end_membership,
            explanation="What they hold goes back to the queue at once.",
            offered=lambda row: row.ended_at is None,
        ),
    )

    def log_of(self, obj: Membership) -> dict[str, Any]:
        """The events about the user, there."""
        return {"subject_id": obj.user_id, "organization": obj.organization.slug}


class KeysInline(AuditInline):
    """The keys of a principal."""

    model = ApiKey
    fields = ("label", "scopes", "created_at", "expires_at", "revoked_at")
    readonly_fields = fields
    show_change_link = True
    fk_name = "principal"


@admin.register(Principal)
class PrincipalAdmin(AuditAdmin):
    """Who acts."""

    list_display = (
        "name",
        "kind",
        "organization",
        "owner",
        "max_concurrent_runs",
        "disabled_at",
        "printed_id",
    )
    list_filter = ("kind", ("disabled_at", admin.EmptyFieldListFilter), OrganizationFilter)
    list_select_related = ("organization", "owner")
    search_fields = ("name", "user__email")
    inlines = (KeysInline,)
    shown = ("name", "kind", "owner_id", "capabilities", "max_concurrent_runs", "disabled_at")
    verbs = (
        Verb("make", "New agent", moves.make_principal, forms.AgentForm, makes=True),
        Verb(
            "key",
            "Issue key",
            moves.issue_key,
            forms.KeyForm,
            explanation="The secret is shown once, on the next page.",
            offered=lambda row: row.kind != PrincipalKind.HUMAN and row.disabled_at is None,
        ),
        Verb(
            "disable",
            "Disable",
            moves.disable,
            explanation="Its keys stop working and what it holds goes back to the queue, at once.",
            offered=lambda row: row.kind != PrincipalKind.HUMAN and row.disabled_at is None,
        ),
    )


@admin.register(ApiKey)
class ApiKeyAdmin(AuditAdmin):
    """Credentials, without anything that could be used."""

    fields = (
        "printed_id", "organization", "principal", "label", "scopes", "created_at", "expires_at", "revoked_at",
        "created_by", "made_by",
    )  # fmt: skip
    list_display = (
        "printed_id",
        "label",
        "principal",
        "organization",
        "created_at",
        "expires_at",
        "revoked_at",
    )
    list_filter = (
        ("revoked_at", admin.EmptyFieldListFilter),
        ("expires_at", admin.EmptyFieldListFilter),
        OrganizationFilter,
    )
    list_select_related = ("principal", "organization")
    search_fields = ("label", "principal__name")
    id_columns = ("pk", "principal_id")
    shown = ("label", "scopes", "expires_at", "revoked_at")
    verbs = (
        Verb(
            "revoke",
            "Revoke",
            moves.revoke_key,
            forms.RevokeKeyForm,
            explanation="It stops working at once; leases that were taken with it run out by themselves.",
            offered=keys.is_revocable,
        ),
    )


@admin.register(CapabilityLimit)
class CapabilityLimitAdmin(AuditAdmin):
    """Admission per capability."""

    list_display = ("capability", "max_concurrent_runs", "organization")
    list_filter = (OrganizationFilter,)
    list_select_related = ("organization",)
    search_fields = ("capability",)
    shown = ("capability", "max_concurrent_runs")
    verbs = (
        Verb("limit", "Limit a capability", moves.limit, forms.LimitForm, makes=True),
        Verb("change", "Change or lift", moves.limit, forms.ChangeLimitForm),
    )

    def log_of(self, obj: CapabilityLimit) -> dict[str, Any]:
        """The organization's changes of limits."""
        return {"kind": "limit.set", "organization": obj.organization.slug}
