"""Every code of the table is produced, and its message read as a model would read it."""

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import OperationalError
from django.test import Client
from psycopg.errors import LockNotAvailable

from coordination import takeovers, tasks
from titen.api import envelope
from titen.errors import CODES, Refused

from .acting import deploy, effect, request, rule
from .clockwork import bring_into_jeopardy, let_approval_run_out, let_lease_run_out, pass_time
from .scenes import Scene, Stage, make_scene, question, set_stage
from .servers import Server

# What tells the reader what to do now.
NEXT_STEP = re.compile(
    r"\b(Correct|Send|Do not|do not|Ask|Check|Read|Allowed|Use|Wait|Claim|claim|Stop|Request|Keep|Report|try again|"
    r"choose)\b"
)
LONGEST = 220


@pytest.fixture(scope="module")
def stage(web: Server) -> Any:
    stage = set_stage(web.url)
    yield stage
    for agent in stage.company.agents:
        agent.close()


def read(code: str, status: int, error: dict[str, Any]) -> None:
    """What holds for every message: the code's status, and a short, final text with the next step."""
    message = error["message"]
    assert error["code"] == code
    assert status == CODES[code].status
    assert len(message) <= LONGEST
    assert message[0].isupper() or message[0].isdigit()
    assert message.endswith(".")
    assert not re.search(r"[{}\n]|None|\.\.|_seconds\b.*_seconds", message), message
    assert NEXT_STEP.search(message), f"{code} does not say what to do: {message}"


Answer = tuple[int, dict[str, Any]]


def _send(stage: Stage, path: str, body: Any = None, method: str = "POST", **options: Any) -> Answer:
    answer = stage.holder.send(method, path, body, **options)
    return answer.status_code, answer.json()["error"]


def _ended(state: str) -> Callable[[Stage], Answer]:
    """The heartbeat of a run whose scene is over."""

    def produce(stage: Stage) -> Answer:
        claim = make_scene(stage, state).claim
        return _send(stage, f"/runs/{claim['run']['id']}/heartbeat", {"epoch": claim["lease"]["epoch"]})

    return produce


def _unauthenticated(stage: Stage) -> Answer:
    return _send(stage, "/tasks", method="GET", headers={"Authorization": "Bearer titen_sk_unknown"})


def _forbidden(stage: Stage) -> Answer:
    reader = stage.company.agent(scopes="tasks:read")
    answer = reader.send("POST", "/tasks", {"title": "Not for readers"})
    assert "tasks:write" in answer.json()["error"]["message"]
    return answer.status_code, answer.json()["error"]


def _mismatch(stage: Stage) -> Answer:
    key = {"Idempotency-Key": "code-mismatch"}
    stage.holder.post("/tasks", {"title": "First"}, headers=key)
    return _send(stage, "/tasks", {"title": "Second"}, headers=key)


def _not_holder(stage: Stage) -> Answer:
    claim = make_scene(stage, "held").claim
    answer = stage.other.send(
        "POST", f"/runs/{claim['run']['id']}/heartbeat", {"epoch": claim["lease"]["epoch"]}
    )
    return answer.status_code, answer.json()["error"]


def _complete(prepare: Callable[[Any], None], *, epoch_off: int = 0) -> Callable[[Stage], Answer]:
    def produce(stage: Stage) -> Answer:
        scene = make_scene(stage, "held")
        prepare(scene)
        claim = scene.claim
        return _send(
            stage,
            f"/runs/{claim['run']['id']}/complete",
            {"epoch": claim["lease"]["epoch"] + epoch_off},
        )

    return produce


def _claim(state: str) -> Callable[[Stage], Answer]:
    return lambda stage: _send(stage, "/tasks/claim", {"task_id": make_scene(stage, state).task_id})


