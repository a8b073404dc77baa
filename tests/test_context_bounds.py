"""The context of a task has bounds: the oldest go first, long texts become links, what must be known stays."""

import json
import time
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from coordination import context, contexts
from coordination.models import ContextPack, Task, TaskStatus
from titen.client import Titen

from .acting import DEPLOY, effect, rule
from .cast import Agent, Company, Human
from .clockwork import let_lease_run_out, sql, uuid_of
from .effecting import ask, decide, grant, report

LIMIT = 256 * 1024
FAN_IN = 100
# Twenty options as long as they may be.
LONG_OPTIONS = [
    {"value": f"{number} {'é' * 190}", "label": f"{number} {'é' * 190}", "grants": number == 0}
    for number in range(20)
]


@pytest.fixture
def approver(company: Company) -> Human:
    return company.human("approver")


def size(shown: Any) -> int:
    return len(json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode())


def followed(agent: Agent, item: Any) -> Any:
    """What an agent reads at the link of an item."""
    return agent.get(item["href"].removeprefix("/v1"))


@pytest.fixture
def past(agent: Agent, approver: Human, company: Company) -> Any:
    """A claim of a task with something in every part of its context."""
    rule(company, "allow", "publish")
    first = agent.create("First")
    agent.post(f"/runs/{agent.claim()['run']['id']}/complete", {"epoch": 1, "result": {"sum": 3}})
    agent.create("Then", depends_on=[first["id"]])
    claim = agent.claim()
    agent.post(f"/tasks/{claim['task']['id']}/comments", {"body": "Mind the index."})
    grant(agent, approver, claim)
    report(agent, agent.post("/effects", effect(claim, {"tool": "publish"})))
    agent.post("/effects", effect(claim, {"tool": "publish"}))
    agent.post(f"/runs/{claim['run']['id']}/release", {"epoch": 1, "checkpoint": {"at": 1}})
    return agent.claim(task_id=claim["task"]["id"])


def counts(shown: Any) -> dict[str, int]:
    return {name: len(shown[name]) for name in context.PARTS if isinstance(shown[name], list)}


def test_a_context_that_fits_is_whole(past: Any) -> None:
    shown = past["context"]
    assert counts(shown) == {
        "blockers": 0,
        "effects": 2,
        "approvals": 1,
        "dependencies": 1,
        "comments": 1,
        "attempts": 1,
    }
    assert (shown["truncated"], shown["more"]) == ([], {})
    assert [each["status"] for each in shown["effects"]] == ["unknown", "succeeded"]
    assert shown["approvals"][0]["action"] == DEPLOY
    assert (shown["dependencies"][0]["result"], shown["checkpoint"]["state"]) == ({"sum": 3}, {"at": 1})


def test_one_long_approval_empties_no_list(agent: Agent, approver: Human, past: Any) -> None:
    """300 KB of arguments are a link; everything else is as it was."""
    before, action = past["context"], {**DEPLOY, "arguments": {"build": "x" * 300_000}}
    grant(agent, approver, past, action)
    shown = agent.get(f"/tasks/{past['task']['id']}/context")
    *others, long = shown["approvals"]
    assert others == before["approvals"]
    assert {name: shown[name] for name in context.PARTS if name != "approvals"} == {
        name: before[name] for name in context.PARTS if name != "approvals"
    }
    assert (long["truncated"], shown["truncated"]) == (["action.arguments"], ["approvals"])
    assert long["action"] == {**DEPLOY, "arguments": None}
    assert followed(agent, long)["action"] == action


def test_the_oldest_go_first_within_the_longest_list(agent: Agent, approver: Human, past: Any) -> None:
    asked = [grant_long(agent, approver, past, number)["id"] for number in range(24)]
    shown = agent.get(f"/tasks/{past['task']['id']}/context")
    assert size(shown) <= LIMIT
    kept = [each["id"] for each in shown["approvals"]]
    assert 10 < len(kept) < 24
    assert kept == asked[-len(kept) :]
    assert counts(shown) == {**counts(past["context"]), "approvals": len(kept)}
    assert shown["truncated"] == ["approvals"]
    rest = agent.get(shown["more"]["approvals"].removeprefix("/v1"), params={"limit": 200})["approvals"]
    assert {each["id"] for each in rest} > set(asked)


def grant_long(agent: Agent, approver: Human, claim: Any, number: int) -> Any:
    """A decided approval whose options alone take some 12 KB."""
    action = {**DEPLOY, "arguments": {"build": number}}
    approval = ask(agent, claim, action, options=LONG_OPTIONS)
    decide(approver, approval, approval["options"][0]["value"])
    return approval


