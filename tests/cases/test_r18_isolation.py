"""R18: who knows an id of another organization learns and changes no more than with a random one."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from approvals import board as decide
from approvals import board_policy as policy
from coordination import events, identity
from coordination.board import urls as board
from tests.acting import DEPLOY, listed, rule
from tests.cast import Agent, Company, Human, found_company
from tests.leasing import batch, named
from tests.servers import Server
from tests.sessions import Session
from tests.stack import Stack
from titen.api.ids import public_id

from .routes import PREFIXES, Call, offered
from .tools import events_of

SECRET = "xylophone"  # stands in every text of X, and in no answer to anybody else


class Full:
    """An organization with one of every object."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self.agent = company.agent(f"{SECRET}-agent")
        self.human = company.human("admin")
        task = self.agent.create(f"{SECRET} work", description=SECRET, payload={"is": SECRET})
        claim = self.agent.claim()
        run = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
        allows = rule(company, "allow", SECRET)
        lists = listed(company, SECRET, "outward")
        act = {"tool": SECRET, "server": SECRET, "arguments": {"is": SECRET}}
        effect = self.agent.post("/effects", {**run, "action": act, "effect_key": SECRET})
        words = {"question": f"{SECRET}?", "options": [f"{SECRET} yes", f"{SECRET} no"]}
        self.approval = self.agent.post("/approvals", {**run, **words})
        ask = {"body": SECRET, "blocking": True, **run}
        comment = self.agent.post(f"/tasks/{task['id']}/comments", ask)
        key = self.agent.post("/keys", {"scopes": ["tasks:read"], "label": SECRET})
        self.kept = self.agent.post("/checkpoints", {**run, "kind": SECRET, "state": {"is": SECRET}})
        pin = {"type": "checkpoint", "id": self.kept["checkpoint_id"]}
        pack = self.agent.post("/contexts", {"note": SECRET, "subject_id": SECRET, "items": [pin]})
        to = {"to_principal": company.agent(f"{SECRET}-target").principal.name}
        handoff = self.agent.post("/handoffs", {**to, **run, "message": SECRET})
        message = self.agent.post("/messages", {**to, "body": SECRET})
        lease = self.agent.post("/leases", named(f"{SECRET}/checkout", purpose=SECRET))
        hook = self.agent.post("/webhooks", {"url": f"http://127.0.0.2:9/{SECRET}", "description": SECRET})
        ping = self.agent.post(f"/webhooks/{hook['webhook_id']}/test")
        self.task = task
        # What the page of policy knows by its own ids.
        self.policy = {"rules": public_id("rule", allows.pk), "tools": public_id("tool", lists.pk)}
        self.ids = {
            "lease_id": lease["lease_id"],
            "task_id": task["id"],
            "run_id": claim["run"]["id"],
            "comment_id": comment["id"],
            "approval_id": self.approval["id"],
            "effect_id": effect["id"],
            "key_id": key["key_id"],
            "checkpoint_id": self.kept["checkpoint_id"],
            "context_id": pack["context_id"],
            "handoff_id": handoff["handoff_id"],
            "message_id": message["message_id"],
            "webhook_id": hook["webhook_id"],
            "delivery_id": ping["delivery_id"],
        }
        # A reader would number them, and write what the webhook is owed of them.
        events.number()

    def state(self) -> list[Any]:
        """Every row of the organization in every table."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_name FROM information_schema.columns WHERE column_name = 'organization_id'"
                " AND table_name ~ '^(coordination|approvals)_' AND table_name !~ '_(unnumbered|position)'"
                " ORDER BY table_name"
            )
            rows = []
            for (table,) in cursor.fetchall():
                cursor.execute(
                    f'SELECT count(*), md5(string_agg(t::text, chr(10) ORDER BY t::text)) FROM "{table}" t'
                    " WHERE organization_id = %s",
                    [self.company.organization.pk],
                )
                rows.append((table, cursor.fetchone()))
        assert len(rows) > 10
        return rows


@pytest.fixture
def x(web: Server) -> Iterator[Full]:
    """The organization whose ids are known."""
    company = found_company(web.url)
    yield Full(company)
    for agent in company.agents:
        agent.close()


def random_ids() -> dict[str, str]:
    """Ids of the right kinds that nobody has."""
    return {name: f"{prefix}_{uuid.uuid4().hex}" for name, prefix in PREFIXES.items()}


def told(answer: Any) -> tuple[int, Any]:
    """Status and body without the request's id."""
    assert SECRET not in answer.text
    return answer.status_code, answer.json().get("error") or answer.json()["data"]