def _decide(*, late: bool = False, digest: str | None = None) -> Callable[[Stage], Answer]:
    """A human decides over HTTP, in a browser's session."""

    def produce(stage: Stage) -> Answer:
        approval = make_scene(stage, "awaiting_approval").approval
        if late:
            let_approval_run_out(approval["id"])
        browser = Client()
        browser.force_login(stage.human.user, backend="django.contrib.auth.backends.ModelBackend")
        answer = browser.post(
            f"/v1/approvals/{approval['id']}/decide",
            {"option": "Approve", "shown_digest": digest or approval["digest"]},
            content_type="application/json",
        )
        return answer.status_code, answer.json()["error"]

    return produce


def _authorize(state: str, prepare: Callable[[Scene], Any] = lambda scene: None) -> Callable[[Stage], Answer]:
    """The holder wants what its approval is about, or what needs one."""

    def produce(stage: Stage) -> Answer:
        scene = make_scene(stage, state)
        scene.action = scene.action or deploy()
        prepare(scene)
        return _send(stage, "/effects", effect(scene.claim, scene.action))

    return produce


def _voided(scene: Scene) -> None:
    """A human took the task, and gave it back: whoever approved did not approve that."""
    scene.by_human(takeovers.take_over, to=None, reason="Let me see.", epoch=scene.shown["epoch"])
    pass_time(scene.task_id, "avoided_until")
    scene.hold()


def _forbid(scene: Scene) -> None:
    scene.action = {"tool": "drop_database", "arguments": {}}
    rule(scene.stage.company, "deny", "drop_*")


def _ask_twice(stage: Stage) -> Answer:
    scene = make_scene(stage, "held").ask_for(deploy())
    return _send(stage, "/approvals", request(scene.claim, scene.action))


def _flood(stage: Stage) -> Answer:
    """More questions than a human should read about one task."""
    scene = make_scene(stage, "held")
    asked = [stage.holder.post("/approvals", request(scene.claim, deploy())) for _ in range(5)]
    answer = stage.holder.send("POST", "/approvals", request(scene.claim, deploy()))
    assert answer.headers["Retry-After"] == "60"
    error = answer.json()["error"]
    assert error["details"]["pending"] == [each["id"] for each in asked]
    return answer.status_code, error


def _broken(problem: Callable[[], Exception]) -> Callable[[Stage], Answer]:
    """A rule that meets what nobody wants to meet, behind the real doors."""

    def produce(stage: Stage) -> Answer:
        def meet(*_: Any, **__: Any) -> None:
            raise problem()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tasks, "create", meet)
            answer = Client(raise_request_exception=False).post(
                "/v1/tasks",
                {"title": "Meets trouble"},
                content_type="application/json",
                HTTP_AUTHORIZATION=f"Bearer {stage.holder.secret}",
            )
        if answer.status_code == 503:
            assert answer["Retry-After"] == "1"
        return answer.status_code, answer.json()["error"]

    return produce


def _database_says(cause: type[psycopg.Error]) -> Callable[[], Exception]:
    def problem() -> Exception:
        error = OperationalError("the server said no")
        error.__cause__ = cause("the server said no")
        return error

    return problem


def _later(**words: Any) -> Callable[[str], Answer]:
    """A code whose door a later issue builds: the refusal itself, in the envelope that all doors share."""

    def produce(code: str) -> Answer:
        response = envelope.refusal_response(Refused(code, **words))
        return response.status_code, response.data

    return produce