def test_what_nobody_knows_the_outcome_of_stays(agent: Agent, past: Any) -> None:
    """However much there is: the newest first, their arguments as far as there is room."""
    made = []
    for number in range(80):
        action = {"tool": "publish", "arguments": {"page": "x" * (6000 if number < 40 else 10)}}
        made.append(agent.post("/effects", effect(past, action)))
        if number % 2:
            report(agent, made[-1], note="y" * 3000)
    let_lease_run_out(past)
    shown = agent.claim(task_id=past["task"]["id"])["context"]
    assert size(shown) <= LIMIT
    unknown = [each["id"] for each in shown["effects"] if each["status"] == "unknown"]
    assert unknown[:40] == [each["id"] for each in reversed(made[::2])]
    ended = [each["id"] for each in shown["effects"] if each["status"] == "succeeded"]
    assert ended[:40] == [each["id"] for each in reversed(made[1::2])]
    assert [each["id"] for each in shown["effects"]] == sorted(
        (each["id"] for each in shown["effects"]), reverse=True
    )
    # Arguments of forty times 6 KB do not fit; they are read at their link, the short ones are here.
    newest = shown["effects"][0]
    assert newest["action"]["arguments"] == {"page": "x" * 10}
    cut = [each for each in shown["effects"] if "action.arguments" in each.get("truncated", [])]
    assert cut
    assert followed(agent, cut[-1])["action"]["arguments"] == {"page": "x" * 6000}


def test_what_blocks_the_task_stays(agent: Agent, other: Agent, past: Any) -> None:
    task, run = past["task"]["id"], {"run_id": past["run"]["id"], "epoch": 2}
    questions = [
        agent.post(f"/tasks/{task}/comments", {"body": "?" * 8000, "blocking": True, **run})["id"]
        for _ in range(60)
    ]
    shown = agent.get(f"/tasks/{task}/context")
    assert size(shown) <= LIMIT
    assert [each["subject_id"] for each in shown["blockers"]] == questions[::-1]
    assert {each["kind"] for each in shown["blockers"]} == {"question"}
    assert [each["id"] for each in shown["comments"]] == questions[:-51:-1]
    # Long messages give way to links, the oldest first.
    cut = [each["body"] is None for each in shown["comments"]]
    assert cut == sorted(cut)
    assert (cut[0], cut[-1]) == (False, True)
    assert followed(agent, shown["comments"][-1])["body"] == "?" * 8000


def test_a_payload_that_does_not_fit_is_read_from_the_task(agent: Agent) -> None:
    task = agent.create("Large", payload={"is": "x" * 900_000})["id"]
    agent.claim(task_id=task)
    shown = agent.get(f"/tasks/{task}/context")
    assert size(shown) <= LIMIT
    assert (shown["payload"], shown["truncated"]) == (None, ["payload"])
    assert agent.get(f"/tasks/{task}")["payload"] == {"is": "x" * 900_000}


def test_the_sdk_knows_an_earlier_answer_that_is_a_link(
    agent: Agent, other: Agent, approver: Human, claimed: Any
) -> None:
    """Nobody is asked again because what was asked was too long for the context."""
    task, run = claimed["task"]["id"], {"run_id": claimed["run"]["id"], "epoch": 1}
    action: Any = {"tool": "deploy", "arguments": {"build": "x" * 300_000}}
    grant(agent, approver, claimed, action)
    ask_of = {"question": "Which one?", "options": ["Yes", "No"], "context": "z" * 20_000}
    questions = []
    for number in range(40):
        body = f"{number} {'?' * 7900}"
        made = agent.post(f"/tasks/{task}/comments", {"body": body, "blocking": True, **run})
        other.post(f"/tasks/{task}/comments/{made['id']}/answer", {"body": f"It is {number}."})
        questions.append(body)
    decide(approver, agent.post("/approvals", {**run, **ask_of}), "Yes")
    let_lease_run_out(claimed)
    with Titen(agent.url, agent.secret) as titen, titen.claim(task_id=task) as again:  # type: ignore[union-attr]
        assert again.context["comments"][-1]["body"] is None
        assert again.ask_question(questions[0]).body == "It is 0."
        decision = again.ask("May I?", action=action)
        assert (decision.granted, decision.approval["action"]["arguments"]) == (True, action["arguments"])  # type: ignore[index]
        assert again.ask("Which one?", ["Yes", "No"], context="z" * 20_000).decision == "Yes"
        again.complete()


# Fan-in


@pytest.fixture(scope="module")
def many(web: Any) -> Any:
    """A company, its creator of work, and a hundred tasks that are done with 900 KB of results each."""
    from .cast import founded

    with founded(web.url) as company:
        maker = company.agent("maker")
        names = [maker.create(f"Part {number}", payload={"is": "private"})["id"] for number in range(FAN_IN)]
        worker = company.agent("worker")
        for _ in names:
            claim = worker.claim()
            worker.post(f"/runs/{claim['run']['id']}/complete", {"epoch": 1, "summary": "Done."})
        sql(
            "UPDATE coordination_task SET result = jsonb_build_object('text', repeat('x', 900000)) WHERE id = ANY (%s)",
            [uuid_of(name) for name in names],
        )
        yield company, maker, names


