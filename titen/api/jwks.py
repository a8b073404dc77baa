"""`/.well-known/jwks.json`: the public keys of sequencers (RFC 7517, RFC 8037), for anybody."""

from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from coordination import signing

from .envelope import as_refusal, refusal_page

MAX_AGE_SECONDS = 300


def key_json(row: dict[str, Any]) -> dict[str, str]:
    """One key as recipients read it."""
    return {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": row["public"],
        "kid": row["id"].hex,
        "use": "sig",
        "alg": "EdDSA",
    }


@csrf_exempt
@require_safe
def key_set(request: HttpRequest) -> HttpResponse:
    """The keys that a live sequencer may be signed with. Plain JSON, to be kept for five minutes."""
    try:
        keys = [key_json(row) for row in signing.published()]
    except DatabaseError as problem:
        return refusal_page(as_refusal(problem, request))
    answer = JsonResponse({"keys": keys})
    answer["Cache-Control"] = f"public, max-age={MAX_AGE_SECONDS}"
    return answer
