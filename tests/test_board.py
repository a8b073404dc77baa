"""The board over HTTP: who sees what, what a click does, and what every refusal looks like."""

import hashlib
import re
import secrets
import time
from typing import Any

import pytest
from django.conf import settings

from approvals.models import Approval
from coordination import checkpoints, identity, sweeping
from coordination.board import fragments, state, task_fragments, task_state
from coordination.models import ApiKey, Comment, Role, Run, Task
from titen.api.ids import read_id

from .cast import Agent, Company, Human, found_company, make_user
from .servers import Server
from .visitors import Elements, Visit, Visitor, said


@pytest.fixture
def ada(visit: Visit, admin: Human) -> Visitor:
    return visit(admin)


def row(model: Any, prefix: str, text: str) -> Any:
    return model.objects.get(pk=read_id(prefix, text))


def approval_of(shown: dict[str, Any]) -> Approval:
    found: Approval = row(Approval, "appr", shown["id"])
    return found


# --- logging in


def test_login_leads_back(company: Company, visit: Visit, admin: Human) -> None:
    visitor = visit()
    answer = visitor.open(f"/?org={company.organization.slug}")
    assert answer.status_code == 302
    assert answer.headers["Location"] == f"/login?next=/%3Forg%3D{company.organization.slug}"
    back = visitor.log_in(admin.user.email.upper(), next=f"/?org={company.organization.slug}")
    assert back.headers["Location"] == f"/?org={company.organization.slug}"


@pytest.mark.parametrize(
    "target", ["//evil.example/", "https://evil.example", "javascript:alert(1)", "/login", "/login?next=/"]
)
def test_login_leads_nowhere_else(visit: Visit, admin: Human, target: str) -> None:
    visitor = visit()
    assert visitor.log_in(admin.user.email, next=target).headers["Location"] == "/"
    assert visitor.client.get("/login", params={"next": target}).headers["Location"] == "/"


def test_wrong_passwords_are_said_and_counted(visit: Visit, admin: Human) -> None:
    visitor = visit()
    for _ in range(9):
        answer = visitor.log_in(admin.user.email, "wrong-wrong-wrong")
        assert answer.status_code == 200
        assert "do not match" in answer.text
    visitor.log_in(admin.user.email, "wrong-wrong-wrong")
    locked = visitor.log_in(admin.user.email)
    assert locked.status_code == 429
    assert "Wait five minutes" in locked.text
    assert int(locked.headers["Retry-After"]) > 0


def test_only_a_post_logs_out(ada: Visitor) -> None:
    assert ada.open("/logout").status_code == 405
    ada.open("/")
    assert ada.form("/logout").headers["Location"] == "/login"
    assert ada.open("/").status_code == 302


def test_without_a_membership_the_page_says_so(visit: Visit) -> None:
    user = make_user(f"lone-{secrets.token_hex(4)}@example.org")
    visitor = visit()
    visitor.log_in(user.email)
    answer = visitor.open("/")
    assert answer.status_code == 403
    assert "You are in no organization" in answer.text


# --- the board


def test_the_board_shows_each_task_where_it_stands(
    company: Company, agent: Agent, ada: Visitor, claimed: Any, ask: Any
) -> None:
    ask(claimed)
    agent.create("Runs now")
    agent.claim()
    ready = agent.create("Is ready", priority=7)
    agent.create("Comes after", depends_on=[ready["id"]])
    done = agent.create("Gets done", priority=50)
    run = agent.claim(task_id=done["id"])
    agent.post(f"/runs/{run['run']['id']}/complete", {"epoch": 1, "summary": "All of it."})
    page = ada.open(f"/?org={company.organization.slug}").text
    order = [
        "Roll checkout-service back",
        "Runs now",
        "Is ready",
        "Comes after",
        "waits for an approval",
        "Gets done",
    ]
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    assert [re.search(rf'<section id="{name}"[^>]*hidden', page) for name in fragments.SECTIONS[2:]] == [
        None
    ] * 5


def test_an_empty_board_says_what_to_do(company: Company, ada: Visitor) -> None:
    page = ada.open("/").text
    assert f"make key ORG={company.organization.slug}" in page
    assert re.search(r'<section id="needs-you"[^>]*hidden', page)


