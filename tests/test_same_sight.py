"""Every answer of every route shows a reader what GET would show that reader, and no more.

The calls come from the URL table, with the bodies of `cases.routes`: a new route without a body fails here,
and so does a verb in which none of these readers succeeds.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from coordination import identity
from coordination.callers import SCOPES
from coordination.models import Run, Task
from titen.api.authentication import NO_SCOPE
from titen.urls import v1

from .acting import PUBLISH, effect, request, rule, under
from .cases.routes import PREFIXES, Call, offered
from .cast import Agent, Company, found_company
from .clockwork import uuid_of
from .leasing import named
from .servers import Server

# Stands in what only some may read; the other one in what every key with the noun's read scope may read.
HIDDEN, SHOWN = "xylophone", "marmalade"
ARGUMENTS = {"is": HIDDEN}
# Where GET shows an object, by the prefix of its id.
GETS = {
    "task": "/tasks/{id}",
    "run": "/runs/{id}",
    "lease": "/leases/{id}",
    "appr": "/approvals/{id}",
    "eff": "/effects/{id}",
    "hoff": "/handoffs/{id}",
    "ckpt": "/checkpoints/{id}",
    "ctx": "/contexts/{id}",
    "msg": "/messages/{id}",
    "whk": "/webhooks/{id}",
    "cmt": "/tasks/{task_id}/comments/{id}",
}
# Objects that no GET of their own shows: the list, and its name.
LISTS = {"key": ("/keys", "keys"), "dlv": ("/webhooks/{webhook_id}/deliveries", "deliveries")}
# The field that names an object, in the order in which they are looked for.
NAMES = ("id", "delivery_id", *(name for name in PREFIXES if name not in ("task_id", "run_id")))
# Answers within answers: what a working context or a verdict holds, a pack names or a heartbeat tells.
INNER = ("context", "verdict", "items", "reports", "resolved_approvals")
# What is said once, to whoever asked for it.
ONCE = {"api_key", "secret", "sequencer", "claim", "next", "also_revoked", "released_at", "context"}
# The parties to the work: in each verb one of them succeeds.
PARTIES = ("holder", "creator", "target")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Scene:
    """One of everything. The stranger is party to nothing."""

    company: Company
    people: dict[str, Agent]
    ids: dict[str, str]

    def key(self, name: str, scopes: list[str]) -> Agent:
        """That agent with another key."""
        _, secret = identity.issue_key(self.people[name].principal, scopes=scopes)
        agent = Agent(self.people[name].principal, secret, self.company.url)
        self.company.agents.append(agent)
        return agent


def make(url: str) -> Scene:
    """Three tasks of the creator that the holder holds: one is running, one waits for humans, one has an effect."""
    company = found_company(url)
    people = {name: company.agent(name) for name in (*PARTIES, "stranger", "bert")}
    creator, holder, target = (people[name] for name in ("creator", "holder", "target"))
    rule(company, "allow", PUBLISH["tool"])
    rule(company, "allow", "deploy")
    hidden = {"payload": {"is": HIDDEN}, "secret_refs": [f"vault://{HIDDEN}"]}
    tasks = [creator.create(SHOWN, description=SHOWN, **hidden)["id"] for _ in range(3)]
    running, waiting, acted = claims = [holder.claim(task_id=task) for task in tasks]
    creator.create(SHOWN, description=SHOWN, **hidden)
    acting = holder.post("/effects", effect(acted, {**PUBLISH, "arguments": ARGUMENTS}))
    question = {"body": SHOWN, "blocking": True, **under(waiting)}
    comment = holder.post(f"/tasks/{tasks[1]}/comments", question)
    action = {"tool": "wipe", "arguments": ARGUMENTS}
    approval = holder.post("/approvals", request(waiting, action, question=SHOWN))
    kept = holder.post("/checkpoints", {**under(running), "state": {"is": HIDDEN}})
    pin = {"type": "checkpoint", "id": kept["checkpoint_id"]}
    pack = holder.post("/contexts", {"note": HIDDEN, "items": [pin]})
    to = {"to_principal": target.principal.name}
    handoff = holder.post("/handoffs", {**to, **under(running), "message": HIDDEN})
    message = holder.post("/messages", {**to, "body": HIDDEN})
    lease = holder.post("/leases", named(SHOWN, purpose=HIDDEN))
    key = holder.post("/keys", {"scopes": ["tasks:read"], "label": HIDDEN})
    hook = holder.post("/webhooks", {"url": f"http://127.0.0.2:9/{SHOWN}"})
    ping = holder.post(f"/webhooks/{hook['webhook_id']}/test")
    for claim in claims:
        Task.objects.filter(pk=uuid_of(claim["task"]["id"])).update(last_error=HIDDEN)
        Run.objects.filter(pk=uuid_of(claim["run"]["id"])).update(error=HIDDEN)
    ids = {
        "task_id": tasks[0],
        "run_id": running["run"]["id"],
        "comment_id": comment["id"],
        "approval_id": approval["id"],
        "effect_id": acting["id"],
        "key_id": key["key_id"],
        "checkpoint_id": kept["checkpoint_id"],
        "context_id": pack["context_id"],
        "handoff_id": handoff["handoff_id"],
        "message_id": message["message_id"],
        "lease_id": lease["lease_id"],
        "webhook_id": hook["webhook_id"],
        "delivery_id": ping["delivery_id"],
    }
    assert set(ids) == set(PREFIXES)
    return Scene(company, people, ids)


@pytest.fixture
def scenes(web: Server) -> Iterator[Callable[[], Scene]]:
    """Makes scenes, each in an organization of its own."""
    made: list[Scene] = []

    def another() -> Scene:
        made.append(make(web.url))
        return made[-1]

    yield another
    for scene in made:
        for agent in scene.company.agents:
            agent.close()


def on(call: Call, scene: Scene) -> Scene:
    """The scene with the ids that this call is about: a question belongs to the task that waits."""
    if "comment_id" not in call.names:
        return scene
    waits = scene.people["holder"].get("/approvals")["approvals"][0]["task_id"]
    return replace(scene, ids={**scene.ids, "task_id": waits})


def scope_of(call: Call) -> str | None:
    """The scope that the URL table's view names for the call."""
    view: Any = next(route.callback.view_class for route in v1 if str(route.pattern) == call.route)  # type: ignore[attr-defined]
    scope = getattr(view, "scope", None) or view.scopes[call.method]
    return None if scope == NO_SCOPE else scope


