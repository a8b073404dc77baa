"""OpenAPI: every answer of `/v1` stands in the envelope, and its shape is written down once."""

from typing import Any, Literal

from django.conf import settings
from django.utils.module_loading import autodiscover_modules
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from .answers import SHAPES, Shape, ident, ref
from .authentication import NO_SCOPE

PREFIXES = {
    "task_id": "task",
    "run_id": "run",
    "comment_id": "cmt",
    "approval_id": "appr",
    "effect_id": "eff",
    "key_id": "key",
    "lease_id": "lease",
    "handoff_id": "hoff",
    "checkpoint_id": "ckpt",
    "context_id": "ctx",
    "message_id": "msg",
    "webhook_id": "whk",
    "delivery_id": "dlv",
}
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 200},
    OpenApiParameter.HEADER,
    description="Within 24 hours a repeat with the same key and request gets the first answer, and nothing is"
    " done twice.",
)


def _envelope(shape: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["data", "meta"],
        "properties": {"data": shape, "meta": ref("Meta")},
        "additionalProperties": False,
    }


def ok(name: str, status: int = 200) -> dict[int, Any]:
    """The success answer of an operation: its shape by name, in the envelope."""
    return {status: _envelope(ref(name))}


def query_parameters(shapes: dict[str, Shape]) -> list[OpenApiParameter]:
    """Optional parameters of a query, for the OpenAPI document."""
    return [OpenApiParameter(name, shape, description=shape["description"]) for name, shape in shapes.items()]


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """API keys."""

    target_class = "titen.api.authentication.KeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """`Authorization: Bearer titen_sk_…`."""
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "titen_sk_…",
            "description": "An API key.",
        }


class HumanScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Browser sessions."""

    target_class = "titen.api.authentication.HumanAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """The cookie of a login on the board."""
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": settings.SESSION_COOKIE_NAME,
            "description": "A human's login on the board, with the CSRF token in `X-CSRFToken`. Keys get 403.",
        }


class EnvelopeSchema(AutoSchema):
    """Adds to every operation what all of them share."""

    def get_summary(self) -> str:
        """The operation's name in words."""
        return self.get_operation_id().replace("_", " ").capitalize()

    def _scope(self) -> str | None:
        view: Any = self.view
        found: str | None = getattr(view, "scope", None) or view.scopes.get(self.method)
        return None if found == NO_SCOPE else found

    def get_description(self) -> str:  # type: ignore[override]
        """The method's docstring, and the scope that it needs."""
        scope = self._scope()
        needs = f"\n\nNeeds the scope `{scope}`." if scope else ""
        return f"{super().get_description()}{needs}"

    def get_auth(self) -> list[dict[str, Any]]:
        """How the caller shows who it is; a key's scope is named beside it."""
        scope = self._scope()
        if hasattr(self.view, "scope"):
            return [{KeyScheme.name: [scope]}]
        return [{name: [scope] if scope else [] for name in way} for way in super().get_auth()]

    def get_override_parameters(self) -> list[Any]:
        """The query's parameters and the idempotency key."""
        view: Any = self.view
        given = list(super().get_override_parameters())
        return [*given, IDEMPOTENCY_KEY] if self.method == "POST" and view.stores_answers else given

    def _resolve_path_parameters(self, variables: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "in": "path",
                "name": name,
                "required": True,
                "schema": ident(PREFIXES[name], f"An id such as {PREFIXES[name]}_0123…."),
            }
            for name in variables
        ]

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        for status, body in bodies.items():
            body["description"] = "Nothing is ready." if status == "204" else "Done."
        bodies["default"] = {
            "description": "Refused; nothing was changed.",
            "content": {"application/json": {"schema": ref("Refusal")}},
        }
        return bodies


def add_shapes(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A postprocessing hook of drf-spectacular: puts the answers' shapes among the components."""
    autodiscover_modules("api.answers")
    components = result.setdefault("components", {})
    bodies: dict[str, Any] = components.setdefault("schemas", {})
    for body in bodies.values():
        body["additionalProperties"] = False
    bodies.update(SHAPES)
    return result