def test_another_organization_is_as_unknown_as_none(company: Company, ada: Visitor) -> None:
    foreign = found_company(company.url)
    stranger = foreign.agent()
    task = stranger.create("Not yours")
    stranger.close()
    answers = [
        ada.open(path)
        for path in (
            f"/?org={foreign.organization.slug}",
            "/?org=no-such",
            f"/tasks/{task['id']}",
            f"/tasks/task_{'0' * 32}",
            "/tasks/x",
            "/nowhere",
            f"/keys?org={foreign.organization.slug}",
        )
    ]
    assert [answer.status_code for answer in answers] == [404] * 7
    assert len({answer.text for answer in answers}) == 1
    ada.open("/")
    assert ada.click(f"/tasks/{task['id']}/cancel").status_code == 404
    assert row(Task, "task", task["id"]).status == "todo"


def test_text_of_agents_is_text(company: Company, agent: Agent, ada: Visitor) -> None:
    evil = "<script>alert(1)</script><hx-partial hx-target='#toasts'>"
    task = agent.create(evil, description=evil, payload={"a": evil})
    run = agent.claim(task_id=task["id"])
    agent.post(f"/runs/{run['run']['id']}/heartbeat", {"epoch": 1, "status": evil})
    for path in ("/", f"/tasks/{task['id']}"):
        page = ada.open(path)
        assert evil not in page.text
        assert "&lt;script&gt;" in page.text
        shown = Elements(page.text)
        assert shown.scripts == 0
        assert not [name for name, _ in shown.attributes if name == "style" or name.startswith("on")]
        assert "'unsafe" not in page.headers["Content-Security-Policy"]
    assert "<hx-partial hx-target='" not in fragments.as_message(
        fragments.render(state.read(company.organization.pk), "admin")
    )


@pytest.mark.parametrize("role", list(Role))
def test_fragments_are_one_element_each_and_the_same_for_all(
    company: Company, agent: Agent, claimed: Any, ask: Any, role: str
) -> None:
    ask(claimed, context="first\r\nsecond\rthird")
    task_id = read_id("task", claimed["task"]["id"])
    assert task_id is not None
    first, again = (fragments.render(state.read(company.organization.pk), role) for _ in range(2))
    assert first == again
    found = task_state.read(company.organization.pk, task_id)
    assert found is not None
    for name, html in {**first, **task_fragments.render(found, role)}.items():
        assert Elements(html).roots == [name]
        assert "csrf" not in html.lower()
        assert html == html.strip()
    assert "\r" not in fragments.as_message(first)
    assert ("<form" in first["needs-you"]) == Role(role).includes(Role.APPROVER)


def test_time_alone_changes_the_board_when_it_says(company: Company, agent: Agent) -> None:
    assert state.read(company.organization.pk).due is None
    agent.create("Later", not_before="2090-01-01T00:00:00Z")
    due = state.read(company.organization.pk).due
    assert due is not None
    assert due.year == 2090


# --- deciding


def test_one_decision_and_the_second_is_told(
    visit: Visit, awaiting_approval: Any, approver: Human, ada: Visitor
) -> None:
    bob, path = visit(approver), f"/approvals/{awaiting_approval['id']}/decide"
    choice = {"option": "Approve", "shown_digest": awaiting_approval["digest"]}
    ada.open("/"), bob.open("/")
    won = bob.click(path, **choice, reason="It is safe.")
    assert won.status_code == 200
    assert said(won).startswith("You decided “Approve”. It was “")
    assert "Set-Cookie" not in won.headers
    decided = approval_of(awaiting_approval)
    assert (decided.decision, decided.reason, decided.decided_by_user) == (
        "Approve",
        "It is safe.",
        approver.user,
    )
    lost = ada.click(path, option="Deny", shown_digest=awaiting_approval["digest"])
    assert lost.status_code == 409
    moment = f"{decided.ended_at:%H:%M:%S} UTC"
    assert f"{approver.user.email} decided “Approve” at {moment}." in said(lost)
    assert 'hx-target="#needs-you"' in lost.text
    assert 'hx-target="#running"' in lost.text
    again = approval_of(awaiting_approval)
    assert (again.decision, again.ended_at) == (decided.decision, decided.ended_at)


def test_an_expired_approval_is_refused_and_says_so(ada: Visitor, claimed: Any, ask: Any) -> None:
    shown = ask(claimed, expires_in_seconds=1)
    ada.open("/")
    time.sleep(1.1)
    answer = ada.click(f"/approvals/{shown['id']}/decide", option="Approve", shown_digest=shown["digest"])
    assert answer.status_code == 409
    assert "expired at" in said(answer)
    assert approval_of(shown).decision is None


@pytest.mark.parametrize("option", ["approve", "Approve ", "APPROVE", "Аpprove", "", "0", "\0", "x" * 5000])
def test_a_decision_is_exactly_an_option(ada: Visitor, awaiting_approval: Any, option: str) -> None:
    ada.open("/")
    path = f"/approvals/{awaiting_approval['id']}/decide"
    answer = ada.click(path, option=option, shown_digest=awaiting_approval["digest"])
    assert answer.status_code == 400
    assert said(answer).startswith("That cannot be read. option:")
    assert approval_of(awaiting_approval).status == "pending"


