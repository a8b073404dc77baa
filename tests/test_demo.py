"""The demo: its data is made once, and its agents keep their stories."""

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import call_command
from django.db import connections, transaction

from approvals import outcomes, policy_edits
from approvals.decisions import decide, expire, lift_denial
from approvals.models import Approval, Effect, EffectStatus, Kind, PolicyRule, ToolEntry
from approvals.policy_terms import ToolTerms, row_digest
from coordination import comments, leasing, tasks
from coordination.callers import Caller
from coordination.identity import digest_of
from coordination.models import (
    ApiKey,
    CheckpointVersion,
    Comment,
    Handoff,
    Lease,
    LeaseEnd,
    Message,
    Organization,
    Task,
    User,
)
from coordination.sweeping import sweep_batch
from titen.api.authentication import human
from titen.api.ids import public_id
from titen.client import NotFound, Titen
from titen.demo import backlog, deployment, documents, policy, refill, seeding, team
from titen.demo.agents import acting, linter, pace
from titen.demo.agents.__main__ import AGENTS
from titen.demo.credentials import Credentials
from titen.demo.places import Places
from titen.demo.work import Outcome, Report
from titen.supervisor.services import DEMO_AGENTS

from .clockwork import let_approval_run_out
from .processes import eventually
from .servers import Server


def quiet(percent: int, status: str) -> None:
    """A report to nobody."""


def test_every_task_has_one_agent_that_can_do_it() -> None:
    assert set(DEMO_AGENTS) == set(AGENTS) == set(team.AGENTS)
    for item in [*backlog.ITEMS.values(), backlog.housekeeping(3)]:
        able = [name for name, agent in team.AGENTS.items() if item.capability in agent.capabilities]
        assert len(able) == 1, item.title
    for batch in [backlog.FIRST, *backlog.ROUNDS]:
        for number, name in enumerate(batch):
            assert name in backlog.ITEMS
            assert not set(backlog.ITEMS[name].after) & set(batch[number:]), "a dependency comes first"


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    """The demo's places without the pauses for people."""
    monkeypatch.setattr(pace, "time", SimpleNamespace(sleep=lambda seconds: None))
    return Places.here()


@pytest.fixture
def credentials(database: None, places: Places) -> Credentials:
    return seeding.seed(places)


def test_the_data_is_made_once(credentials: Credentials, places: Places) -> None:
    tasks = set(Task.objects.filter(organization__slug="demo").values_list("pk", flat=True))
    assert len(tasks) >= 12
    assert seeding.seed(places) == credentials
    assert set(Task.objects.filter(organization__slug="demo").values_list("pk", flat=True)) == tasks
    assert stat.S_IMODE(places.credentials.stat().st_mode) == 0o600


def test_lost_credentials_are_replaced_and_the_old_keys_end(
    credentials: Credentials, places: Places, web: Server
) -> None:
    places.credentials.unlink()
    renewed = seeding.seed(places)
    assert not set(renewed.passwords.values()) & set(credentials.passwords.values())
    for name, agent in team.AGENTS.items():
        assert ApiKey.objects.get(digest=digest_of(credentials.keys[name])).revoked_at is not None
        with Titen(web.url, renewed.keys[name]) as titen:
            who = titen.principal()
        assert (who["name"], set(who["scopes"])) == (name, set(agent.scopes.split()))


@dataclass
class Desk:
    """Gives a task to an agent of the demo, in this process."""

    url: str
    keys: dict[str, str]
    human: Caller

    def create(self, item: backlog.Item) -> Task:
        with transaction.atomic(durable=True):
            return tasks.create(self.human, **item.fields())

    def attempt(self, name: str, task: Task) -> Task:
        """One attempt, to its end; the task as it then stands."""
        with Titen(self.url, self.keys[name]) as titen:
            run = titen.claim(task_id=public_id("task", task.pk))
            assert run is not None
            with suppress(ValueError), run:
                AGENTS[name](titen, run)
        task.refresh_from_db()
        return task

    def beside(self, name: str, task: Task) -> "Future[Task]":
        """The same in a thread, for one that waits for people."""
        return POOL.submit(self._alone, name, task)

    def _alone(self, name: str, task: Task) -> Task:
        try:
            return self.attempt(name, task)
        finally:
            connections.close_all()

    def decide(self, task: Task, option: str, reason: str = "") -> Approval:
        """Wait for the approval, and decide."""
        approval = eventually(lambda: Approval.objects.filter(task=task, status="pending").first())
        assert approval is not None
        with transaction.atomic(durable=True):
            return decide(self.human, approval.pk, option=option, shown_digest=approval.digest, reason=reason)

    def lift(self, denied: Approval) -> None:
        """Take a denial back: it would hold for what other tests ask."""
        with transaction.atomic(durable=True):
            lift_denial(self.human, denied.pk)


