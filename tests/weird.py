"""Input that others' servers stumbled over. Everything here must be taken as it is, or refused by name."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from .openapi import document

Sent = tuple[str, bytes, dict[str, str]]

RANDOM = "0197f0c2a1b27c3d8e4f5a6b7c8d9e0f"
DEEP = b'{"payload":' + b"[" * 70 + b"]" * 70 + b"}"
VERY_DEEP = b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LARGE = b'{"title":"' + b"x" * 1_100_000 + b'"}'

# fmt: off
VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**31, 2**53, 2**63, 10**40, -(10**40),
    float("nan"), float("inf"), float("-inf"),
    "", " ", "\n", "60", "a\0b", "\ud800", "x\udfff", "\u00e9\u0301", "😀", "x" * 30_000,
    "2026-01-01T00:00:00", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00", "2026-13-01T24:00:00Z",
    [], [None], [[]], ["a", "a"], {}, {"": None}, {"a\0": 1}, [1] * 200,
]
IDS = [
    "0", "-1", str(2**63), "9" * 40, "task_", f"task_{RANDOM}", f"TASK_{RANDOM}", f"task_{RANDOM.upper()}",
    f"run_{RANDOM}", f"task_{RANDOM}0", f"task_{RANDOM}\n", "task_%E2%82%80" + RANDOM, "a" * 3000,
    "%00", "%ED%A0%80", "%FF", "%F0%9F%98%80", "..%2F..%2Fkeys", "'%22--", "null", "undefined", "*", "claim%20", "1e9",
]
QUERIES = [
    "statsu=todo", "status=", "status=nope", "status=todo&status=done", "page_size=1", "format=api", "a[]=1", "=", "&&",
    "%00=1", "%FF=%FF", "x=" + "y" * 4000,
    "limit=0", "limit=-1", "limit=9999999999", "limit=%D9%A1", "limit=1.5", "limit=%00",
    "cursor=x", "cursor=" + "A" * 22, "cursor=%FF", "cursor=" + "A" * 5000,
    "after=-1", "after=" + str(2**63), "after=%00", "after=1%0A",
    "wait=26", "wait=-1", "wait=%00", "wait=1e1", "wait=1%0A",
    "task=nope", "task=%00", "agent=run_" + RANDOM, "created_by=agent_" + RANDOM, "task_id=x", "task_id=%00",
    "kind=%00", "kind=" + "a" * 401, "kind=task.claimed,,", "capability=%00", "capability=" + "x" * 2000,
]
RAW_BODIES = [
    b"", b" ", b"null", b"[]", b'"x"', b"1", b"{", b"{}{}", b"{'title':1}", b'{"__proto__":{}}',
    b'{"a":1,"a":2}', b'{"title":"x","title":"y"}',
    b'\xef\xbb\xbf{"title":"bom"}', '{"title":"x"}'.encode("utf-16"),
    b'{"title":"\xff"}', b'{"title":"\xed\xa0\x80"}', b'{"title":"\x00"}',
    b'{"priority":1e400}', b'{"priority":-1e999}', b'{"priority":' + b"9" * 5000 + b"}",
    b'{"epoch":NaN}', b'{"epoch":Infinity}', b'{"epoch":1.0}', b'{"epoch":-0}',
    DEEP, VERY_DEEP, b"[" * 100_000, LARGE,
]
CREDENTIALS = [
    b"", b"Bearer", b"Bearer null", b"Bearer titen_sk_", b"Basic eDp5", b"titen_sk_x", b"\xff",
    b"Bearer titen_sk_\xff\xfe", "Bearer titen_sk_\u043a\u043b\u044e\u0447".encode(), b"Bearer  titen_sk_a b",
    b"bearer titen_sk_" + b"a" * 20_000, b"Bearer titen_sk_" + b"A" * 43,
]
# fmt: on
CONTENT_TYPES = [
    "application/json; charset=latin-1",
    "APPLICATION/JSON",
    "text/plain",
    "multipart/form-data",
    "",
    "x",
]
KEYS = ["", "k", "k" * 201, "\u00e9"]


def example_of(schema: dict[str, Any], name: str, ids: dict[str, str]) -> Any:
    """A plausible value for one field of a body."""
    if name in ids:
        return ids[name]
    if "$ref" in schema:
        inner = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return {name: example_of(each, name, ids) for name, each in inner["properties"].items()}
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "integer":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "array":
            return ["tasks:read"] if name == "scopes" else ["a", "b"] if name == "options" else []
        case "object":
            return {}
        case "string" if schema.get("format") == "date-time":
            return "2100-01-01T00:00:00Z" if name == "not_before" else "2026-12-20T00:00:00+05:30"
    return "text"


def body_fields(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields that an operation's body has."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return {}
    found: dict[str, dict[str, Any]] = document()["components"]["schemas"][
        content["schema"]["$ref"].rpartition("/")[2]
    ]
    return found["properties"]


def single_faults(template: str, operation: dict[str, Any], ids: dict[str, str]) -> Iterator[Sent]:
    """Every request in which exactly one thing is strange."""
    path, json_body = template.format(**ids), {"Content-Type": "application/json"}
    fields = body_fields(operation)
    sound = {name: example_of(schema, name, ids) for name, schema in fields.items()}
    content = json.dumps(sound).encode()
    parts = template.split("/")
    for position, part in enumerate(parts):
        if part.startswith("{"):
            for strange in IDS:
                given = [*parts[:position], quote(strange, safe="%"), *parts[position + 1 :]]
                yield "/".join(given).format(**ids), content, json_body
    for query in QUERIES:
        yield f"{path}?{query}", content, json_body
    for name in [*fields, "surprise"] if fields else []:
        for value in VALUES:
            yield path, json.dumps({**sound, name: value}).encode(), json_body
        yield (
            path,
            json.dumps({key: value for key, value in sound.items() if key != name}).encode(),
            json_body,
        )
    for raw in RAW_BODIES if fields else [b"[]", b'{"a":1}', LARGE]:
        yield path, raw, json_body
    for kind in CONTENT_TYPES:
        yield path, content, {"Content-Type": kind}
    for key in KEYS:
        yield path, content, {**json_body, "Idempotency-Key": key}


@st.composite
def malformed(draw: Any, template: str, operation: dict[str, Any], ids: dict[str, str]) -> Sent:
    """A path with a query, a body and headers, each part of it sound or not."""
    parts = []
    for part in template.split("/"):
        if part.startswith("{"):
            known = ids[part[1:-1]]
            part = draw(st.sampled_from([known] * 3 + [quote(item, safe="%") for item in IDS]))
        parts.append(part)
    query = draw(st.sampled_from([""] * len(QUERIES) + QUERIES))
    fields = body_fields(operation)
    weird = st.sampled_from(VALUES)
    sound = {name: st.just(example_of(schema, name, ids)) for name, schema in fields.items()}
    content = st.fixed_dictionaries(
        {}, optional={name: st.one_of(value, weird) for name, value in sound.items()}
    )
    one_wrong = st.sampled_from([*fields, "surprise"]).flatmap(
        lambda name: st.fixed_dictionaries(
            {**{key: value for key, value in sound.items() if key != name}, name: weird}
        )
    )
    raw = draw(
        st.one_of(
            st.one_of(content, one_wrong).map(lambda value: json.dumps(value).encode()),
            st.sampled_from(RAW_BODIES),
        )
    )
    kind = draw(st.sampled_from(["application/json"] * 6 + CONTENT_TYPES))
    key = draw(st.sampled_from([None] * 6 + KEYS))
    headers = {"Content-Type": kind} | ({} if key is None else {"Idempotency-Key": key})
    return "/".join(parts) + (f"?{query}" if query else ""), raw, headers