def received(work: Any) -> int:
    """How many bytes PostgreSQL sends on Django's connection."""
    connection.ensure_connection()
    with NamedTemporaryFile() as trace:
        wire = connection.connection.pgconn
        wire.trace(trace.fileno())
        try:
            work()
        finally:
            wire.untrace()
        lines = Path(trace.name).read_text(errors="replace").splitlines()
    return sum(
        int(line.split("\t")[2]) for line in lines if line.count("\t") > 2 and line.split("\t")[1] == "B"
    )


def test_a_claim_costs_what_it_sends(many: Any) -> None:
    """A hundred results of 900 KB: none of them is read, and each can be read by the holder."""
    company, maker, names = many
    task = maker.create("Gather", depends_on=names)["id"]
    holder = company.agent()
    began = time.monotonic()
    claim = holder.claim(task_id=task)
    assert time.monotonic() - began < 3
    assert sorted(claim["task"]["depends_on"]) == sorted(names)
    shown = claim["context"]["dependencies"]
    assert sorted(each["task_id"] for each in shown) == sorted(names)
    assert all((each["result"], each["truncated"]) == (None, ["result"]) for each in shown)
    assert size(claim) <= LIMIT
    read = received(lambda: context.gather(Task.objects.defer("payload").get(pk=uuid_of(task))))
    assert read < 100_000
    assert holder.get(f"/tasks/{task}")["depends_on"] == names
    assert followed(holder, shown[0])["result"] == {"text": "x" * 900_000}
    assert Task.objects.filter(pk__in=map(uuid_of, names), status=TaskStatus.DONE).count() == FAN_IN


def test_a_result_is_for_the_holder_as_long_as_it_holds_and_nothing_else_is(many: Any) -> None:
    company, maker, names = many
    creator, holder, stranger = (company.agent() for _ in range(3))
    task = creator.create("Gather", depends_on=names[:2])["id"]
    path, context_path = f"/tasks/{names[0]}", f"/tasks/{task}/context"
    claim = holder.claim(task_id=task)
    shown = holder.get(path)
    assert shown["result"] == {"text": "x" * 900_000}
    assert shown.keys().isdisjoint({"payload", "secret_refs", "evidence", "last_error"})
    holder.refused("NOT_FOUND", f"{path}/context", method="GET")
    for reader in (creator, stranger):
        assert "result" not in reader.get(path)
        assert reader.get(f"/tasks/{task}")["depends_on"] == names[:2]
    # Who made the waiting task reads its context, and of the others only what it may read by itself.
    assert [each.get("truncated") for each in creator.get(context_path)["dependencies"]] == [None, None]
    assert [each["truncated"] for each in holder.get(context_path)["dependencies"]] == [["result"]] * 2
    assert maker.get(path)["payload"] == {"is": "private"}
    let_lease_run_out(claim)
    assert "result" not in holder.get(path)


@pytest.fixture
def waiting(many: Any) -> Any:
    """A task that waits for fifty open ones, whose payloads are long."""
    _, maker, _ = many
    names = [maker.create(f"Open {number}")["id"] for number in range(50)]
    sql(
        "UPDATE coordination_task SET payload = jsonb_build_object('text', repeat('x', 900000)) WHERE id = ANY (%s)",
        [uuid_of(name) for name in names],
    )
    return maker.create("Wait", depends_on=names)["id"]


DOORS: dict[str, Any] = {
    "naming a hundred tasks": (
        "post",
        "tasks",
        lambda names, waiting: {"title": "More", "depends_on": names},
    ),
    "what a task waits for": ("get", "tasks/{waiting}", None),
    "a refused claim": ("post", "tasks/claim", lambda names, waiting: {"task_id": waiting}),
    "the list of tasks": ("get", "tasks?limit=200", None),
}


@pytest.mark.parametrize("name", DOORS)
def test_who_shows_no_long_text_reads_none(many: Any, waiting: str, name: str) -> None:
    _, maker, names = many
    verb, path, body = DOORS[name]
    client = Client(headers={"Authorization": f"Bearer {maker.secret}"})
    options = {"data": body(names, waiting), "content_type": "application/json"} if body else {}

    def send() -> None:
        answer = getattr(client, verb)(f"/v1/{path.format(waiting=waiting)}", **options)
        assert answer.status_code in (200, 201, 409), answer.content

    assert received(send) < LIMIT


def test_a_pack_reads_no_more_than_it_sends(many: Any) -> None:
    _, maker, names = many
    made = maker.post("/contexts", {"items": [{"type": "task", "id": name} for name in names[:50]]})
    shown = maker.get(f"/contexts/{made['context_id']}")
    assert all((each["content"], each["truncated"]) == (None, True) for each in shown["items"])
    assert size(shown) <= LIMIT
    caller, pack = maker.caller, ContextPack.objects.get(pk=uuid_of(made["context_id"]))
    assert received(lambda: contexts.resolve(caller, pack)) < LIMIT