def send(call: Call, scene: Scene, reader: Agent) -> Any:
    """What stands in the answer when the call succeeds, else None. A refusal shows nothing hidden."""
    body = None if call.route == "keys/<str:key_id>" else call.body(scene.ids)
    if call.route == "contexts" and body:
        body = {"items": [{"type": "task", "id": scene.ids["task_id"]}]}
    answer = reader.send(call.method, call.path(scene.ids), body)
    assert answer.status_code < 500, (call, answer.text)
    if answer.status_code >= 400:
        assert HIDDEN not in answer.text, call
        return None
    return answer.json()["data"] if answer.content else None


def objects(answer: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in an answer that has an id, with the id."""
    if isinstance(answer, list):
        for item in answer:
            yield from objects(item)
    elif isinstance(answer, dict):
        name = next((name for name in NAMES if name in answer), None)
        if name is not None:
            yield answer[name], answer
        for inner, value in answer.items():
            if inner not in INNER:
                yield from objects(value)


def looked_up(identifier: str, scene: Scene, reader: Agent) -> dict[str, Any]:
    """What GET shows this reader of an object; nothing where it is refused."""
    prefix = identifier.partition("_")[0]
    if prefix in LISTS:
        path, noun = LISTS[prefix]
        rows = reader.get(path.format(**scene.ids))[noun]
        return next((row for row in rows if identifier in row.values()), {})
    answer = reader.send("GET", GETS[prefix].format(**{**scene.ids, "id": identifier}))
    return answer.json()["data"] if answer.status_code == 200 else {}


def more_than_get(answer: Any, scene: Scene, reader: Agent) -> list[str]:
    """The fields of an answer that GET does not show this reader, or shows otherwise."""
    found = []
    for identifier, shown in objects(answer):
        known = looked_up(identifier, scene, reader)
        known = {**known.get("lease", {}), **known}
        for name, value in shown.items():
            nested = isinstance(value, dict) and any(key in value for key in NAMES)
            if name in ONCE or name in INNER or nested:
                continue
            if name not in known or known[name] != value:
                found.append(f"{identifier} {name}: {json.dumps(value)[:80]}")
    return found


VERBS = [call for call in offered() if call.method != "GET" and not call.human_only]


@pytest.mark.parametrize("call", VERBS, ids=lambda call: f"{call.method} {call.route}")
def test_a_verb_shows_what_get_shows(call: Call, scenes: Callable[[], Scene]) -> None:
    scope = scope_of(call)
    everything = [name for name in SCOPES if name != "leases:admin"]
    scene = on(call, scenes())
    # A stranger's key with no scope but the verb's: it reads nothing that the scope does not open.
    bare = scene.key("stranger", [scope or "tasks:read"])
    answer = send(call, scene, bare)
    if answer is not None:
        text = json.dumps(answer)
        opened = {"leases:admin", "tasks:claim", "webhooks:manage"}
        if scope not in opened:
            assert HIDDEN not in text
            assert SHOWN not in text
        scene = on(call, scenes())
    # A stranger's key with every scope, then the parties' keys until one succeeds.
    for name in ("stranger", *PARTIES):
        reader = scene.key(name, list({*everything, *([scope] if scope else [])}))
        answer = send(call, scene, reader)
        if answer is not None:
            assert more_than_get(answer, scene, reader) == []
            if name != "stranger":
                break
            scene = on(call, scenes())
    assert answer is not None, "no reader succeeds: what this verb shows is not tested"


def test_no_get_shows_a_stranger_what_is_hidden(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    stranger = scene.key("stranger", [name for name in SCOPES if name != "leases:admin"])
    for call in offered():
        if call.method == "GET":
            answer = stranger.client.get(f"/v1{call.path(scene.ids)}")
            assert answer.status_code in (200, 403, 404), call
            assert HIDDEN not in answer.text, call
