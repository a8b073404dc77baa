"""`/v1/principal`, `/v1/principals`, `/v1/keys`."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import identity
from coordination.models import ApiKey, Principal
from coordination.times import stamp
from titen.api.authentication import NO_SCOPE
from titen.api.doors import Answer, transact
from titen.api.ids import maybe_id, path_id, public_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import not_found

from . import bodies


class WhoAmI(ApiView):
    """The caller."""

    scopes = {"GET": NO_SCOPE}

    @extend_schema(operation_id="get_principal", responses=ok("Caller"))
    def get(self, request: Request) -> Response:
        """Who this key belongs to and what it may do."""
        self.nothing_else(request)
        caller = self.caller(request)
        return Response(
            {
                "organization_id": public_id("org", caller.organization_id),
                "principal_id": public_id("agent", caller.principal_id),
                "name": caller.name,
                "kind": caller.kind,
                "capabilities": list(caller.capabilities),
                "scopes": sorted(caller.scopes),
                "key_id": maybe_id("key", caller.key_id),
            }
        )


class PrincipalList(ApiView):
    """Who else works here."""

    scopes = {"GET": "principals:read"}

    @extend_schema(operation_id="list_principals", responses=ok("Principals"))
    def get(self, request: Request) -> Response:
        """The principals of the organization by name."""
        self.nothing_else(request)
        found = Principal.objects.filter(organization_id=self.caller(request).organization_id).order_by(
            "name_key"
        )
        return Response(
            {
                "principals": [
                    {
                        "id": public_id("agent", item.pk),
                        "name": item.name,
                        "kind": item.kind,
                        "capabilities": item.capabilities,
                        "disabled": item.disabled_at is not None,
                    }
                    for item in found
                ]
            }
        )


def key_json(key: ApiKey) -> dict[str, Any]:
    """A key without its secret, which nobody has any more."""
    return {
        "key_id": public_id("key", key.pk),
        "principal_id": public_id("agent", key.principal_id),
        "label": key.label,
        "scopes": key.scopes,
        "made_by": maybe_id("key", key.made_by_id),
        "created_at": stamp(key.created_at),
        "expires_at": stamp(key.expires_at),
        "revoked_at": stamp(key.revoked_at),
    }


class KeyList(ApiView):
    """The caller's own keys."""

    scopes = {"GET": "keys:manage", "POST": "keys:manage"}
    answers_with_secret = True

    @extend_schema(operation_id="list_keys", responses=ok("Keys"))
    def get(self, request: Request) -> Response:
        """The keys of the caller, newest first."""
        self.nothing_else(request)
        found = ApiKey.objects.filter(principal_id=self.caller(request).principal_id).order_by("-created_at")
        return Response({"keys": [key_json(key) for key in found]})

    @extend_schema(operation_id="create_key", request=bodies.KeyBody, responses=ok("NewKey", 201))
    def post(self, request: Request) -> Response:
        """Another key for the caller, with no more than it has. The secret stands in this answer only.

        It ends no later than the key that makes it: a later `expires_at` is refused, and without one it ends
        with that key. Revoking that key revokes it.

        The answer is stored encrypted, for a repeat with the same `Idempotency-Key` and the same API key.
        """
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, bodies.KeyBody)
        principal = Principal.objects.get(pk=caller.principal_id)

        def work() -> Answer:
            key, secret = identity.issue_key(principal, maker=caller, **body)
            return 201, {**key_json(key), "api_key": secret}

        return self.act(request, work)


class KeyDetail(ApiView):
    """One of the caller's keys."""

    scopes = {"DELETE": "keys:manage"}

    @extend_schema(operation_id="revoke_key", responses=ok("RevokedKey"))
    def delete(self, request: Request, key_id: str) -> Response:
        """Revoke it and every key that was made with it, at once; leases taken with them run out by themselves.

        Of a key that is revoked already, those that were made with it are revoked.
        """
        self.nothing_else(request)
        caller, key = self.caller(request), path_id("key", key_id)
        if not ApiKey.objects.filter(pk=key, principal_id=caller.principal_id).exists():
            raise not_found()
        revoked, others = transact(
            lambda: identity.revoke_key_and_made_with_it(
                caller.organization_id, key, actor_id=caller.principal_id
            )
        )
        return Response({**key_json(revoked), "also_revoked": [public_id("key", each) for each in others]})