POOL = ThreadPoolExecutor(2)


@pytest.fixture
def desk(web: Server, credentials: Credentials) -> Desk:
    caller = human(User.objects.get(email=seeding.ADMIN), Organization.objects.get(slug="demo").pk)
    assert caller is not None
    return Desk(web.url, credentials.keys, caller)


def statuses(task: Task) -> list[tuple[str, str]]:
    """What was attempted for a task, in order: the tool and what came of it."""
    return [
        (effect.action["tool"], effect.status) for effect in Effect.objects.filter(task=task).order_by("pk")
    ]


def test_a_scratch_folder_goes_only_when_a_human_lets_it(desk: Desk, places: Places) -> None:
    assert desk.attempt("archivist", desk.create(backlog.ITEMS["copy"])).status == "done"
    kept = desk.create(backlog.ITEMS["remove"])
    ended = desk.beside("janitor", kept)
    approval = desk.decide(kept, "deny", "I still read it.")
    assert approval.question == f"Remove {deployment.describe(places.scratch)}?"
    assert (approval.kind, approval.risk) == ("destructive", "high")
    assert ended.result(20).summary == (
        "Not done: demo-scratch is kept: a human decided “deny” (I still read it.)."
    )
    assert places.scratch.exists()
    assert statuses(kept) == [("delete-folder", "refused"), ("label", "succeeded")]
    assert places.labels.read_text().endswith(
        "demo-scratch: is kept: a human decided “deny” (I still read it.)\n"
    )
    # It is final: the next one does not ask again, until somebody takes the no back.
    refused = desk.attempt("janitor", desk.create(backlog.ITEMS["remove"]))
    assert refused.summary == ended.result().summary
    desk.lift(approval)

    removed = desk.create(backlog.ITEMS["remove"])
    ended = desk.beside("janitor", removed)
    desk.decide(removed, "approve")
    assert ended.result(20).status == "done"
    assert statuses(removed) == [("delete-folder", "refused"), ("delete-folder", "succeeded")]
    assert not places.scratch.exists()
    confirmed = desk.attempt("janitor", desk.create(backlog.ITEMS["confirm"]))
    assert confirmed.summary == "demo-scratch is gone."


def test_what_was_approved_is_what_is_removed(desk: Desk, places: Places) -> None:
    places.scratch.mkdir()
    (places.scratch / "seen").touch()
    task = desk.create(backlog.ITEMS["remove"])
    ended = desk.beside("janitor", task)
    eventually(lambda: Approval.objects.filter(task=task, status="pending").exists())
    (places.scratch / "unseen").touch()
    desk.decide(task, "approve")
    assert ended.result(20).status == "todo"
    assert statuses(task)[-1] == ("delete-folder", "failed")
    assert (places.scratch / "unseen").exists()
    deployment.remove(places.scratch, quiet)


def test_a_build_is_rolled_back_after_a_decision_and_nobody_is_asked_twice(
    desk: Desk, places: Places
) -> None:
    service = places.service(backlog.SERVICE)
    task = desk.create(backlog.ITEMS["roll-back"])
    ended = desk.beside("janitor", task)
    approval = desk.decide(task, "approve")
    assert approval.question == "Roll checkout-service back to build 41?"
    assert approval.verdict is not None
    assert (approval.risk, approval.verdict["rule"]["tool"]) == ("high", "deploy")
    assert ended.result(20).result == {"from": 42, "to": 41}
    assert statuses(task)[-1] == ("deploy", "succeeded")
    again = desk.attempt("janitor", desk.create(backlog.ITEMS["roll-back"]))
    assert again.summary == "checkout-service runs build 41 already."
    deployment.switch_build(service, 42, quiet)


def test_nobody_else_deploys_while_the_janitor_waits_for_a_decision_and_switches(
    desk: Desk, places: Places
) -> None:
    task = desk.create(backlog.ITEMS["roll-back"])
    ended = desk.beside("janitor", task)
    held = eventually(
        lambda: Lease.objects.filter(
            organization__slug="demo", resource__resource_id=backlog.SERVICE, ended_at=None
        ).first()
    )
    assert held is not None
    assert (held.principal.name, held.purpose) == ("janitor", task.title)
    with Titen(desk.url, desk.keys["linter"]) as linter:
        linter.send("How long will you need it?", resource=("deploy", backlog.SERVICE))
        desk.decide(task, "approve")
        assert ended.result(20).status == "done"
        held.refresh_from_db()
        assert held.end_reason == LeaseEnd.RELEASED
        (answer,) = linter.messages(unread=True)
        linter.mark_read(answer)
    assert answer["body"] == "I am done: checkout-service is free."
    assert Message.objects.get(body="How long will you need it?").read_at is not None
    deployment.switch_build(places.service(backlog.SERVICE), 42, quiet)