def test_with_another_organizations_key_every_route_answers_as_for_a_random_id(x: Full, agent: Agent) -> None:
    own = agent.create("Y's own")
    before = x.state()
    for call in offered():
        if not call.names and call.route not in ("approvals", "effects"):
            continue
        known, unknown = (
            told(agent.send(call.method, call.path(ids), call.body(ids))) for ids in (x.ids, random_ids())
        )
        assert known == unknown, call
        if call.method == "GET" and not call.names:
            assert known[1][call.route] == []
        else:
            assert known[0] == (403 if call.human_only else 404), call
        if "comment_id" in call.names:
            # A task of one's own does not open another's comment either.
            mixed = {**x.ids, "task_id": own["id"]}
            assert told(agent.send(call.method, call.path(mixed), call.body(mixed))) == unknown
    assert x.state() == before


def test_an_id_in_a_body_or_filter_is_like_a_random_one(x: Full, agent: Agent, other: Agent) -> None:
    before = x.state()
    creator = x.agent.get("/principal")["principal_id"]
    nobody = random_ids()
    for ids, principal in ((x.ids, creator), (nobody, f"agent_{uuid.uuid4().hex}")):
        for path, noun in (
            (f"/tasks?created_by={principal}", "tasks"),
            (f"/runs?task={ids['task_id']}", "runs"),
            (f"/runs?agent={principal}", "runs"),
            (f"/approvals?task={ids['task_id']}", "approvals"),
            (f"/approvals?requested_by={principal}", "approvals"),
            (f"/effects?task={ids['task_id']}", "effects"),
            (f"/effects?run={ids['run_id']}", "effects"),
            (f"/effects?principal={principal}", "effects"),
            (f"/events?task_id={ids['task_id']}", "events"),
            (f"/leases?holder={principal}", "leases"),
            (f"/leases?resource_type={SECRET}", "leases"),
            (f"/checkpoints?task={ids['task_id']}", "checkpoints"),
            (f"/checkpoints?agent={principal}", "checkpoints"),
        ):
            assert agent.get(path)[noun] == [], path
    for path, body in (
        ("/tasks", {"title": "Mine", "depends_on": ["{task_id}"]}),
        ("/tasks/claim", {"task_id": "{task_id}"}),
        ("/checkpoints", {"state": 1, "run_id": "{run_id}", "epoch": 1}),
        ("/approvals", {"run_id": "{run_id}", "epoch": 1, "question": "?", "action": DEPLOY}),
        ("/effects", {"run_id": "{run_id}", "epoch": 1, "action": DEPLOY, "effect_key": "one"}),
        ("/effects", {"lease_id": "{lease_id}", "epoch": 1, "action": DEPLOY, "effect_key": "one"}),
        ("/contexts", {"items": [{"type": "checkpoint", "id": "{checkpoint_id}"}]}),
        ("/contexts", {"items": [{"type": "comment", "id": "{comment_id}"}], "task_id": "{task_id}"}),
        (
            "/tasks/{task_id}/comments",
            {"body": "?", "blocking": True, "run_id": "{run_id}", "epoch": 1},
        ),
        ("/handoffs", {"to_principal": "bert", "task_id": "{task_id}"}),
        ("/handoffs", {"to_principal": "bert", "run_id": "{run_id}", "epoch": 1}),
        ("/handoffs", {"to_principal": "bert", "subject_id": "?", "checkpoint_id": "{checkpoint_id}"}),
        ("/handoffs", {"to_principal": "bert", "subject_id": "?", "context_id": "{context_id}"}),
    ):

        def fill(value: Any, ids: dict[str, str]) -> Any:
            if isinstance(value, list):
                return [fill(item, ids) for item in value]
            if isinstance(value, dict):
                return {name: fill(item, ids) for name, item in value.items()}
            return value.format(**ids) if isinstance(value, str) else value

        answers = [
            told(
                agent.send(
                    "POST", path.format(**ids), {name: fill(value, ids) for name, value in body.items()}
                )
            )
            for ids in (x.ids, nobody)
        ]
        assert answers[0] == answers[1]
        assert answers[0][0] in (400, 404)
    # An approval of X named for what one is about to do oneself.
    claim = agent.claim(task_id=agent.create()["id"])
    act = {"run_id": claim["run"]["id"], "epoch": 1, "action": DEPLOY, "effect_key": "one"}
    answers = [
        told(agent.send("POST", "/effects", {**act, "approval_id": ids["approval_id"]}))
        for ids in (x.ids, nobody)
    ]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    # A run of X named together with a task of one's own.
    mine = agent.create()
    ask = {"body": "?", "blocking": True, "run_id": x.ids["run_id"], "epoch": 1}
    agent.refused("NOT_FOUND", f"/tasks/{mine['id']}/comments", ask)
    assert x.state() == before


