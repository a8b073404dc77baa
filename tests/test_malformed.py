"""Bad input is a refusal that names the field, never a 500: generated requests to every operation."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings

from coordination import identity
from coordination.events import number

from .acting import rule
from .cast import Agent, found_company
from .dump import changed_since, table_digests
from .openapi import check_answer, operations
from .servers import Server
from .weird import CREDENTIALS, DEEP, LARGE, VERY_DEEP, Sent, malformed, single_faults

Send = Callable[[str, str, bytes, dict[str, str]], tuple[int, bytes]]


@dataclass
class Scene:
    """One of everything, and a key that may do all."""

    agent: Agent
    ids: dict[str, str]
    human: Client


@pytest.fixture(scope="module")
def scene(web: Server) -> Iterator[Scene]:
    """An organization with a claimed task, an effect, a question, an approval and a spare key."""
    company = found_company(web.url)
    agent = company.agent("fuzz")
    agent.create("Claimed work")
    claim = agent.claim()
    held = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    rule(company, "allow", "deploy")
    act = {"tool": "deploy", "arguments": {"build": 41}}
    effect = agent.post("/effects", {**held, "action": act, "effect_key": "fuzzed"})
    comment = agent.post(
        f"/tasks/{claim['task']['id']}/comments", {"body": "Which one?", "blocking": True, **held}
    )
    approval = agent.post("/approvals", {**held, "question": "Go?", "options": ["Yes", "No"]})
    spare, _ = identity.issue_key(agent.principal, scopes=["tasks:read"])
    kept = agent.post("/checkpoints", {"subject_id": "fuzzed", "state": {"step": 1}})
    lease = agent.post("/leases", {"resource_type": "deploy", "resource_id": "fuzzed"})
    pinned = [{"type": "checkpoint", "id": kept["checkpoint_id"]}]
    pack = agent.post("/contexts", {"note": "Read this.", "items": pinned})
    sender = company.agent("sender")
    handoff = sender.post("/handoffs", {"to_principal": "fuzz", "subject_id": "fuzzed"})
    message = sender.post("/messages", {"to_principal": "fuzz", "body": "Read this too."})
    sender.close()
    webhook = agent.post("/webhooks", {"url": "http://127.0.0.2:9/fuzzed"})
    ping = agent.post(f"/webhooks/{webhook['webhook_id']}/test")
    human = Client(raise_request_exception=False)
    human.force_login(company.human("admin").user, backend="django.contrib.auth.backends.ModelBackend")
    ids = {
        "task_id": claim["task"]["id"],
        "run_id": held["run_id"],
        "comment_id": comment["id"],
        "approval_id": approval["id"],
        "effect_id": effect["id"],
        "key_id": f"key_{spare.pk.hex}",
        "checkpoint_id": kept["checkpoint_id"],
        "context_id": pack["context_id"],
        "handoff_id": handoff["handoff_id"],
        "message_id": message["message_id"],
        "lease_id": lease["lease_id"],
        "webhook_id": webhook["webhook_id"],
        "delivery_id": ping["delivery_id"],
    }
    yield Scene(agent, ids, human)
    agent.close()


def check_refusal(method: str, path: str, status: int, content: bytes) -> None:
    """Never a fault of the server, always the envelope, and the fields of bad input by name."""
    assert status < 500, (method, path, status, content)
    check_answer(method, path, status, content)
    if status >= 400:
        error = json.loads(content)["error"]
        # Of a handoff or a message the wrong side is told so: no field is at fault.
        if error["code"] == "VALIDATION_ERROR" and not error["message"].startswith("Only the "):
            named = error.get("details", {}).get("fields")
            assert named, (method, path, error)
            assert next(iter(named)) in error["message"], error
            assert all(sentences and all(sentences) for sentences in named.values()), error


FEW = settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
EACH = pytest.mark.parametrize(("method", "template"), sorted(operations()), ids=lambda part: str(part))
HUMAN = sorted(key for key, operation in operations().items() if "session" in operation["security"][0])


def send_strange_requests(method: str, template: str, ids: dict[str, str], send: Send) -> None:
    """Each single fault, then some mixtures."""
    operation = operations()[method, template]

    def check(request: Sent) -> None:
        status, content = send(method, *request)
        check_refusal(method, request[0], status, content)

    for request in single_faults(template, operation, ids):
        check(request)
    FEW(given(malformed(template, operation, ids))(check))()


@EACH
def test_malformed_requests_are_refused_by_name(scene: Scene, method: str, template: str) -> None:
    def send(method: str, path: str, content: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        try:
            answer = scene.agent.client.request(method, path, content=content, headers=raw)
        except httpx.RemoteProtocolError:
            # The server may close after a strange request, just when the next one is on its way.
            answer = scene.agent.client.request(method, path, content=content, headers=raw)
        return answer.status_code, answer.content

    send_strange_requests(method, template, scene.ids, send)


@pytest.mark.parametrize(("method", "template"), HUMAN, ids=lambda part: str(part))
def test_malformed_requests_of_humans_are_refused_by_name(scene: Scene, method: str, template: str) -> None:
    def send(method: str, path: str, content: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        answer = scene.human.generic(method, path, content, content_type=headers["Content-Type"])
        return answer.status_code, answer.content

    send_strange_requests(method, template, scene.ids, send)


NAMED = [
    (DEEP, "payload"),
    (VERY_DEEP, "body"),
    (b"[]", "body"),
    (b"{", "body"),
    (b'{"title":"x","title":"y"}', "body"),
    (b'\xef\xbb\xbf{"title":"x"}', "body"),
    (b'{"title":"\xff"}', "body"),
    (b'{"title":"x","payload":{"n":NaN}}', "body"),
    (b'{"title":"x","payload":{"n":1e400}}', "body"),
    (b'{"title":"a\\u0000b"}', "title"),
    (b'{"title":"x","description":"\\ud800"}', "description"),
    (b'{"title":"x","payload":{"deep":["a\\u0000"]}}', "payload"),
    (b'{"title":"x","payload":{"\\udfff":1}}', "payload"),
    (b'{"title":"x","priority":"1"}', "priority"),
    (b'{"title":"x","priority":true}', "priority"),
    (b'{"title":"x","priority":1.0}', "priority"),
    (b'{"title":"x","priority":9223372036854775808}', "priority"),
    (b'{"title":"x","surprise":1}', "surprise"),
]


@pytest.mark.parametrize(("raw", "field"), NAMED, ids=lambda part: str(part)[:40])
def test_a_body_that_cannot_be_taken_is_refused_and_the_field_named(
    scene: Scene, raw: bytes, field: str
) -> None:
    error = scene.agent.refused(
        "VALIDATION_ERROR", "/tasks", content=raw, headers={"Content-Type": "application/json"}
    )
    assert list(error["details"]["fields"]) == [field]


def test_a_body_of_more_than_a_mebibyte_is_refused_and_the_answer_arrives(scene: Scene) -> None:
    for _ in range(20):
        json_body = {"Content-Type": "application/json"}
        scene.agent.refused("PAYLOAD_TOO_LARGE", "/tasks", content=LARGE, headers=json_body)
        assert scene.agent.send("GET", "/tasks", content=LARGE).status_code == 200


FILTERS = [
    ("/tasks", "statsu=todo", "statsu"),
    ("/tasks", "status=nope", "status"),
    ("/tasks", "status=todo&status=done", "status"),
    ("/tasks", "created_by=not-an-id", "created_by"),
    ("/tasks", "capability=", "capability"),
    ("/tasks", "capability=%00", "capability"),
    ("/runs", "agent=not-an-id", "agent"),
    ("/runs", "task=run_0197f0c2a1b27c3d8e4f5a6b7c8d9e0f", "task"),
    ("/runs", "limit=0", "limit"),
    ("/approvals", "requested_by=1", "requested_by"),
    ("/approvals", "cursor=nope", "cursor"),
    ("/approvals", "status=approved", "status"),
    ("/effects", "status=approved", "status"),
    ("/effects", "kind=outward", "kind"),
    ("/effects", "lease=nope", "lease"),
    ("/effects", "principal=1", "principal"),
    ("/effects", "limit=201", "limit"),
    ("/checkpoints", "task=nope", "task"),
    ("/checkpoints", "subject_id=", "subject_id"),
    ("/events", "after=-1", "after"),
    ("/events", "kind=TASK", "kind"),
    ("/events", "task_id=1", "task_id"),
    ("/principals", "limit=1", "limit"),
    ("/handoffs", "box=outbox", "box"),
    ("/handoffs", "status=open", "status"),
    ("/messages", "unread=1", "unread"),
    ("/messages", "box=sent&unread=true", "unread"),
    ("/keys", "x=1", "x"),
]


@pytest.mark.parametrize(("path", "query", "name"), FILTERS)
def test_a_filter_that_means_nothing_is_refused_and_named(
    scene: Scene, path: str, query: str, name: str
) -> None:
    """S6: never the unfiltered list."""
    error = scene.agent.refused("VALIDATION_ERROR", f"{path}?{query}", method="GET")
    assert list(error["details"]["fields"]) == [name]


@EACH
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