def test_what_was_shown_must_stand(ada: Visitor, awaiting_approval: Any) -> None:
    ada.open("/")
    answer = ada.click(
        f"/approvals/{awaiting_approval['id']}/decide", option="Approve", shown_digest="0" * 64
    )
    assert answer.status_code == 409
    assert "not what stands now" in said(answer)


def test_roles_below_approver_do_not_decide(otto: Visitor, vera: Visitor, awaiting_approval: Any) -> None:
    for visitor in (otto, vera):
        assert "<form hx-post" not in visitor.open("/").text.replace("\n", " ").split('id="running"')[0]
        path = f"/approvals/{awaiting_approval['id']}/decide"
        answer = visitor.click(path, option="Approve", shown_digest=awaiting_approval["digest"])
        assert answer.status_code == 403
    assert approval_of(awaiting_approval).status == "pending"


def test_a_question_is_answered_once(agent: Agent, otto: Visitor, vera: Visitor, claimed: Any) -> None:
    asked = agent.post(
        f"/tasks/{claimed['task']['id']}/comments",
        {"body": "Which one?", "blocking": True, "run_id": claimed["run"]["id"], "epoch": 1},
    )
    path = f"/tasks/{claimed['task']['id']}/comments/{asked['id']}/answer"
    vera.open("/"), otto.open("/")
    assert vera.click(path, body="The first.").status_code == 403
    assert otto.click(path, body=" \r\n ").status_code == 400
    assert said(otto.click(path, body="The\r\nsecond.")).startswith("Answered.")
    assert row(Comment, "cmt", asked["id"]).answer == "The\nsecond."
    assert otto.click(path, body="No, the first.").status_code == 409


# --- sessions that ended


def test_an_ended_session_leaves_the_page(ada: Visitor, admin: Human, awaiting_approval: Any) -> None:
    ada.open("/")
    ada.client.cookies.delete("sessionid")
    choice = {"option": "Approve", "shown_digest": awaiting_approval["digest"]}
    answer = ada.click(f"/approvals/{awaiting_approval['id']}/decide", **choice)
    assert answer.headers["HX-Redirect"] == "/login?next=/"
    assert answer.status_code == 401
    assert answer.text == ""
    ada.client.cookies.clear()
    bare = ada.click(f"/approvals/{awaiting_approval['id']}/decide", **choice)
    assert (bare.status_code, bare.headers["HX-Redirect"]) == (403, "/login?next=/")
    assert approval_of(awaiting_approval).status == "pending"


def test_a_stale_token_is_said(ada: Visitor, admin: Human, awaiting_approval: Any) -> None:
    ada.open("/")
    stale = ada.token
    ada.form("/logout")
    ada.log_in(admin.user.email)
    ada.token = stale
    ada.page = "/"
    choice = {"option": "Approve", "shown_digest": awaiting_approval["digest"]}
    answer = ada.click(f"/approvals/{awaiting_approval['id']}/decide", **choice)
    assert answer.status_code == 403
    assert "Reload it, then try again." in said(answer)
    assert "data-reload" in answer.text
    assert "Set-Cookie" not in answer.headers
    ada.token = ""
    assert ada.click(f"/approvals/{awaiting_approval['id']}/decide", **choice).status_code == 403
    assert approval_of(awaiting_approval).status == "pending"


# --- the task page


def test_the_task_page_shows_everything(agent: Agent, ada: Visitor, claimed: Any, ask: Any) -> None:
    task = claimed["task"]["id"]
    agent.post(
        f"/runs/{claimed['run']['id']}/heartbeat",
        {"epoch": 1, "progress": 40, "status": "At the second step"},
    )
    agent.post(f"/tasks/{task}/comments", {"body": "Halfway there."})
    ask(claimed)
    page = ada.open(f"/tasks/{task}").text
    for words in (
        "Claimed work",
        "At the second step",
        "40 %",
        "Halfway there.",
        "Roll checkout-service back",
        "began run 1",
        "put the task into the queue",
        "asked for an approval",
        'name="epoch" value="1"',
    ):
        assert words in page
    assert ada.client.get(f"/tasks/{task}", headers={"HX-Request": "true"}).status_code == 200