def test_a_revoked_lease_stops_the_janitor_before_it_switches(desk: Desk, places: Places) -> None:
    task = desk.create(backlog.ITEMS["roll-back"])
    ended = desk.beside("janitor", task)
    eventually(lambda: Approval.objects.filter(task=task, status="pending").exists())
    held = Lease.objects.get(organization__slug="demo", resource__resource_id=backlog.SERVICE, ended_at=None)
    with transaction.atomic(durable=True):
        leasing.revoke(desk.human, held.pk, reason="Not during the sale.")
    desk.decide(task, "approve")
    with pytest.raises(NotFound) as refused:
        ended.result(20)
    assert refused.value.details == {"reason": "revoked"}
    assert deployment.current_build(places.service(backlog.SERVICE)) == 42
    task.refresh_from_db()
    assert (task.status, task.attempt_count) == ("todo", 1)
    assert statuses(task)[-1] == ("deploy", "failed")


def test_a_build_that_was_switched_by_an_attempt_that_died_is_told_as_it_was(
    desk: Desk, places: Places
) -> None:
    service = places.service(backlog.SERVICE)
    task = desk.create(backlog.ITEMS["roll-back"])
    ended = desk.beside("janitor", task)
    desk.lift(desk.decide(task, "deny"))
    assert ended.result(20).result == {
        "subject": backlog.SERVICE,
        "label": "stays on build 42: a human decided “deny”",
    }
    kept = CheckpointVersion.objects.get(run__task=task).state
    assert kept == {"service": backlog.SERVICE, "from": 42, "to": 41}

    task = desk.create(backlog.ITEMS["roll-back"])
    with Titen(desk.url, desk.keys["janitor"]) as titen:
        run = titen.claim(task_id=public_id("task", task.pk))
        assert run is not None
        run.checkpoint(kept)
        deployment.switch_build(service, 41, quiet)
        run.release("killed")
    assert desk.attempt("janitor", task).result == {"from": 42, "to": 41}
    deployment.switch_build(service, 42, quiet)


def test_the_linter_hands_the_noting_over_and_is_told_where_it_stands(desk: Desk, places: Places) -> None:
    places.notes.write_text("# quality-notes\n\n## other\n\n- stays\n\n")
    task = desk.create(backlog.ITEMS["lint-titen"])
    handing = desk.beside("linter", task)
    with Titen(desk.url, desk.keys["scribe"]) as titen:
        run = eventually(titen.accept_next)
        assert run is not None
        assert run.context["handoff"]["message"].startswith("titen: ")
        handing.result(20)
        eventually(lambda: list(titen.messages(unread=True)))
        with run:
            AGENTS["scribe"](titen, run)
    task.refresh_from_db()
    assert (task.status, task.attempt_count) == ("done", 0)
    handed = Handoff.objects.get(task=task)
    assert (handed.status, handed.checkpoint_version) == ("accepted", 1)
    written = places.notes.read_text()
    assert written.startswith("# quality-notes\n\n## other\n\n- stays\n\n## titen\n\n- titen: ")
    lease = Lease.objects.get(organization__slug="demo", resource__resource_id="quality-notes/titen")
    assert (lease.principal.name, lease.purpose) == ("scribe", task.title)
    assert lease.end_reason == LeaseEnd.RELEASED
    # It reads its messages when it begins the next task.
    desk.attempt("linter", desk.create(backlog.ITEMS["todos"]))
    answer = Message.objects.get(sender__name="scribe", recipient__name="linter")
    assert answer.body == "In the section titen of quality-notes.md."
    assert answer.read_at is not None


def test_a_linter_to_whom_nobody_comes_ends_the_task_itself(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linter, "PATIENCE_SECONDS", 0)
    task = desk.attempt("linter", desk.create(backlog.ITEMS["lint-titen"]))
    assert task.status == "done"
    assert task.summary.endswith("Nobody had time to note it.")
    assert Handoff.objects.get(task=task).status == "withdrawn"


