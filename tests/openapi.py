"""Holds real answers against the OpenAPI document."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry
from referencing.jsonschema import DRAFT202012

METHODS = ("get", "post", "put", "patch", "delete")
ADDRESS = "urn:titen"
Operation = tuple[str, str]


@cache
def document() -> dict[str, Any]:
    """The document as it is published."""
    from titen.api import docs

    made: dict[str, Any] = json.loads(json.dumps(docs.document()))
    return made


@cache
def operations() -> dict[Operation, dict[str, Any]]:
    """(method in capitals, path template) -> operation."""
    return {
        (method.upper(), path): operation
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }


@cache
def _registry() -> Any:
    return Registry().with_resource(ADDRESS, DRAFT202012.create_resource(document()))


@cache
def _validator(pointer: str) -> Any:
    return Draft202012Validator({"$ref": f"{ADDRESS}#{pointer}"}, registry=_registry())


@cache
def _templates() -> dict[int, list[tuple[list[str], str]]]:
    found: dict[int, list[tuple[list[str], str]]] = {}
    for template in document()["paths"]:
        parts = template.split("/")
        found.setdefault(len(parts), []).append((parts, template))
    for group in found.values():
        # `/v1/tasks/claim` before `/v1/tasks/{task_id}`, as in the routes.
        group.sort(key=lambda entry: entry[1].count("{"))
    return found


def template_of(path: str) -> str | None:
    """The path template that a real path belongs to."""
    parts = path.partition("?")[0].split("/")
    for wanted, template in _templates().get(len(parts), []):
        if all(part == want or want.startswith("{") for part, want in zip(parts, wanted, strict=True)):
            return template
    return None


def _pointer(method: str, path: str, status: int) -> str | None:
    template = template_of(path)
    operation = operations().get((method.upper(), template)) if template else None
    if operation is None:
        return "/components/schemas/Refusal"
    known = str(status) in operation["responses"]
    if not known and status < 400:
        raise AssertionError(f"{method} {path} answered {status}, which the document does not know")
    answer = operation["responses"][str(status) if known else "default"]
    if "content" not in answer:
        return None
    if "application/json" not in answer["content"]:
        return ""
    escaped = template.replace("~", "~0").replace("/", "~1") if template else ""
    name = str(status) if known else "default"
    return f"/paths/{escaped}/{method.lower()}/responses/{name}/content/application~1json/schema"


def check_answer(method: str, path: str, status: int, body: bytes) -> None:
    """Assert that an answer of `/v1` is one that the document promises.

    `path` may carry a query. A path or method that the document does not know must be refused.
    """
    if method.upper() in ("HEAD", "OPTIONS"):
        return
    pointer = _pointer(method, path, status)
    if pointer is None:
        assert body == b"", f"{method} {path} answered {status} with a body"
    if not pointer:
        return
    content = json.loads(body)
    problems = [
        f"{'/'.join(map(str, problem.absolute_path))}: {problem.message}"
        for problem in _validator(pointer).iter_errors(content)
    ]
    assert not problems, f"{method} {path} answered {status}: {problems[:5]} in {body[:2000]!r}"
    if "error" in content:
        from titen.errors import CODES

        assert CODES[content["error"]["code"]].status == status, f"{method} {path}: {status} {content}"