def test_human_verbs(agent: Agent, otto: Visitor) -> None:
    made = agent.create("By hand")
    task, path = made["id"], f"/tasks/{made['id']}"
    otto.open(path)
    assert said(otto.act(task, "priority", priority="12")) == "Priority is 12 now."
    assert said(otto.act(task, "block", sentence="Wait for Monday.", epoch="0")).startswith("Blocked")
    assert otto.act(task, "block", sentence="Again.", epoch="0").status_code == 409
    assert said(otto.act(task, "unblock")) == "Unblocked."
    assert said(otto.click(f"{path}/comments", body="Noted.")) == "Comment posted."
    assert said(otto.act(task, "cancel", reason="Not needed.")) == "Cancelled."
    assert said(otto.act(task, "reopen")) == "Reopened, with new attempts."
    kept = otto.act(task, "takeover", to=agent.principal.name, reason="It knows it.", epoch="0")
    assert said(kept) == f"Kept for {agent.principal.name} for 15 minutes."
    stored = row(Task, "task", task)
    assert (stored.status, stored.priority, stored.reserved_for_id) == ("todo", 12, agent.principal.pk)


def test_a_human_holds_a_run(agent: Agent, otto: Visitor, ada: Visitor, claimed: Any) -> None:
    task = claimed["task"]["id"]
    path = f"/tasks/{task}"
    otto.open(path), ada.open(path)
    assert otto.act(task, "takeover", to="me", reason="I do it.", epoch="0").status_code == 409
    taken = otto.act(task, "takeover", to="me", reason="I do it.", epoch="1")
    assert said(taken) == "You hold the task now."
    run = Run.objects.get(task=row(Task, "task", task), ended_at=None)
    mine = f"/runs/run_{run.pk.hex}"
    assert said(otto.click(f"{mine}/checkpoint", checkpoint='{"at": 3}', epoch="2")) == "Checkpoint saved."
    assert checkpoints.left_by([run.pk]) == {run.pk: {"at": 3}}
    for text in ("half of it", '{"n": 1e400}', '["\\ud800"]', '{"a":1,"a":2}'):
        assert otto.click(f"{mine}/checkpoint", checkpoint=text, epoch="2").status_code == 200
        assert checkpoints.left_by([run.pk]) == {run.pk: text}
    assert otto.click(f"{mine}/complete", epoch="1").status_code == 409
    assert ada.click(f"{mine}/complete", epoch="2").status_code == 409
    assert said(otto.click(f"{mine}/complete", epoch="2", summary="Did it.")) == "Completed."
    assert otto.click(f"{mine}/release", epoch="2").status_code == 409
    assert row(Task, "task", task).summary == "Did it."
    agent.refused("LEASE_SUPERSEDED", f"/runs/{claimed['run']['id']}/complete", {"epoch": 1})


@pytest.mark.parametrize("verb", ["fail", "release"])
def test_a_human_gives_a_run_up(agent: Agent, otto: Visitor, verb: str) -> None:
    task = agent.create("Not mine")["id"]
    otto.open(f"/tasks/{task}")
    otto.act(task, "takeover", to="me", reason="I do it.", epoch="0")
    run = Run.objects.get(task__title="Not mine", principal__user__isnull=False, ended_at=None)
    answer = otto.click(f"/runs/run_{run.pk.hex}/{verb}", epoch="1", error="No.", reason="No.", final="on")
    assert answer.status_code == 200
    assert Task.objects.get(pk=run.task_id).status == ("blocked" if verb == "fail" else "todo")


def test_a_viewer_has_no_buttons(agent: Agent, vera: Visitor, awaiting_approval: Any, claimed: Any) -> None:
    path = f"/tasks/{claimed['task']['id']}"
    for page in ("/", path):
        assert "hx-post" not in vera.open(page).text
    for verb in ("takeover", "block", "unblock", "reopen", "priority", "cancel", "comments"):
        assert vera.click(f"{path}/{verb}", to="me", reason="x", epoch="1", body="x").status_code == 403
    assert vera.click(f"/runs/{claimed['run']['id']}/complete", epoch="1").status_code == 403
    assert row(Task, "task", claimed["task"]["id"]).status == "blocked"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"epoch": "x", "priority": "x", "to": "nobody"},
        {
            "epoch": "1e9",
            "priority": "101",
            "to": "\0",
            "reason": "\0",
            "sentence": "\0",
            "body": "\0",
            "option": "\0",
        },
        {
            "epoch": "9" * 400,
            "priority": "9" * 400,
            "sentence": "x" * 500,
            "body": "x" * 9000,
            "reason": "x" * 3000,
        },
        {
            "epoch": "-1",
            "sentence": "two\nlines",
            "error": "\0",
            "checkpoint": "\0",
            "summary": "\0",
            "name": "\0",
        },
        {
            "epoch": "1",
            "agent": "agent_x",
            "scopes": "everything",
            "name": " ",
            "capabilities": "Ü",
            "days": "0",
        },
    ],
)
def test_bad_fields_are_refused(
    ada: Visitor, claimed: Any, awaiting_approval: Any, fields: dict[str, str]
) -> None:
    ada.open("/")
    task, run = claimed["task"]["id"], claimed["run"]["id"]
    paths = [f"/tasks/{task}/{verb}" for verb in ("takeover", "block", "priority", "comments")]
    paths += [f"/runs/{run}/{verb}" for verb in ("complete", "fail", "release", "checkpoint")]
    paths += [f"/approvals/{awaiting_approval['id']}/decide", "/keys/agents", "/keys/new", "/keys/x/revoke"]
    for path in paths:
        for send in (ada.click, ada.form):
            answer = send(path, **fields)
            assert 400 <= answer.status_code < 410, (path, fields, answer.status_code)
    assert row(Task, "task", task).status == "blocked"