def test_lists_and_the_log_hold_only_ones_own(x: Full, agent: Agent, company: Company) -> None:
    mine = agent.create("Y's own")
    assert [task["id"] for task in agent.get("/tasks")["tasks"]] == [mine["id"]]
    assert agent.get("/runs")["runs"] == []
    assert {key["principal_id"] for key in agent.get("/keys")["keys"]} == {
        agent.get("/principal")["principal_id"]
    }
    assert [one["name"] for one in agent.get("/principals")["principals"]] == ["ada"]
    cursor = x.agent.get("/tasks?limit=1")["next_cursor"]
    assert cursor is None or agent.get(f"/tasks?cursor={cursor}")["tasks"]
    seen = events_of(agent)
    assert [event["task_id"] for event in seen if event["task_id"]] == [mine["id"]]
    assert SECRET not in str(seen)
    # Each organization's positions begin at one and have no gaps.
    assert [int(event["cursor"]) for event in seen] == list(range(1, len(seen) + 1))


def test_names_do_not_collide(x: Full, agent: Agent, company: Company) -> None:
    twin = company.agent(f"{SECRET}-agent")
    assert twin.get("/principal")["organization_id"] != x.agent.get("/principal")["organization_id"]
    # Both organizations may lease a thing of the same name.
    assert twin.post("/leases/batch", batch(f"{SECRET}/checkout"))["leases"][0]["epoch"] == 1
    key = {"Idempotency-Key": "shared"}
    first = x.agent.post("/tasks", {"title": "One"}, headers=key)
    assert twin.post("/tasks", {"title": "Two"}, headers=key)["id"] != first["id"]


def test_a_person_of_both_acts_where_the_object_is(x: Full, agent: Agent, company: Company) -> None:
    """The object's organization decides; a person of Y alone meets nothing of X."""
    both, stranger = x.human, company.human("admin")
    identity.add_member(company.organization, both.user, "viewer")  # type: ignore[arg-type]
    before = x.state()
    session = Session(stranger, agent.url)
    for call in offered():
        if call.human_only:
            known, unknown = (
                told(session.post(f"/v1{call.path(ids)}", call.body(ids))) for ids in (x.ids, random_ids())
            )
            assert known == unknown, call
            assert known[0] == 404
    for lease in (x.ids["lease_id"], random_ids()["lease_id"]):
        answer = told(session.post(f"/v1/leases/{lease}/revoke", {"reason": "Mine now"}))
        assert (answer[0], answer[1]["code"]) == (404, "NOT_FOUND")
    assert session.client.get("/v1/leases").json()["data"]["leases"] == []
    assert x.state() == before
    session.client.close()
    of_both = Session(Human(both.user, x.company.organization, both.role), agent.url)
    task = agent.create()
    # An admin of X is but a viewer here.
    raised = {"priority": 3, "shown_digest": "0" * 64}
    refused = of_both.post(f"/v1/tasks/{task['id']}/priority", raised)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert of_both.decide(x.approval, x.approval["options"][0]).status_code == 200
    of_both.client.close()
    assert x.agent.get(f"/approvals/{x.ids['approval_id']}")["decision"] == x.approval["options"][0]
    # An agent of X that belongs to the person of both lists X alone.
    owned = x.company.agent("owned", owner=both.user)
    assert {task["id"] for task in owned.get("/tasks")["tasks"]} == {x.ids["task_id"]}


