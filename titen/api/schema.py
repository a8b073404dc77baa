"""OpenAPI: every answer of `/v1` stands in the envelope, and its shape is written down once here."""

from typing import Any, Literal

from drf_spectacular.openapi import AutoSchema

from .answers import SHAPES


def _envelope(shape: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["data", "meta"],
        "properties": {"data": shape, "meta": {"$ref": "#/components/schemas/Meta"}},
        "additionalProperties": False,
    }


def ok(name: str, status: int = 200) -> dict[int, Any]:
    """The success answer of an operation: its shape by name, in the envelope."""
    return {status: _envelope({"$ref": f"#/components/schemas/{name}"})}


class EnvelopeSchema(AutoSchema):
    """Adds the error answer to every operation."""

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        bodies["default"] = {
            "description": "Refused; nothing was changed.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
        }
        return bodies


def add_shapes(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A postprocessing hook of drf-spectacular: puts the answers' shapes among the components."""
    result.setdefault("components", {}).setdefault("schemas", {}).update(SHAPES)
    return result