def test_large_bodies_are_refused(ada: Visitor, claimed: Any) -> None:
    ada.open("/")
    answer = ada.click(f"/tasks/{claimed['task']['id']}/comments", body="x" * 2_000_000)
    assert answer.status_code == 413
    assert "1 MiB" in said(answer)


# --- agents and keys


def test_a_secret_is_shown_once(company: Company, ada: Visitor) -> None:
    assert ada.open("/keys").status_code == 200
    assert ada.form("/keys/agents", name="builder", capabilities="python docs").status_code == 303
    assert "already" in ada.form("/keys/agents", name="BUILDER").text
    agent = company.organization.principals.get(name="builder")
    made = ada.form(
        "/keys/new", agent=f"agent_{agent.pk.hex}", scopes=["tasks:read", "tasks:claim"], days="7"
    )
    assert made.status_code == 200
    assert made.headers["Cache-Control"] == "no-store"
    secret = re.search(r"titen_sk_[\w-]+", made.text)
    assert secret
    assert "titen_sk_" not in ada.open("/keys").text
    key = ApiKey.objects.get(digest=identity.digest_of(secret[0]))
    assert (key.scopes, key.principal) == (["tasks:claim", "tasks:read"], agent)
    assert ada.form(f"/keys/key_{key.pk.hex}/revoke").status_code == 303
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_keys_are_for_admins(otto: Visitor, ada: Visitor, company: Company, agent: Agent) -> None:
    assert otto.open("/keys").status_code == 403
    assert otto.form("/keys/new", agent=f"agent_{agent.principal.pk.hex}", scopes="*").status_code == 403
    foreign = found_company(company.url).agent()
    ada.open("/keys")
    answer = ada.form("/keys/new", agent=f"agent_{foreign.principal.pk.hex}", scopes="*")
    assert (answer.status_code, "titen_sk_" in answer.text) == (404, False)
    key = ApiKey.objects.get(principal=foreign.principal)
    assert ada.form(f"/keys/key_{key.pk.hex}/revoke").status_code == 404


# --- errors and files


def test_vendored_files_are_as_published() -> None:
    folder = settings.BASE_DIR / "static" / "vendor" / "htmx"
    sums = [line.split() for line in (folder / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in sums} == {path.name for path in folder.iterdir()} - {"SHA256SUMS", "VERSION"}
    for digest, name in sums:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_errors_are_pages_or_json(web: Server, ada: Visitor) -> None:
    ada.open("/")
    page = ada.client.get("/nowhere")
    assert (page.status_code, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    for path in ("/v1/nowhere", "/api/nowhere"):
        assert ada.client.get(path).json()["error"]["code"] == "NOT_FOUND"
    wrong = ada.client.delete("/keys", headers={"X-CSRFToken": ada.token})
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "GET, HEAD")
    assert "is not offered here" in wrong.text
    assert ada.client.head("/").status_code == 200
    assert ada.client.get("/tasks/%00").status_code == 404
    assert ada.client.get("/?org=%00").status_code == 400


def test_reading_changes_nothing(agent: Agent, ada: Visitor, claimed: Any) -> None:
    sweeping.sweep()
    path = f"/tasks/{claimed['task']['id']}"
    for verb in ("takeover", "block", "unblock", "reopen", "priority", "cancel", "comments"):
        assert ada.client.get(f"{path}/{verb}").status_code == 405
    before = row(Task, "task", claimed["task"]["id"])
    for each in ("/", path, "/keys"):
        assert ada.client.get(each).status_code == 200
    assert (
        row(Task, "task", claimed["task"]["id"]).__dict__.items()
        >= {name: value for name, value in before.__dict__.items() if name != "_state"}.items()
    )
