"""What humans do to a task: take over, block, unblock, reopen, move in the queue, over HTTP as in a browser."""

from typing import Any

import pytest
from django.test import Client

from coordination import takeovers
from coordination.models import Role

from .cast import Agent, Company, Human, found_company
from .clockwork import kinds_since, last_seq, pass_time
from .scenes import Scene, Stage, make_scene


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


class Browser:
    """A logged-in human at the API's doors for humans."""

    def __init__(self, human: Human) -> None:
        self.client = Client()
        self.client.force_login(human.user, backend="django.contrib.auth.backends.ModelBackend")

    def post(self, scene: Scene, verb: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """With what the task's page shows now."""
        answer = self.client.post(
            f"/v1/tasks/{scene.task_id}/{verb}",
            {"shown_digest": scene.shown["digest"], **(body or {})},
            content_type="application/json",
        )
        return answer.status_code, answer.json()

    def do(self, scene: Scene, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        status, content = self.post(scene, verb, body)
        assert status == 200, content
        data: dict[str, Any] = content["data"]
        return data

    def refused(
        self, code: str, scene: Scene, verb: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        status, content = self.post(scene, verb, body)
        assert status >= 400
        error: dict[str, Any] = content["error"]
        assert error["code"] == code
        return error


@pytest.fixture
def browser(admin: Human) -> Browser:
    return Browser(admin)


VERBS: dict[str, dict[str, Any]] = {
    "takeover": {"to": "queue", "reason": "It hangs.", "epoch": 1},
    "block": {"sentence": "Stop."},
    "unblock": {},
    "reopen": {},
    "priority": {"priority": 3},
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_api_key_is_turned_away(stage: Stage, verb: str) -> None:
    scene = make_scene(stage, "held")
    error = stage.holder.refused("FORBIDDEN", f"/tasks/{scene.task_id}/{verb}", VERBS[verb])
    assert "human" in error["message"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_viewer_only_looks(stage: Stage, company: Company, verb: str) -> None:
    viewer = Browser(company.human(Role.VIEWER))
    error = viewer.refused("FORBIDDEN", make_scene(stage, "held"), verb, VERBS[verb])
    assert error["details"] == {"role": "operator"}


@pytest.mark.parametrize("verb", VERBS)
def test_who_is_no_member_finds_nothing(stage: Stage, verb: str) -> None:
    stranger = Browser(found_company().human(Role.ADMIN))
    stranger.refused("NOT_FOUND", make_scene(stage, "held"), verb, VERBS[verb])


# who it goes to -> (the task, the standing's reason or None)
TARGETS = {
    "me": ("in_progress", "takeover"),
    "queue": ("todo", None),
    "bert": ("todo", None),
}


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("state", ["todo", "held", "awaiting_approval", "parked", "out_of_attempts"])
def test_a_takeover_ends_what_was_open_and_starts_anew(
    stage: Stage, browser: Browser, state: str, to: str
) -> None:
    scene = make_scene(stage, state)
    shown = browser.do(scene, "takeover", {"to": to, "reason": "It hangs.", "epoch": scene.shown["epoch"]})
    status, because = TARGETS[to]
    assert (shown["status"], shown["attempt_count"], shown["open_blockers"]) == (status, 0, 0)
    assert (scene.shown["standing"] or {}).get("because") == because
    if scene.approval:
        assert stage.holder.get(f"/approvals/{scene.approval['id']}")["status"] == "cancelled"
    if state in ("held", "awaiting_approval"):
        run = stage.holder.get(f"/runs/{scene.claim['run']['id']}")
        assert (run["status"], run["lease"]["end_reason"]) == ("superseded", "revoked")
    reasons = [
        comment["body"] for comment in stage.holder.get(f"/tasks/{scene.task_id}/comments")["comments"]
    ]
    assert reasons == ["It hangs."]


def test_a_question_stays_as_a_comment_when_the_task_is_taken_over(stage: Stage, browser: Browser) -> None:
    scene = make_scene(stage, "held")
    body = {"body": "Which branch?", "blocking": True, "run_id": scene.claim["run"]["id"], "epoch": 1}
    question = stage.holder.post(f"/tasks/{scene.task_id}/comments", body)["id"]
    browser.do(scene, "takeover", {"to": "queue", "reason": "I know it.", "epoch": 1})
    path = f"/tasks/{scene.task_id}/comments/{question}"
    assert stage.holder.get(path)["withdrawn"] is True
    stage.other.refused("CONFLICT", f"{path}/answer", {"body": "main"})


def test_a_takeover_of_what_the_page_did_not_show_is_refused(stage: Stage, browser: Browser) -> None:
    scene = make_scene(stage, "held")
    error = browser.refused("CONFLICT", scene, "takeover", {"to": "me", "reason": "It hangs.", "epoch": 0})
    assert error["details"] == {
        "state": "in_progress",
        "current_epoch": 1,
        "digest": scene.shown["digest"],
    }
    assert scene.shown["standing"]["holder"] == "ada"


@pytest.mark.parametrize("to", ["nobody", "admin@example.org", f"agent_{'0' * 32}"])
def test_a_takeover_to_who_cannot_take_it_is_refused(stage: Stage, browser: Browser, to: str) -> None:
    error = browser.refused(
        "VALIDATION_ERROR", make_scene(stage, "held"), "takeover", {**VERBS["takeover"], "to": to}
    )
    assert list(error["details"]["fields"]) == ["to"]


def test_a_block_pauses_the_holder_and_an_unblock_lets_it_go_on(stage: Stage, browser: Browser) -> None:
    scene = make_scene(stage, "held")
    assert scene.send("heartbeat")["directives"] == []
    browser.do(scene, "block", {"sentence": "Wait for the freeze.", "epoch": 1})
    beat = scene.send("heartbeat")
    assert (beat["directives"], beat["run"]["status"]) == (["pause"], "waiting")
    assert [wait["sentence"] for wait in scene.shown["waits_for"]] == ["Wait for the freeze."]
    browser.refused("CONFLICT", scene, "block", {"sentence": "Again.", "epoch": 1})
    browser.do(scene, "unblock")
    beat = scene.send("heartbeat")
    assert (beat["directives"], beat["run"]["status"]) == ([], "running")
    scene.send("complete")


def test_an_unblock_leaves_what_only_a_decision_ends(stage: Stage, browser: Browser) -> None:
    scene = make_scene(stage, "awaiting_approval")
    browser.refused("CONFLICT", scene, "unblock")
    browser.do(scene, "block", {"sentence": "And wait."})
    assert browser.do(scene, "unblock")["status"] == "blocked"
    scene.decide()
    assert scene.shown["status"] == "in_progress"


@pytest.mark.parametrize("state", ["out_of_attempts", "done", "cancelled"])
def test_a_reopened_task_has_all_its_attempts_again(stage: Stage, browser: Browser, state: str) -> None:
    scene = make_scene(stage, state)
    seq = last_seq()
    shown = browser.do(scene, "reopen")
    assert (shown["status"], shown["attempt_count"], shown["finished_at"]) == ("todo", 0, None)
    assert kinds_since(scene.task_id, seq) == ["task.reopened"]
    again = stage.other.claim(task_id=scene.task_id)
    assert again["lease"]["epoch"] == scene.claim["lease"]["epoch"] + 1


def test_a_reopening_closes_the_attempts_blocker_only(stage: Stage, browser: Browser) -> None:
    scene = make_scene(stage, "out_of_attempts")
    browser.do(scene, "block", {"sentence": "Think first."})
    assert browser.do(scene, "reopen")["status"] == "blocked"
    assert browser.do(scene, "unblock")["status"] == "todo"


def test_priority_moves_a_task_to_the_head_of_the_queue(stage: Stage, browser: Browser) -> None:
    make_scene(stage, "todo")
    late = make_scene(stage, "todo")
    browser.do(late, "priority", {"priority": 50})
    assert stage.other.claim()["task"]["id"] == late.task_id


# ---- dependencies


def chain(stage: Stage) -> tuple[Scene, Scene]:
    """A task and one that waits for it."""
    first = make_scene(stage, "todo")
    return first, Scene(stage).create(depends_on=[first.task_id])


def cancel(scene: Scene) -> None:
    scene.stage.holder.post(f"/tasks/{scene.task_id}/cancel")


def complete(scene: Scene) -> None:
    scene.hold().send("complete")


def test_a_cancelled_dependency_blocks_until_somebody_waives_it(stage: Stage, browser: Browser) -> None:
    first, after = chain(stage)
    cancel(first)
    assert [wait["kind"] for wait in after.shown["waits_for"]] == ["dependency", "dependency"]
    shown = browser.do(after, "unblock")
    assert (shown["status"], shown["open_dependencies"]) == ("todo", 0)
    assert stage.other.claim(task_id=after.task_id)


def test_or_until_it_is_reopened_and_done(stage: Stage, browser: Browser) -> None:
    first, after = chain(stage)
    cancel(first)
    browser.do(first, "reopen")
    assert (after.shown["status"], after.shown["open_dependencies"]) == ("todo", 1)
    complete(first)
    assert stage.other.claim(task_id=after.task_id)


def test_a_waiver_outlives_the_reopening_of_what_was_cancelled(stage: Stage, browser: Browser) -> None:
    first, after = chain(stage)
    cancel(first)
    browser.do(after, "unblock")
    browser.do(first, "reopen")
    assert after.shown["open_dependencies"] == 0


def test_a_reopened_dependency_is_waited_for_again(stage: Stage, browser: Browser) -> None:
    first, after = chain(stage)
    complete(first)
    browser.do(first, "reopen")
    assert after.shown["open_dependencies"] == 1
    stage.other.refused("NOT_CLAIMABLE", "/tasks/claim", {"task_id": after.task_id})
    complete(first)
    assert stage.other.claim(task_id=after.task_id)


@pytest.mark.parametrize("to", ["queue", "bert"])
def test_a_takeover_waives_a_cancelled_dependency(stage: Stage, browser: Browser, to: str) -> None:
    """Else the task would wait for ever, and nothing would say why."""
    scene = make_scene(stage, "after_a_cancelled_dependency")
    browser.do(scene, "takeover", {"to": to, "reason": "Do it anyway.", "epoch": 0})
    assert stage.other.claim(task_id=scene.task_id)


def test_what_depends_on_something_cancelled_is_reopened_blocked(stage: Stage, browser: Browser) -> None:
    scene = make_scene(stage, "after_a_cancelled_dependency")
    cancel(scene)
    shown = browser.do(scene, "reopen")
    assert (shown["status"], shown["open_blockers"]) == ("blocked", 1)
    assert browser.do(scene, "unblock")["status"] == "todo"


def test_a_human_at_work_is_told_that_a_dependency_was_cancelled(stage: Stage, browser: Browser) -> None:
    first, after = chain(stage)
    browser.do(after, "takeover", {"to": "me", "reason": "I start early.", "epoch": 0})
    cancel(first)
    assert (after.shown["status"], after.shown["standing"]["because"]) == ("blocked", "takeover")
    assert browser.do(after, "unblock")["status"] == "in_progress"


def test_cancellation_ends_questions_with_the_task_and_what_was_done_is_unknown(
    stage: Stage, browser: Browser
) -> None:
    scene = make_scene(stage, "authorized").ask()
    cancel(scene)
    assert stage.holder.get(f"/approvals/{scene.approval['id']}")["status"] == "cancelled"
    assert stage.holder.get(f"/effects/{scene.effect['id']}")["status"] == "unknown"
    # Whoever takes the task up again has to find that out first.
    browser.do(scene, "reopen")
    scene.hold()
    assert [each["id"] for each in scene.claim["context"]["effects"]] == [scene.effect["id"]]
    body = {"epoch": scene.claim["lease"]["epoch"]}
    stage.holder.refused("EFFECTS_UNRECONCILED", f"/runs/{scene.claim['run']['id']}/complete", body)
    scene.report("failed")
    assert scene.send("complete")["task"]["status"] == "done"


def test_a_task_made_after_its_dependency_was_cancelled_is_blocked_from_the_start(stage: Stage) -> None:
    first = make_scene(stage, "cancelled")
    after = stage.holder.create("Comes after", depends_on=[first.task_id])
    assert (after["status"], after["open_blockers"]) == ("blocked", 1)
    assert after["open_dependencies"] == 1


def test_backoff_ends_with_a_takeover(stage: Stage, browser: Browser) -> None:
    scene = make_scene(stage, "todo_in_backoff")
    browser.do(scene, "takeover", {"to": "queue", "reason": "Now.", "epoch": 1})
    pass_time(scene.task_id, "avoided_until")
    assert stage.holder.claim(task_id=scene.task_id)
    assert takeovers.AVOIDED_AFTER_TAKEOVER.total_seconds() == 300
