"""What is sent to the doors of actions: taken exactly as it is, or refused by the name of the field."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.canonical import canonical, digest

from .acting import DEPLOY, effect, effects_of, request, rule
from .cast import Agent, founded
from .servers import Server

RANDOM = "0197f0c2a1b27c3d8e4f5a6b7c8d9e0f"


@dataclass
class Desk:
    """An agent that holds a task, where everything is allowed."""

    agent: Agent
    claim: Any

    def body(self, path: str, **more: Any) -> dict[str, Any]:
        """A body that nothing is wrong with."""
        make = effect if path == "/effects" else request
        return make(self.claim, DEPLOY, **more)

    def raw(self, path: str, content: bytes) -> Any:
        """The answer to a body as it stands."""
        return self.agent.send("POST", path, content=content, headers={"Content-Type": "application/json"})


@pytest.fixture(scope="module")
def desk(web: Server) -> Iterator[Desk]:
    with founded(web.url) as company:
        agent = company.agent("clerk")
        rule(company, "allow")
        agent.create()
        yield Desk(agent, agent.claim())


@pytest.fixture(autouse=True)
def nothing_is_authorized(request: Any, desk: Desk) -> Iterator[None]:
    """Whatever is refused here has left no effect, not even a refused one: nobody could say of what."""
    before = len(effects_of(desk.agent))
    yield
    if request.node.get_closest_marker("parametrize") and "accepted" not in request.node.name:
        assert len(effects_of(desk.agent)) == before
        assert desk.agent.get("/approvals")["approvals"] == []


NO_NAMES: list[Any] = [
    "",
    " ",
    "de ploy",
    " deploy",
    "deploy ",
    "deploy\n",
    "de\tploy",
    "-deploy",
    ".deploy",
    "deploy;",
    "deploy*",
    "dерloy",  # two letters are Cyrillic
    "ｄeploy",
    "deploy\u200b",
    "de\u00adploy",
    "deplo\u0443",
    "\u202edeploy",
    "déploy",
    "x" * 201,
    None,
    0,
    True,
    ["deploy"],
    {"name": "deploy"},
]
NO_ACTIONS: list[Any] = [
    None,
    [],
    "deploy",
    1,
    {},
    {"server": "cluster"},
    {**DEPLOY, "reason": "Because."},
    {**DEPLOY, "kind": "harmless"},
    {**DEPLOY, "kind": "Other"},
    {**DEPLOY, "kind": None},
    {**DEPLOY, "kind": ["other"]},
    *({**DEPLOY, "tool": name} for name in NO_NAMES),
    *({**DEPLOY, "server": name} for name in NO_NAMES if name is not None),
    *({**DEPLOY, "arguments": wrong} for wrong in (None, [], [1], "build=41", 41, True)),
]


@pytest.mark.parametrize("path", ["/effects", "/approvals"])
@pytest.mark.parametrize("action", NO_ACTIONS, ids=lambda part: ascii(part)[:60])
def test_what_is_no_action_is_refused(path: str, action: Any, desk: Desk) -> None:
    error = desk.agent.refused("VALIDATION_ERROR", path, {**desk.body(path), "action": action})
    assert list(error["details"]["fields"]) == ["action"]
    part = next((name for name in ("tool", "server", "arguments", "kind") if _differs(action, name)), None)
    if part:
        assert error["details"]["fields"]["action"][0].startswith(f"{part}: ")


def _differs(action: Any, name: str) -> bool:
    return isinstance(action, dict) and action.get(name) != DEPLOY.get(name)


RAW = [
    ('{"x": NaN}', "body"),
    ('{"x": Infinity}', "body"),
    ('{"x": -1e400}', "body"),
    ('{"x": 1, "x": 2}', "body"),
    ('{"x": "a\\u0000b"}', "action"),
    ('{"a\\u0000b": 1}', "action"),
    ('{"x": "\\ud800"}', "action"),
    ('{"\\udfff": 1}', "action"),
    ('{"x": ' + "[" * 62 + "]" * 62 + "}", "action"),
    ('{"x": ' + "9" * 5000 + "}", "body"),
]


@pytest.mark.parametrize("path", ["/effects", "/approvals"])
@pytest.mark.parametrize(("arguments", "field"), RAW, ids=lambda part: part[:24])
def test_arguments_that_are_no_sound_json_are_refused(
    path: str, arguments: str, field: str, desk: Desk
) -> None:
    mark = '"ARGUMENTS"'
    content = json.dumps({**desk.body(path), "action": {"tool": "deploy", "arguments": "ARGUMENTS"}})
    answer = desk.raw(path, content.replace(mark, arguments).encode())
    assert answer.status_code == 400, answer.text
    assert list(answer.json()["error"]["details"]["fields"]) == [field]


WRONG: dict[str, list[Any]] = {
    "effect_key": ["", "a\nb", "a\0b", "x" * 201, 1, None, True, ["a"], {}],
    "epoch": [0, -1, "1", 1.0, True, None, 2**53, [1]],
    "run_id": ["", "1", f"task_{RANDOM}", f"RUN_{RANDOM}", None, 1, "x" * 61],
    "lease_id": ["", "1", f"run_{RANDOM}", None, 1],
    "approval_id": ["", "1", f"eff_{RANDOM}", None, 1],
    "surprise": [1],
    "kind": ["other"],
}
FIELDS = [(field, value) for field, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("field", "value"), FIELDS, ids=lambda part: ascii(part)[:60])
def test_a_field_that_means_nothing_is_refused(field: str, value: Any, desk: Desk) -> None:
    body = desk.body("/effects")
    if field == "lease_id":
        del body["run_id"]
    error = desk.agent.refused("VALIDATION_ERROR", "/effects", {**body, field: value})
    assert list(error["details"]["fields"]) == [field]


@pytest.mark.parametrize("missing", ["epoch", "action", "effect_key"])
def test_what_is_missing_is_named(missing: str, desk: Desk) -> None:
    body = {name: value for name, value in desk.body("/effects").items() if name != missing}
    error = desk.agent.refused("VALIDATION_ERROR", "/effects", body)
    assert list(error["details"]["fields"]) == [missing]


@pytest.mark.parametrize("ground", ["both", "neither"])
def test_an_effect_stands_on_a_run_or_on_a_lease(ground: str, desk: Desk) -> None:
    body = desk.body("/effects", lease_id=desk.claim["lease"]["lease_id"])
    if ground == "neither":
        del body["run_id"], body["lease_id"]
    error = desk.agent.refused("VALIDATION_ERROR", "/effects", body)
    assert list(error["details"]["fields"]) == ["run_id"]


@pytest.mark.parametrize("noun", ["run", "lease"])
def test_what_nobody_has_is_not_found(noun: str, desk: Desk) -> None:
    """And is not kept: there is nothing that it could be kept with."""
    body = desk.body("/effects")
    del body["run_id"]
    desk.agent.refused("NOT_FOUND", "/effects", {**body, f"{noun}_id": f"{noun}_{RANDOM}"})


def test_an_approval_that_nobody_needs_is_not_looked_at(desk: Desk) -> None:
    made = desk.agent.post("/effects", desk.body("/effects", approval_id=f"appr_{RANDOM}"))
    assert (made["status"], made["approval_id"]) == ("authorized", None)


NAMES = ["d", "_deploy", "Deploy2", "mcp__files__write", "kubectl/apply", "a.b:c/d@e+f-g", "x" * 200]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"accepted {name[:20]}")
def test_names_as_tools_have_them_are_accepted(name: str, desk: Desk) -> None:
    action = {"tool": name, "server": name, "arguments": {}}
    assert desk.agent.post("/effects", {**desk.body("/effects"), "action": action})["action"] == action


EXACT = [
    '{"id": 1234567890123456789}',
    '{"id": -9007199254740993}',
    '{"id": 123456789012345678901234567890}',
    '{"share": 0.1}',
    '{"share": 1.5e-9}',
    '{"share": 5e-324}',
    '{"whole": 1.0}',
    '{"nothing": null, "none": [], "empty": {}, "": ""}',
    '{"text": "\\u202e\\u200b\\u2028 \\ud83d\\ude00 e\\u0301"}',
    '{"B": 1, "a": 2, "A": 3}',
    '{"x": ' + "[" * 61 + "]" * 61 + "}",
]


@pytest.mark.parametrize("arguments", EXACT, ids=lambda text: f"accepted {text[:30]}")
def test_arguments_come_back_to_the_digit(arguments: str, desk: Desk) -> None:
    content = json.dumps({**desk.body("/effects"), "action": {"tool": "deploy", "arguments": "ARGUMENTS"}})
    answer = desk.raw("/effects", content.replace('"ARGUMENTS"', arguments).encode())
    assert answer.status_code == 201, answer.text
    made = answer.json()["data"]
    again = desk.agent.get(f"/effects/{made['id']}")
    # Compared as text: 1.0 is no 1, and a long id is no float.
    for shown in (made, again, effects_of(desk.agent)[0]):
        assert json.dumps(shown["action"]["arguments"], sort_keys=True) == json.dumps(
            json.loads(arguments), sort_keys=True
        )


WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(arguments=st.dictionaries(WORDS, VALUES, max_size=5))
def test_whatever_is_sent_is_what_is_shown_and_digested(arguments: dict[str, Any], desk: Desk) -> None:
    """The digest that an agent works out for itself is the server's."""
    action = {"tool": "deploy", "server": None, "arguments": arguments}
    sent = {**desk.body("/effects"), "action": {"tool": "deploy", "arguments": arguments}}
    made = desk.agent.post("/effects", sent)
    assert made["action_digest"] == digest(action)
    for shown in (made, desk.agent.get(f"/effects/{made['id']}")):
        assert canonical(shown["action"]) == canonical(action)
