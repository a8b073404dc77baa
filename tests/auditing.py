"""A world for the admin to show: an organization with a row in every table."""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.test import Client
from django.urls import reverse

from approvals import decisions, effects, outcomes, policy_edits, requests
from approvals.actions import Action
from approvals.models import Decision, EffectStatus, Kind, Vote
from approvals.policy_terms import RuleTerms, ToolTerms
from coordination import (
    admission,
    checkpoints,
    claims,
    comments,
    contexts,
    events,
    messages,
    offering,
    runs,
    sections,
    tasks,
    webhooks,
)
from coordination.callers import by_principal
from coordination.models import (
    ContextItemKind,
    Event,
    Organization,
    SigningKey,
    StoredAnswer,
    Task,
    UnnumberedEvent,
    User,
)
from titen.api.doors import transact

from .cast import Company, Human
from .logbook import sql

BACKEND = "django.contrib.auth.backends.ModelBackend"
PAGES = sorted(admin.site._registry, key=lambda model: model._meta.label)


def page_of(model: Any) -> Any:
    """The model's page of the admin."""
    return admin.site._registry[model]


def name_of(model: Any) -> str:
    """`coordination_task`."""
    return f"{model._meta.app_label}_{model._meta.model_name}"


def log_in(user: User) -> Client:
    """A browser that is logged in; a fault of the server is an answer like any other."""
    client = Client(raise_request_exception=False)
    client.force_login(user, backend=BACKEND)
    return client


@dataclass
class World:
    """An organization with rows in every table."""

    company: Company
    admin: Human
    secret: str


def populate(company: Company) -> World:
    """Make one of everything in an organization, through its rules."""
    boss, agent = company.human("admin"), company.agent("auditee")
    caller, credential = agent.caller, by_principal(agent.principal.pk)
    needed = transact(lambda: tasks.create(caller, title="First the ground"))
    transact(lambda: tasks.create(caller, title="Then the roof", depends_on=[needed.pk]))
    row = claims.claim(credential)
    assert row is not None
    runs.heartbeat(credential, row["run_id"], epoch=row["epoch"], progress=40, status="digging")
    comment = transact(
        lambda: comments.ask(
            caller, row["task_id"], body="How deep?", run_id=row["run_id"], epoch=row["epoch"]
        )
    )
    kept = transact(
        lambda: checkpoints.write(caller, state={"dug": 1}, run_id=row["run_id"], epoch=row["epoch"])
    )
    pinned = [contexts.Named(ContextItemKind.CHECKPOINT, kept.checkpoint_id)]
    transact(lambda: contexts.create(caller, items=pinned, note="How far we are"))
    transact(lambda: comments.answer(boss.caller, row["task_id"], comment.pk, body="Two metres"))
    approval = transact(
        lambda: requests.request(
            caller, run_id=row["run_id"], epoch=row["epoch"], question="Dig?", options=["Yes", "No"]
        )
    )
    transact(lambda: decisions.decide(boss.caller, approval.pk, option="Yes", shown_digest=approval.digest))
    transact(lambda: admission.limit_capability(company.organization, "excavator", 2))
    transact(lambda: policy_edits.add_tool(boss.caller, ToolTerms(Kind.OTHER, tool="dig")))
    allow = RuleTerms(Decision.ALLOW, tool="dig", agent_id=agent.principal.pk, note="It has a licence.")
    transact(lambda: policy_edits.add_rule(boss.caller, allow))
    effect = transact(
        lambda: effects.authorize(
            caller, run_id=row["run_id"], epoch=row["epoch"], action=Action("dig"), effect_key="first"
        )
    )
    transact(lambda: outcomes.report(caller, effect.pk, outcome=EffectStatus.SUCCEEDED, note="It is deep."))
    Vote.objects.create(approval=approval, user=boss.user, option="Yes")
    StoredAnswer.objects.create(
        principal=agent.principal,
        key_digest=hashlib.sha256(b"retry-1").digest(),
        fingerprint=b"f" * 32,
        status=201,
        body={"data": "hidden answer"},
    )
    to = company.agent("colleague").principal.name
    transact(lambda: offering.offer(caller, to_principal=to, task_id=row["task_id"], message="Dig on"))
    transact(lambda: messages.send(caller, to_principal=to, body="Bring a spade"))
    intro = sections.name_section("handbook", "intro")
    transact(lambda: sections.acquire(caller, intro, seconds=300))
    webhook, _ = transact(lambda: webhooks.create(caller, url="http://127.0.0.2:9/pager"))
    transact(lambda: webhooks.ping(caller, webhook.pk))
    events.number()
    give_up_the_first(company)
    transact(lambda: tasks.block(boss.caller, needed.pk, sentence="Wait for the survey"))
    return World(company, boss, agent.secret)


GIVE_UP = """
WITH p AS (
    DELETE FROM coordination_event_position WHERE organization_id = %(o)s AND position = 1
    RETURNING organization_id, position, digest, event_id
), e AS (DELETE FROM coordination_event WHERE id IN (SELECT event_id FROM p))
INSERT INTO coordination_log_floor SELECT organization_id, position, digest FROM p"""


def give_up_the_first(company: Company) -> None:
    """The log begins behind its first line, as after months have gone."""
    sql(GIVE_UP, o=company.organization.pk)


def rows_of(model: Any, world: World) -> Any:
    """The rows of a model in an organization."""
    if model is SigningKey:
        # They are the server's.
        return SigningKey.objects.all()
    found = page_of(model).limited(model._default_manager.all(), [world.company.organization.pk])
    if model is UnnumberedEvent and not found.exists():
        task = Task.objects.filter(organization=world.company.organization, status="blocked").earliest("pk")
        transact(lambda: tasks.set_priority(world.admin.caller, task.pk, priority=1))
    return found


def verb_url(model: Any, verb: str, row: Any = None) -> str:
    """The page of a verb."""
    if row is None:
        return reverse(f"admin:{name_of(model)}_verb", args=[verb])
    return reverse(f"admin:{name_of(model)}_row_verb", args=[row.pk, verb])


def send(browser: Client, model: Any, verb: str, row: Any = None, **values: Any) -> Any:
    """Send a verb's form, as its page shows the row now unless `shown` says otherwise."""
    if row is not None and "shown" not in values:
        page = page_of(model)
        fresh = page.model._default_manager.filter(pk=row.pk).first()
        values["shown"] = page.digest(fresh) if fresh else ""
    return browser.post(verb_url(model, verb, row), values)


def last_event(organization: Organization) -> Event:
    """The latest event of an organization."""
    return Event.objects.filter(organization=organization).latest("seq")


def refused(answer: Any, status: int, words: str) -> None:
    """The page says why not."""
    assert answer.status_code == status
    assert words in answer.content.decode()
