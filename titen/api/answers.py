"""The shapes of all answers, as JSON Schema (OpenAPI 3.1 components)."""

from typing import Any

SHAPES: dict[str, Any] = {}
