"""The doors of the admin to the rules of who acts: each takes the request, the row and the form's values."""

from typing import Any

from django.http import HttpRequest

from coordination import admission, identity, users
from coordination.models import (
    ApiKey,
    CapabilityLimit,
    Membership,
    Organization,
    Principal,
    PrincipalKind,
    Role,
    User,
)
from coordination.verbs import Secret, acting, member
from titen.errors import invalid


def make_organization(request: HttpRequest, row: None, values: dict[str, Any]) -> Organization:
    """By a superuser."""
    user: Any = request.user
    return identity.make_organization(values["name"], values["slug"], user_id=user.pk)


def configure(request: HttpRequest, row: Organization, values: dict[str, Any]) -> None:
    """Policy flags and TTL."""
    who = acting(request, row.pk)
    identity.configure(row, values, actor_id=who["actor_id"], user_id=who["user_id"])


def add_member(request: HttpRequest, row: None, values: dict[str, Any]) -> Membership:
    """Who exists keeps their password: an admin of one organization has no say over other ones."""
    organization = values["organization"]
    user = User.objects.filter(email__iexact=values["email"]).first()
    if user is None:
        user = users.make_user(values["email"], values["password"], name=values["name"])
    elif values["password"]:
        raise invalid("password", "this user exists already and keeps theirs: leave it empty.")
    return identity.add_member(organization, user, Role(values["role"]), **acting(request, organization.pk))


def change_role(request: HttpRequest, row: Membership, values: dict[str, Any]) -> None:
    """Also brings an ended membership back."""
    identity.add_member(
        row.organization, row.user, Role(values["role"]), **acting(request, row.organization_id)
    )


def end_membership(request: HttpRequest, row: Membership, values: dict[str, Any]) -> None:
    """At once."""
    identity.end_membership(row, **acting(request, row.organization_id))


def set_password(request: HttpRequest, row: User, values: dict[str, Any]) -> None:
    """By a superuser."""
    user: Any = request.user
    users.set_password(row, values["password"], user_id=user.pk)


def make_principal(request: HttpRequest, row: None, values: dict[str, Any]) -> Principal:
    """An agent or a service; its owner is who makes it, when they belong to the organization."""
    organization = values["organization"]
    who = acting(request, organization.pk)
    user: Any = request.user
    return identity.make_principal(
        organization,
        values["name"],
        kind=PrincipalKind.SERVICE if values["service"] else PrincipalKind.AGENT,
        owner=user if who["actor_id"] else None,
        capabilities=values["capabilities"].split(),
        max_concurrent_runs=values["max_concurrent_runs"],
        **who,
    )


def disable(request: HttpRequest, row: Principal, values: dict[str, Any]) -> None:
    """At once."""
    identity.disable_principal(row, **acting(request, row.organization_id))


def issue_key(request: HttpRequest, row: Principal, values: dict[str, Any]) -> Secret:
    """The secret stands in the answer only."""
    who = acting(request, row.organization_id)
    maker = member(request, row.organization_id, Role.ADMIN) if who["actor_id"] else None
    key, secret = identity.issue_key(row, maker=maker, user_id=who["user_id"], **values)
    return Secret(secret, f"The secret of {key}:")


def revoke_key(request: HttpRequest, row: ApiKey, values: dict[str, Any]) -> None:
    """At once; with the keys that were made with it, when the form says so."""
    rule = identity.revoke_key_and_made_with_it if values.get("made_with_it") else identity.revoke_key
    rule(row.organization_id, row.pk, **acting(request, row.organization_id))


def limit(
    request: HttpRequest, row: CapabilityLimit | None, values: dict[str, Any]
) -> CapabilityLimit | None:
    """Set, change or lift."""
    organization = row.organization if row else values["organization"]
    capability = row.capability if row else values["capability"]
    return admission.limit_capability(
        organization, capability, values["max_concurrent_runs"], **acting(request, organization.pk)
    )