OVER_HTTP: dict[str, Callable[[Stage], Answer]] = {
    "VALIDATION_ERROR": lambda stage: _send(stage, "/tasks", {"title": "x", "priority": "high"}),
    "UNAUTHENTICATED": _unauthenticated,
    "FORBIDDEN": _forbidden,
    "NOT_FOUND": lambda stage: _send(stage, f"/tasks/task_{'0' * 32}", method="GET"),
    "METHOD_NOT_ALLOWED": lambda stage: _send(stage, "/tasks", method="DELETE"),
    "PAYLOAD_TOO_LARGE": lambda stage: _send(stage, "/tasks", {"title": "x", "description": "y" * 1_100_000}),
    "UNSUPPORTED_MEDIA_TYPE": lambda stage: _send(
        stage, "/tasks", content=b"title=x", headers={"Content-Type": "application/x-www-form-urlencoded"}
    ),
    "IDEMPOTENCY_MISMATCH": _mismatch,
    "CONFLICT": _ended("todo_released"),
    "NOT_HOLDER": _not_holder,
    "ALREADY_COMPLETED": _ended("done"),
    "LEASE_EXPIRED": _ended("held_but_run_out"),
    "LEASE_SUPERSEDED": _ended("held_after_takeover"),
    "TASK_CANCELLED": _ended("cancelled"),
    "STALE_EPOCH": _complete(lambda scene: None, epoch_off=1),
    "LEASE_IN_JEOPARDY": _complete(lambda scene: bring_into_jeopardy(scene.claim)),
    "EFFECTS_UNRECONCILED": _complete(lambda scene: scene.act().act()),
    "POLICY_DENIED": _authorize("held", _forbid),
    "RATE_LIMITED": _flood,
    "APPROVAL_REQUIRED": _authorize("held"),
    "APPROVAL_PENDING": _ask_twice,
    "APPROVAL_DENIED": _authorize("denied"),
    "APPROVAL_VOID": _authorize("approved", _voided),
    "ALREADY_CONSUMED": _authorize("approved", lambda scene: scene.act(scene.action)),
    "NOT_CLAIMABLE": _claim("todo_with_dependency"),
    "RESERVED": _claim("todo_for_another"),
    "APPROVAL_EXPIRED": _decide(late=True),
    "DIGEST_MISMATCH": _decide(digest="0" * 64),
    "VERSION_MISMATCH": lambda stage: _send(
        stage, "/checkpoints", {"subject_id": "customer-7", "state": 1, "expected_version": 7}
    ),
    "INTERNAL": _broken(lambda: ZeroDivisionError("nobody foresaw this")),
    "OVERLOADED": _broken(_database_says(LockNotAvailable)),
    "NOT_READY": _broken(_database_says(psycopg.OperationalError)),
}
LATER: dict[str, Callable[[str], Answer]] = {
    "CURSOR_TOO_OLD": _later(floor=1200),
}


def test_every_code_is_produced_by_one_of_the_two_tables() -> None:
    assert set(OVER_HTTP) | set(LATER) == set(CODES)
    assert not set(OVER_HTTP) & set(LATER)


@pytest.mark.parametrize("code", OVER_HTTP)
def test_a_code_that_a_door_produces(stage: Stage, code: str) -> None:
    read(code, *OVER_HTTP[code](stage))


@pytest.mark.parametrize("code", LATER)
def test_a_code_of_a_later_door(code: str) -> None:
    read(code, *LATER[code](code))


def test_a_refusal_names_what_it_is_about(stage: Stage) -> None:
    """Details hold what a program needs: the field, the state, what is allowed in it, what is waited for."""
    claim = make_scene(stage, "held").claim
    path = f"/runs/{claim['run']['id']}"
    assert stage.holder.refused("STALE_EPOCH", f"{path}/fail", {"epoch": 99, "error": "x"})["details"] == {
        "current_epoch": claim["lease"]["epoch"]
    }
    let_lease_run_out(claim)
    late = stage.holder.refused(
        "LEASE_EXPIRED", f"{path}/fail", {"epoch": claim["lease"]["epoch"], "error": "x"}
    )
    assert late["details"] == {"run": "running", "task": "in_progress"}
    done = make_scene(stage, "done")
    refused = stage.holder.refused("CONFLICT", f"/tasks/{done.task_id}/cancel")
    assert refused["details"] == {"state": "done", "allowed": ["reopen"]}
    waits = stage.holder.refused(
        "NOT_CLAIMABLE", "/tasks/claim", {"task_id": make_scene(stage, "parked").task_id}
    )["details"]["waits_for"]
    assert [wait["kind"] for wait in waits] == ["approval"]
    bad = stage.holder.refused("VALIDATION_ERROR", "/approvals", question(claim, options=["Yes"]))
    assert list(bad["details"]["fields"]) == ["options"]
