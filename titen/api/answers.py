"""The shapes of all answers, as JSON Schema (OpenAPI 3.1 components).

Each app adds its own in `api/answers.py`. A shape lists every field that an answer has and no other, so
that a test can hold every real answer against it.
"""

from collections.abc import Iterable
from typing import Any

from titen.errors import CODES

Shape = dict[str, Any]

SHAPES: dict[str, Shape] = {}


def ref(name: str) -> Shape:
    """A shape by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def fields(description: str, properties: dict[str, Shape], *, optional: Iterable[str] = ()) -> Shape:
    """An object with exactly these fields; `optional` ones may be absent."""
    absent = set(optional)
    return {
        "type": "object",
        "description": description,
        "required": [name for name in properties if name not in absent],
        "properties": properties,
        "additionalProperties": False,
    }


def text(description: str, **more: Any) -> Shape:
    """A string."""
    return {"type": "string", "description": description, **more}


def integer(description: str, low: int | None = 0, high: int | None = None) -> Shape:
    """A whole number between `low` and `high`, where they are given."""
    bounds = {"minimum": low, "maximum": high}
    kept = {key: value for key, value in bounds.items() if value is not None}
    return {"type": "integer", "description": description, **kept}


def flag(description: str) -> Shape:
    """True or false."""
    return {"type": "boolean", "description": description}


def choice(description: str, values: Iterable[str]) -> Shape:
    """One of a fixed set of words."""
    return {"type": "string", "description": description, "enum": [str(value) for value in values]}


def ident(prefix: str, description: str) -> Shape:
    """A printed id: the prefix, `_`, and 32 hexadecimal digits."""
    return text(description, pattern=f"^{prefix}_[0-9a-f]{{32}}$")


def moment(description: str) -> Shape:
    """A time in UTC with milliseconds, such as 2026-07-30T10:58:13.829Z."""
    pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"
    return text(description, format="date-time", pattern=pattern)


def anything(description: str) -> Shape:
    """Any JSON value."""
    return {"description": description}


def free(description: str) -> Shape:
    """An object with any fields."""
    return {"type": "object", "description": description, "additionalProperties": True}


def many(description: str, items: Shape) -> Shape:
    """A list."""
    return {"type": "array", "description": description, "items": items}


def maybe(shape: Shape) -> Shape:
    """The same, or null."""
    if "$ref" in shape:
        return {"oneOf": [shape, {"type": "null"}]}
    widened = {**shape, "type": [shape["type"], "null"]}
    if "enum" in shape:
        widened["enum"] = [*shape["enum"], None]
    return widened


def page(noun: str, name: str) -> Shape:
    """One page of a list: its rows and the cursor of the next page."""
    cursor = text(
        "Send it as `cursor` for the next page; null on the last one.", pattern="^[A-Za-z0-9_-]{22}$"
    )
    return fields(
        f"A page of {noun}, newest first.",
        {noun: many(f"At most `limit` {noun}.", ref(name)), "next_cursor": maybe(cursor)},
    )


SHAPES["Meta"] = fields(
    "What every answer carries beside its content.",
    {
        "request_id": text(
            "Names this answer; tell it when you report a problem. The front's own answers have a UUID.",
            pattern="^(req_[0-9a-f]{24}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$",
        )
    },
)
SHAPES["Refusal"] = fields(
    "The request was refused and nothing was changed.",
    {
        "error": fields(
            "Why, and what to do next.",
            {
                "code": choice("Stable; decide by it.", CODES),
                "message": text("For people and models: what is wrong and the next step."),
                "details": free(
                    "What the code is about: `fields` with sentences for VALIDATION_ERROR, states, ids."
                ),
            },
            optional=["details"],
        ),
        "meta": ref("Meta"),
    },
)