def test_a_decision_outlives_the_attempt_that_asked_for_it(desk: Desk, places: Places) -> None:
    task = desk.create(backlog.ITEMS["roll-back"])
    arguments = {"service": backlog.SERVICE, "before": {"build": 42}, "after": {"build": 41}}
    with Titen(desk.url, desk.keys["janitor"]) as titen:
        run = titen.claim(task_id=public_id("task", task.pk))
        assert run is not None
        action = {"tool": "deploy", "server": "release", "arguments": arguments}
        question = {"run_id": run.id, "epoch": run.epoch, "question": "Roll back?", "action": action}
        titen.post("/v1/approvals", question)
        run.release("killed")
    desk.decide(task, "approve")
    assert desk.attempt("janitor", task).result == {"from": 42, "to": 41}
    assert Approval.objects.filter(task=task).count() == 1
    deployment.switch_build(places.service(backlog.SERVICE), 42, quiet)


def test_a_build_that_is_missing_is_a_failure_and_no_riddle(desk: Desk, places: Places) -> None:
    (places.service(backlog.SERVICE) / "builds" / "41").rmdir()
    task = desk.create(backlog.ITEMS["roll-back"])
    ended = desk.beside("janitor", task)
    desk.decide(task, "approve")
    with pytest.raises(FileNotFoundError):
        ended.result(20)
    assert statuses(task)[-1] == ("deploy", "failed")
    deployment.prepare_service(places.service(backlog.SERVICE), backlog.BUILDS)


def test_what_nobody_decides_in_time_is_asked_again(desk: Desk, places: Places) -> None:
    task = desk.create(backlog.ITEMS["roll-back"])
    ended = desk.beside("janitor", task)
    approval = eventually(lambda: Approval.objects.filter(task=task, status="pending").first())
    assert approval is not None
    let_approval_run_out(public_id("appr", approval.pk))
    expire(approval.pk, approval.organization_id)
    assert ended.result(40).status == "todo"