FORM = {
    "epoch": "1",
    "to": "me",
    "reason": "It is urgent",
    "sentence": "Wait",
    "priority": "5",
    "body": "Yes",
    "summary": "Done",
    "error": "No luck",
    "checkpoint": "{}",
    "option": "Yes",
    "shown_digest": "0" * 64,
}


def test_a_person_elsewhere_meets_nothing_of_it_on_the_board(x: Full, agent: Agent, company: Company) -> None:
    before = x.state()
    urls = [*board.urlpatterns, *decide.urlpatterns, *policy.urlpatterns]
    patterns = [str(pattern.pattern) for pattern in urls]
    routes = [Call("POST", pattern) for pattern in patterns if "<str:" in pattern]
    assert len(routes) > 20
    with Session(company.human("admin"), agent.url) as stranger:
        for route in routes:
            row = x.policy.get(route.route.split("/")[1], "")
            nobodys = f"{row.partition('_')[0]}_{uuid.uuid4().hex}"
            for ids in ({**x.ids, "row_id": row}, {**random_ids(), "row_id": nobodys}):
                for answer in (
                    stranger.client.get(route.path(ids)),
                    stranger.htmx("POST", route.path(ids), FORM),
                    stranger.htmx("POST", route.path(ids), FORM, page=f"/tasks/{x.ids['task_id']}"),
                ):
                    assert answer.status_code in (404, 405), (route, answer.status_code)
                    assert SECRET not in answer.text
        page = stranger.client.get(f"/?org={x.company.organization.slug}")
        assert page.status_code == stranger.client.get("/?org=nobody").status_code == 404
    assert x.state() == before


def test_waits_and_streams_open_to_nobody_else(stack: Stack) -> None:
    """Through the front and the hub: a wait for another's object ends at once, like one for a random id."""
    firm, strangers = stack.found(1, "admin"), stack.found(1, "admin")
    owner, agent = firm.agents[0], strangers.agents[0]
    task = owner.create(SECRET)
    run = {"run_id": owner.claim()["run"]["id"], "epoch": 1}
    approval = owner.post("/approvals", {**run, "question": SECRET, "options": ["Yes", "No"]})
    comment = owner.post(f"/tasks/{task['id']}/comments", {"body": SECRET, "blocking": True, **run})
    known = {"task_id": task["id"], "approval_id": approval["id"], "comment_id": comment["id"]}
    for path in ("/approvals/{approval_id}?wait=20", "/tasks/{task_id}/comments/{comment_id}?wait=20"):
        began = time.monotonic()
        answers = [told(agent.send("GET", path.format(**ids))) for ids in (known, random_ids())]
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
        assert time.monotonic() - began < 10
    began = time.monotonic()
    answers = [
        told(agent.send("POST", "/tasks/claim?wait=20", {"task_id": ids["task_id"]}))
        for ids in (known, random_ids())
    ]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert time.monotonic() - began < 10
    with strangers.session() as session:
        for known_path, unknown_path in (
            (f"/live/board?org={firm.slug}", "/live/board?org=nobody"),
            (f"/live/task?id={task['id']}", f"/live/task?id=task_{uuid.uuid4().hex}"),
        ):
            for path in (known_path, unknown_path):
                with session.client.stream("GET", path) as answer:
                    assert answer.status_code == 404, path
    firm.close()
    strangers.close()
