"""Bad input is a refusal that names the field, never a 500: generated requests to every operation."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination import identity
from coordination.events import number

from .cast import Agent, found_company
from .dump import changed_since, table_digests
from .openapi import check_answer, document, operations
from .servers import Server
from .weird import CONTENT_TYPES, CREDENTIALS, IDS, KEYS, QUERIES, RAW_BODIES, VALUES


def example_of(schema: dict[str, Any], name: str, ids: dict[str, str]) -> Any:
    """A plausible value for one field of a body."""
    if name in ids:
        return ids[name]
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


@dataclass
class Scene:
    """One of everything, and a key that may do all."""

    agent: Agent
    ids: dict[str, str]
    human: Client


@pytest.fixture(scope="module")
def scene(web: Server) -> Iterator[Scene]:
    """An organization with a claimed task, a question, an approval and a spare key."""
    company = found_company(web.url)
    agent = company.agent("fuzz")
    agent.create("Claimed work")
    claim = agent.claim()
    held = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    comment = agent.post(
        f"/tasks/{claim['task']['id']}/comments", {"body": "Which one?", "blocking": True, **held}
    )
    approval = agent.post("/approvals", {**held, "question": "Go?", "options": ["Yes", "No"]})
    spare, _ = identity.issue_key(agent.principal, scopes=["tasks:read"])
    human = Client(raise_request_exception=False)
    human.force_login(company.human("admin").user, backend="django.contrib.auth.backends.ModelBackend")
    ids = {
        "task_id": claim["task"]["id"],
        "run_id": held["run_id"],
        "comment_id": comment["id"],
        "approval_id": approval["id"],
        "key_id": f"key_{spare.pk.hex}",
    }
    yield Scene(agent, ids, human)
    agent.close()


@st.composite
def malformed(
    draw: Any, template: str, operation: dict[str, Any], ids: dict[str, str]
) -> tuple[str, dict[str, Any]]:
    """A path with a query, and what else to send: each part sound or not."""
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
    return "/".join(parts) + (f"?{query}" if query else ""), {"content": raw, "headers": headers}


def check_refusal(method: str, path: str, status: int, content: bytes) -> None:
    """Never a fault of the server, always the envelope, and the fields of bad input by name."""
    assert status < 500, (method, path, status, content)
    check_answer(method, path, status, content)
    if status >= 400:
        error = json.loads(content)["error"]
        if error["code"] == "VALIDATION_ERROR":
            named = error.get("details", {}).get("fields")
            assert named, (method, path, error)
            assert next(iter(named)) in error["message"], error
            assert all(sentences and all(sentences) for sentences in named.values()), error


FEW = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


@pytest.mark.parametrize(("method", "template"), sorted(operations()), ids=lambda part: str(part))
def test_malformed_requests_are_refused_by_name(scene: Scene, method: str, template: str) -> None:
    operation = operations()[method, template]

    @FEW
    @given(malformed(template, operation, scene.ids))
    def send(request: tuple[str, dict[str, Any]]) -> None:
        path, options = request
        headers = {name.encode(): value.encode("latin-1") for name, value in options["headers"].items()}
        answer = scene.agent.client.request(
            method, path, content=options["content"], headers=list(headers.items())
        )
        check_refusal(method, path, answer.status_code, answer.content)

    send()


HUMAN = sorted(key for key, operation in operations().items() if "session" in operation["security"][0])


@pytest.mark.parametrize(("method", "template"), HUMAN, ids=lambda part: str(part))
def test_malformed_requests_of_humans_are_refused_by_name(scene: Scene, method: str, template: str) -> None:
    operation = operations()[method, template]

    @FEW
    @given(malformed(template, operation, scene.ids))
    def send(request: tuple[str, dict[str, Any]]) -> None:
        path, options = request
        answer = scene.human.generic(
            method, path, options["content"], content_type=options["headers"]["Content-Type"]
        )
        check_refusal(method, path, answer.status_code, answer.content)

    send()


@pytest.mark.parametrize(("method", "template"), sorted(operations()), ids=lambda part: str(part))
def test_strange_credentials_are_unauthenticated(scene: Scene, method: str, template: str) -> None:
    path = template.format(**scene.ids)
    before = table_digests()
    with httpx.Client(base_url=scene.agent.url, verify=False) as client:
        for credential in CREDENTIALS:
            answer = client.request(method, path, headers=[(b"Authorization", credential)])
            assert answer.status_code == 401, (credential, answer.text)
            check_refusal(method, path, answer.status_code, answer.content)
    assert changed_since(before) == []


@pytest.mark.parametrize("template", sorted({path for _, path in operations()}))
def test_head_and_options_change_nothing(scene: Scene, template: str) -> None:
    path = template.format(**scene.ids)
    methods = {method for method, known in operations() if known == template}
    # A reader gives positions to events that have none yet; nothing else may change.
    number()
    before = table_digests()
    head = scene.agent.client.head(path)
    options = scene.agent.client.options(path)
    others = {
        method: scene.agent.client.request(method, path)
        for method in {"PUT", "PATCH", "TRACE", "DELETE", "GET", "POST"} - methods
    }
    assert changed_since(before) == []
    assert head.content == b""
    if any(template == known for _, known in HUMAN):
        assert {head.status_code, options.status_code, *(item.status_code for item in others.values())} == {
            403
        }
        return
    assert head.status_code == (200 if "GET" in methods else 405)
    assert options.status_code == 200
    assert set(options.headers["allow"].split(", ")) >= methods
    for method, refused in others.items():
        assert refused.status_code == 405, (method, refused.text)
        assert set(refused.headers["allow"].split(", ")) >= methods
        assert refused.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
        assert method in refused.json()["error"]["message"]
