"""A human's verb carries what its page showed. When that is not what stands, nothing happens, and the person sees
what does."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from coordination import digests, takeovers, tasks
from coordination.models import Role, Task
from titen.api.doors import transact

from .auditing import log_in as admin_browser
from .auditing import send
from .cast import Agent, Company, Human
from .dump import changed_since, table_digests
from .locking import together
from .scenes import Scene, Stage, make_scene
from .sessions import Session
from .visitors import Visit, said


@pytest.fixture
def stage(company: Company, agent: Agent, other: Agent, admin: Human) -> Stage:
    return Stage(company, agent, other, admin)


def _block_anew(scene: Scene) -> None:
    """A colleague closes the blocker that the page shows, and opens another one."""
    scene.by_human(tasks.unblock)
    scene.by_human(tasks.block, sentence="Wait for the lawyers.")


def _reopen_and_cancel(scene: Scene) -> None:
    scene.by_human(tasks.reopen)
    scene.by_human(tasks.cancel)


def _keep_for_another(scene: Scene) -> None:
    scene.by_human(takeovers.take_over, to=scene.stage.other.principal, reason="Yours.", epoch=0)


def _block(scene: Scene) -> None:
    scene.by_human(tasks.block, sentence="Wait for the lawyers.")


def _raise(scene: Scene) -> None:
    scene.by_human(tasks.set_priority, priority=50)


def _claim(scene: Scene) -> None:
    scene.hold()


@dataclass
class Stale:
    """A verb, the state in which its page was loaded, and what happened since. The board's form has `fields`."""

    verb: str
    state: str
    since: Callable[[Scene], None]
    fields: dict[str, Any]


STALE = {
    "unblock, a newer blocker": Stale("unblock", "held_and_blocked_by_hand", _block_anew, {}),
    "reopen, cancelled again": Stale("reopen", "cancelled", _reopen_and_cancel, {}),
    "reopen, blocked for more": Stale("reopen", "out_of_attempts", _block, {}),
    "priority, set by a colleague": Stale("priority", "todo", _raise, {"priority": 5}),
    "block, claimed": Stale("block", "todo", _claim, {"sentence": "Stop.", "epoch": 0}),
    "block, kept for somebody": Stale("block", "todo", _keep_for_another, {"sentence": "Stop.", "epoch": 0}),
    "takeover, a newer blocker": Stale(
        "takeover", "held", _block, {"to": "queue", "reason": "It hangs.", "epoch": 1}
    ),
    "takeover, kept for somebody": Stale(
        "takeover", "todo", _keep_for_another, {"to": "queue", "reason": "Free it.", "epoch": 0}
    ),
}
CANCEL = {
    "cancel, claimed": Stale("cancel", "todo", _claim, {"reason": "Nobody began."}),
    "cancel, a newer blocker": Stale("cancel", "held", _block, {"reason": "Not needed."}),
}


def begin(stage: Stage, stale: Stale) -> tuple[Scene, str]:
    """The task, and the digest of the page that was loaded before something happened to it."""
    scene = make_scene(stage, stale.state)
    seen = scene.shown["digest"]
    stale.since(scene)
    return scene, seen


@pytest.mark.parametrize("case", STALE)
def test_a_verb_from_a_page_that_showed_something_else_is_refused(stage: Stage, case: str) -> None:
    stale = STALE[case]
    scene, seen = begin(stage, stale)
    with Session(stage.human, stage.company.url) as session:
        before = table_digests()
        path = f"/v1/tasks/{scene.task_id}/{stale.verb}"
        refused = session.post(path, {**stale.fields, "shown_digest": seen})
        assert refused.status_code == 409, refused.text
        error = refused.json()["error"]
        assert error["code"] == "CONFLICT"
        now = scene.shown
        assert error["details"] == {
            "state": now["status"],
            "current_epoch": now["epoch"],
            "digest": now["digest"],
        }
        assert changed_since(before) == []
        # Whoever looks again can act.
        again = {**stale.fields, "shown_digest": now["digest"]}
        if "epoch" in again:
            again["epoch"] = now["epoch"]
        assert session.post(path, again).status_code == 200


@pytest.mark.parametrize("case", STALE | CANCEL)
def test_the_board_refuses_it_too_and_shows_what_stands_now(stage: Stage, visit: Visit, case: str) -> None:
    stale = (STALE | CANCEL)[case]
    scene, seen = begin(stage, stale)
    ada = visit(stage.human)
    ada.open(f"/tasks/{scene.task_id}")
    before = table_digests()
    path = f"/tasks/{scene.task_id}/{stale.verb}"
    refused = ada.click(path, **stale.fields, shown_digest=seen)
    assert refused.status_code == 409
    assert "has moved on since this page was shown" in said(refused)
    assert changed_since(before) == []
    # The message brings the page as it now stands: its form can be sent.
    assert scene.shown["digest"] in refused.text
    fields = {**stale.fields, "shown_digest": scene.shown["digest"]}
    if "epoch" in fields:
        fields["epoch"] = scene.shown["epoch"]
    assert ada.click(path, **fields).status_code == 200


