"""The OpenAPI document: valid, complete, and what the server really does."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.urls import URLPattern
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from playwright.sync_api import sync_playwright

from coordination.callers import EVERYTHING, SCOPES
from titen.urls import v1

from .cast import Agent
from .openapi import check_answer, document, operations
from .servers import Server


def refs(content: Any) -> set[str]:
    """Every `$ref` in a document."""
    if isinstance(content, dict):
        own = {content["$ref"]} if "$ref" in content else set()
        return own.union(*map(refs, content.values()))
    return set().union(*map(refs, content)) if isinstance(content, list) else set()


def view_methods(route: URLPattern) -> set[str]:
    """The methods that a route's view really has."""
    view: Any = route.callback
    return {name.upper() for name in ("get", "post", "put", "patch", "delete") if hasattr(view.cls, name)}


ROUTES = {
    (method, "/v1/" + re.sub(r"<str:(\w+)>", r"{\1}", str(route.pattern)))
    for route in v1
    for method in view_methods(route)
}


def test_the_document_is_valid_openapi_3_1() -> None:
    assert document()["openapi"] == "3.1.0"
    validate_schema(document())
    schemas = document()["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    assert refs(document()) <= {f"#/components/schemas/{name}" for name in schemas}


def test_it_is_made_without_a_warning(tmp_path: Path) -> None:
    call_command("spectacular", "--fail-on-warn", "--validate", "--file", str(tmp_path / "openapi.yaml"))


def test_the_document_has_exactly_the_routes() -> None:
    assert set(operations()) == ROUTES
    assert len(ROUTES) >= 32


def test_every_answer_has_a_shape_that_names_its_fields() -> None:
    """No answer is a bag of anything: shapes are closed, described, and used."""
    used = {name.rpartition("/")[2] for name in refs(document())}
    for name, schema in document()["components"]["schemas"].items():
        assert name in used, f"{name} is used by nothing"
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False, name
        assert schema.get("description"), f"{name} has no description"


def test_every_operation_says_who_may_call_it() -> None:
    for (method, path), operation in operations().items():
        ((scheme, scopes),) = operation["security"][0].items()
        assert scheme in ("key", "session"), (method, path)
        assert set(scopes) <= {*SCOPES, EVERYTHING}
        assert operation["summary"]
        assert operation["description"]
        for parameter in operation.get("parameters", []):
            assert parameter["schema"].get("description") or parameter.get("description"), (path, parameter)


def test_lists_name_their_filters() -> None:
    names = {item["name"]: item for item in operations()["GET", "/v1/tasks"]["parameters"]}
    assert set(names) == {"status", "created_by", "capability", "cursor", "limit"}
    assert "blocked" in names["status"]["schema"]["enum"]
    assert names["limit"]["schema"]["maximum"] == 200


def test_check_answer_refuses_what_the_document_does_not_promise(agent: Agent) -> None:
    made = agent.send("POST", "/tasks", {"title": "Known"})
    good = made.json()
    check_answer("POST", "/v1/tasks", 201, made.content)
    for spoil in (
        lambda body: body["data"].update(surprise=1),
        lambda body: body["data"].pop("status"),
        lambda body: body["data"].update(status="finished"),
        lambda body: body["data"].update(created_at="2026-07-30T10:58:13+00:00"),
        lambda body: body["data"].update(id="task_1"),
        lambda body: body.pop("meta"),
    ):
        bad = json.loads(json.dumps(good))
        spoil(bad)
        with pytest.raises(AssertionError):
            check_answer("POST", "/v1/tasks", 201, json.dumps(bad).encode())
    with pytest.raises(AssertionError, match="does not know"):
        check_answer("POST", "/v1/tasks", 200, made.content)
    with pytest.raises(AssertionError):
        check_answer("GET", "/v1/nowhere", 200, made.content)
    refusal = {"error": {"code": "NOT_FOUND", "message": "x"}, "meta": good["meta"]}
    with pytest.raises(AssertionError):
        check_answer("GET", "/v1/tasks", 409, json.dumps(refusal).encode())


def test_the_document_is_served_as_json_to_anybody(web: Server) -> None:
    answer = httpx.get(f"{web.url}/api/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == document()
    refused = httpx.post(f"{web.url}/api/openapi.json")
    assert refused.status_code == 405
    assert refused.json()["error"]["code"] == "METHOD_NOT_ALLOWED"


def test_the_page_renders_under_the_content_policy(web: Server) -> None:
    """Headless Chromium: everything loads, nothing violates the policy, every operation is shown."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        problems: list[str] = []
        page.on(
            "console", lambda line: problems.append(line.text) if line.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("response", lambda answer: problems.append(answer.url) if answer.status >= 400 else None)
        answer = page.goto(f"{web.url}/api/docs")
        assert answer is not None
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        page.wait_for_selector(".opblock")
        assert page.locator(".opblock").count() == len(operations())
        page.click("#operations-tasks-claim_task .opblock-summary-control")
        page.wait_for_selector("#operations-tasks-claim_task .responses-table")
        assert page.locator("text=Needs the scope").count() >= 1
        browser.close()
    assert not problems