@pytest.mark.parametrize("by", ["a human", "the archivist"])
def test_what_came_of_an_upload_is_found_out(
    desk: Desk, places: Places, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(acting, "PATIENCE_SECONDS", 20 if by == "a human" else 0)
    monkeypatch.setattr(acting, "LOOK_SECONDS", 0.05)
    places.manifest.write_text("0  site.css\n")
    task = desk.create(backlog.ITEMS["upload"])
    ended = desk.beside("archivist", task)
    if by == "a human":
        effect = eventually(lambda: Effect.objects.filter(task=task, status="unknown").first())
        assert effect is not None
        with transaction.atomic(durable=True):
            outcomes.reconcile(desk.human, effect.pk, outcome=EffectStatus.SUCCEEDED, note="I see it there.")
    done = ended.result(20)
    assert (done.status, statuses(done)) == ("done", [("upload", "succeeded")])
    assert done.result == {
        "note": "I see it there." if by == "a human" else "I looked again: it has happened."
    }
    assert not Approval.objects.filter(task=task).exists()


def test_the_next_attempt_finds_out_what_the_one_before_left_unknown(desk: Desk, places: Places) -> None:
    places.manifest.write_text("1  site.css\n")
    task = desk.create(replace(backlog.ITEMS["upload"], payload={"job": "upload manifest", "hangs": False}))
    with Titen(desk.url, desk.keys["archivist"]) as titen:
        run = titen.claim(task_id=public_id("task", task.pk))
        assert run is not None
        run.authorize("upload", {"file": "lost"}, server="mirror", effect_key="lost")
        run.release("killed")
    assert desk.attempt("archivist", task).status == "done"
    assert statuses(task) == [("upload", "failed"), ("upload", "succeeded")]


def test_the_changelog_is_published_as_a_rule_allows(
    desk: Desk, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drafted(checkout: Path, target: Path, report: Report) -> Outcome:
        target.write_text("## Today\n")
        return Outcome("1 commit on 1 day.", {"commits": 1}, [{"file": target.name}])

    monkeypatch.setattr(documents, "changelog", drafted)
    task = desk.attempt("scribe", desk.create(backlog.ITEMS["changelog"]))
    assert task.summary == "1 commit on 1 day. changelog.md is on docs-site."
    effect = Effect.objects.get(task=task)
    assert (effect.status, effect.approval, effect.verdict["rule"]["tool"]) == ("succeeded", None, "publish")
    assert (places.site("docs-site") / "changelog.md").read_text() == "## Today\n"


def test_what_admins_made_of_the_policy_stays(desk: Desk, places: Places) -> None:
    found = ToolEntry.objects.filter(organization__slug="demo", ended_at=None)
    rules = PolicyRule.objects.filter(organization__slug="demo", ended_at=None)
    assert (found.count(), rules.count()) == (len(policy.TOOLS), len(policy.RULES))
    with transaction.atomic(durable=True):
        line = found.get(tool="label")
        policy_edits.end_tool(desk.human, line.pk, shown=row_digest(line))
    seeding.seed(places)
    assert (found.count(), rules.count()) == (len(policy.TOOLS) - 1, len(policy.RULES))
    with transaction.atomic(durable=True):
        policy_edits.add_tool(desk.human, ToolTerms(Kind.OTHER, tool="label", server="files"))


def test_the_report_has_the_title_that_somebody_answered(desk: Desk, places: Places) -> None:
    task = desk.create(backlog.ITEMS["report"])
    ended = desk.beside("scribe", task)
    question = eventually(lambda: Comment.objects.filter(task=task, blocking=True).first())
    assert question is not None
    with transaction.atomic(durable=True):
        comments.answer(desk.human, task.pk, question.pk, body="Code in numbers")
    assert ended.result(20).summary == "“Code in numbers” has 0 chapters."
    assert (places.results / "report.md").read_text().startswith("# Code in numbers\n")


def test_the_line_counts_fail_once_for_a_reason_that_people_can_read(desk: Desk, places: Places) -> None:
    places.line_counts.write_text("[{")
    task = desk.attempt("linter", desk.create(backlog.ITEMS["lines"]))
    assert (task.status, task.attempt_count) == ("todo", 1)
    assert "line-counts.json is damaged" in task.last_error
    assert task.backoff_until is not None
    Task.objects.filter(pk=task.pk).update(backoff_until=None)
    assert desk.attempt("linter", task).status == "done"


def test_the_archivist_is_killed_and_the_next_attempt_goes_on(desk: Desk, places: Places) -> None:
    payload = {"job": "checksum", "die_at_percent": 5}
    item = replace(backlog.ITEMS["checksum"], payload=payload, priority=100, lease_seconds=1)
    task = desk.create(item)
    process = subprocess.run(
        [sys.executable, "-m", "titen.demo.agents", "archivist"],
        env={**os.environ, "TITEN_URL": desk.url},
        timeout=60,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL
    eventually(lambda: sweep_batch(task_id=task.pk))
    done = desk.attempt("archivist", task)
    assert (done.status, done.attempt_count) == ("done", 1)
    assert done.result is not None
    begun = done.result["taken_over"] + 1
    said = Comment.objects.get(task=task).body
    assert said.startswith(f"Attempt 1 ended abandoned at 5 % (“{begun} of {done.result['files']}: ")


def test_rounds_come_back_and_never_pile_up(desk: Desk) -> None:
    def all_rounds() -> int:
        for number in range(len(backlog.ROUNDS)):
            task = desk.attempt("linter", desk.create(backlog.housekeeping(number)))
            assert task.status == "done"
            following = Task.objects.get(title=task.title, finished_at=None, payload__round=number + 1)
            assert following.not_before is not None
            with transaction.atomic(durable=True):
                tasks.cancel(desk.human, following.pk)
        return Task.objects.filter(organization__slug="demo", finished_at=None).count()

    assert all_rounds() == all_rounds()


def test_a_round_that_was_cut_off_is_finished_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    task = desk.create(backlog.housekeeping(0))
    with Titen(desk.url, desk.keys["linter"]) as titen:
        run = titen.claim(task_id=public_id("task", task.pk))
        assert run is not None
        with run:
            refill.refill(titen, run, 0, quiet)
            planned = Task.objects.filter(payload__round=1).count()
            refill.refill(titen, run, 0, quiet)
            run.complete()
    assert Task.objects.filter(payload__round=1).count() == planned


def test_an_unknown_job_waits_for_a_human(desk: Desk) -> None:
    for name, agent in team.AGENTS.items():
        item = backlog.Item("Make coffee", "", agent.capabilities[0], {"job": "coffee"})
        task = desk.attempt(name, desk.create(item))
        assert task.status == "blocked"
        assert task.last_error == f"The {name} knows no such job: {{'job': 'coffee'}}"


def test_the_command_prints_where_and_as_whom_to_log_in(
    credentials: Credentials, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TITEN_URL", "http://127.0.0.1:8123")
    call_command("demo_data")
    board, admin, approver = capsys.readouterr().out.splitlines()
    assert board.split() == ["board", "http://127.0.0.1:8123/"]
    assert admin.split() == ["admin", seeding.ADMIN, credentials.passwords[seeding.ADMIN]]
    user = User.objects.get(email="approver@demo.example")
    assert user.check_password(approver.split()[-1])
    assert not user.is_staff
    user.set_password("another password")
    user.save()
    call_command("demo_data")
    assert capsys.readouterr().out.endswith("(changed since)\n")