@pytest.mark.parametrize("verb", ["unblock", "reopen", "priority", "block", "takeover"])
def test_a_verb_that_does_not_say_what_was_shown_is_refused(stage: Stage, visit: Visit, verb: str) -> None:
    scene = make_scene(stage, "held")
    fields = next(stale.fields for stale in STALE.values() if stale.verb == verb)
    with Session(stage.human, stage.company.url) as session:
        refused = session.post(f"/v1/tasks/{scene.task_id}/{verb}", fields)
        assert refused.status_code == 400
        assert list(refused.json()["error"]["details"]["fields"]) == ["shown_digest"]
    ada = visit(stage.human)
    ada.open(f"/tasks/{scene.task_id}")
    assert ada.click(f"/tasks/{scene.task_id}/{verb}", **fields).status_code == 400


def test_every_form_of_the_task_page_carries_what_it_shows(stage: Stage, visit: Visit) -> None:
    """The digest of the task, or for the holder's own verbs the epoch of the run."""
    for state in ("todo", "held_after_takeover", "awaiting_approval", "out_of_attempts", "done"):
        scene = make_scene(stage, state)
        page = visit(stage.human).open(f"/tasks/{scene.task_id}").text
        forms = re.findall(r'<form id="verb-([a-z-]+)-form".*?</form>', page, re.S)
        assert forms
        for form in re.finditer(r'<form id="verb-([a-z-]+)-form".*?</form>', page, re.S):
            own = form[1] in ("complete", "checkpoint", "release", "fail")
            carried = 'name="epoch"' if own else f'name="shown_digest" value="{scene.shown["digest"]}"'
            assert carried in form[0], form[1]


@pytest.mark.parametrize(("verb", "state", "since"), [("cancel", "todo", _claim), ("reopen", "done", None)])
def test_the_admin_refuses_it_too(
    static_files: None, stage: Stage, verb: str, state: str, since: Callable[[Scene], None] | None
) -> None:
    scene = make_scene(stage, state)
    row = Task.objects.get(pk=scene.task)
    seen = digests.of_task(row)
    (since or _reopen_and_cancel)(scene)
    boss = admin_browser(stage.human.user)
    before = table_digests()
    refused = send(boss, Task, verb, row, shown=seen)
    assert refused.status_code == 409
    assert "Look at it again" in refused.content.decode()
    assert changed_since(before) == []


def test_an_api_key_cancels_as_before_and_may_say_what_it_saw(stage: Stage) -> None:
    scene = make_scene(stage, "todo")
    seen = scene.shown["digest"]
    _raise(scene)
    path = f"/tasks/{scene.task_id}/cancel"
    error = stage.other.refused("CONFLICT", path, {"shown_digest": seen})
    assert error["details"]["digest"] == scene.shown["digest"]
    assert stage.other.post(path)["status"] == "cancelled"


def test_of_two_colleagues_with_the_same_page_one_acts(stage: Stage, company: Company) -> None:
    """The one who comes second sees what the first did, instead of undoing it."""
    colleague = company.human(Role.OPERATOR)
    for _ in range(10):
        scene = make_scene(stage, "todo")
        seen = scene.shown["digest"]

        def set_it(human: Human, priority: int, scene: Scene = scene, seen: str = seen) -> int:
            return transact(
                lambda: tasks.set_priority(human.caller, scene.task, priority=priority, shown=seen)
            ).priority

        outcomes = together(lambda: set_it(stage.human, 5), lambda: set_it(colleague, 9))
        assert sorted(isinstance(each, int) for each in outcomes) == [False, True]
        assert scene.shown["priority"] in outcomes


def test_a_page_that_shows_a_holder_whose_lease_has_run_out_is_out_of_date_once(stage: Stage) -> None:
    """No sweeper runs here: the refusal writes down what the page did not know, so that the next one shows it."""
    scene = make_scene(stage, "held_but_run_out")
    path = f"/v1/tasks/{scene.task_id}/takeover"
    body = {"to": "me", "reason": "It is dead.", "epoch": 1}
    with Session(stage.human, stage.company.url) as session:
        refused = session.post(path, {**body, "shown_digest": scene.shown["digest"]})
        assert refused.status_code == 409
        assert scene.shown["status"] == "todo"
        assert session.post(path, {**body, "shown_digest": scene.shown["digest"]}).status_code == 200
