"""Who sends a request: the holder of an API key, or a human with a browser session."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.permissions import BasePermission

from coordination.callers import Caller
from coordination.database import fetch
from coordination.identity import SECRET_PREFIX, digest_of
from coordination.models import Membership, Principal
from titen.errors import Refused

# What a view names for a method that every key may use.
NO_SCOPE = "none"

_CALLER = """
SELECT k.id AS key_id, k.scopes, p.id AS principal_id, p.organization_id, p.name, p.kind, p.capabilities
FROM coordination_apikey k JOIN coordination_principal p ON p.id = k.principal_id
WHERE k.digest = %(digest)s AND k.revoked_at IS NULL AND p.disabled_at IS NULL
    AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())"""


def key_digest(request: HttpRequest) -> bytes:
    """The SHA-256 of the key that the request carries. `UNAUTHENTICATED` when it carries none."""
    scheme, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret.startswith(SECRET_PREFIX) or not secret.isascii():
        raise Refused("UNAUTHENTICATED")
    return digest_of(secret)


def caller_by_digest(digest: bytes) -> Caller:
    """The principal whose key has this digest. Looking up a digest takes as long for a miss as for a hit."""
    row = fetch(_CALLER, {"digest": digest})
    if row is None:
        raise Refused("UNAUTHENTICATED")
    return Caller(
        principal_id=row["principal_id"],
        organization_id=row["organization_id"],
        name=row["name"],
        kind=row["kind"],
        scopes=frozenset(row["scopes"]),
        capabilities=tuple(row["capabilities"]),
        key_id=row["key_id"],
    )


def human(user: Any, organization_id: UUID) -> Caller | None:
    """A logged-in user as a caller in one organization; None without a membership there."""
    membership = Membership.objects.filter(user=user, organization_id=organization_id, ended_at=None).first()
    if membership is None or not user.is_active:
        return None
    principal = Principal.objects.get(organization_id=organization_id, user=user)
    return Caller(
        principal_id=principal.pk,
        organization_id=organization_id,
        name=principal.name,
        kind=principal.kind,
        scopes=frozenset(),
        capabilities=tuple(principal.capabilities),
        user_id=user.pk,
        role=membership.role,
    )


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer titen_sk_…`."""

    def authenticate(self, request: Any) -> tuple[Any, Any]:
        """The caller, found by one look-up."""
        digest = key_digest(request)
        return caller_by_digest(digest), digest

    def authenticate_header(self, request: Any) -> str:
        """Makes a refusal a 401."""
        return "Bearer"


class HumanAuthentication(SessionAuthentication):
    """A browser session with its CSRF token. An API key gets `FORBIDDEN`, whatever its scopes."""

    def authenticate(self, request: Any) -> Any:
        """The logged-in user."""
        if request.META.get("HTTP_AUTHORIZATION"):
            caller_by_digest(key_digest(request))
            raise Refused("FORBIDDEN", "Only a human does this, on the board. No API key can.")
        found = super().authenticate(request)
        if found is None:
            raise Refused("UNAUTHENTICATED", "Log in on the board. No API key can do this.")
        return found


class HasScope(BasePermission):
    """The view's `scopes` name what each method needs; a method for which they name nothing is refused."""

    def has_permission(self, request: Any, view: Any) -> bool:
        """Refuses with the scope that is missing. A method that the view does not offer is a 405 elsewhere."""
        method = "GET" if request.method == "HEAD" else request.method
        if method == "OPTIONS" or not hasattr(view, method.lower()):
            return True
        scope = view.scopes.get(method)
        if scope is None:
            raise Refused("FORBIDDEN", "This route names no scope, so no key can use it. Report it.")
        if scope != NO_SCOPE and isinstance(request.user, Caller):
            request.user.require(scope)
        return True
