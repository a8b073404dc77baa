"""What the demo starts from: an organization, its people and agents, their tasks, some files.

Everything is made once. A second call finds it and makes only what is missing.
"""

import secrets
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from approvals import policy_edits
from approvals.models import ToolEntry
from coordination import identity, tasks
from coordination.callers import Caller
from coordination.models import ApiKey, Organization, Principal, Role, Task, User
from titen.api.authentication import human

from . import backlog, policy
from .credentials import Credentials
from .deployment import prepare_service
from .places import Places
from .team import AGENTS, Agent

SLUG = "demo"
LABEL = "made by make demo"
ADMIN = "admin@demo.example"
PEOPLE = {ADMIN: Role.ADMIN, "approver@demo.example": Role.APPROVER}


def seed(places: Places) -> Credentials:
    """Make what is missing; the credentials of all that is there, as kept in the state folder."""
    places.results.mkdir(exist_ok=True)
    prepare_service(places.service(backlog.SERVICE), backlog.BUILDS)
    known = Credentials.read(places.credentials)
    with transaction.atomic(durable=True):
        organization = Organization.objects.filter(slug=SLUG).first() or identity.make_organization(
            "Demo", SLUG
        )
        passwords = {
            email: _person(organization, email, role, known.passwords.get(email))
            for email, role in PEOPLE.items()
        }
        keys = {name: _key(organization, name, agent, known.keys.get(name)) for name, agent in AGENTS.items()}
        _policy(organization)
        _tasks(organization, places)
    # After the commit: a crash in between costs nothing, since the next call makes new ones.
    credentials = Credentials(passwords, keys)
    credentials.write(places.credentials)
    return credentials


def _person(organization: Organization, email: str, role: Role, password: str | None) -> str:
    """A user with this role and `password`, or a new one when none is known."""
    user = User.objects.filter(email=email).first()
    if user is None or password is None:
        password = password or secrets.token_urlsafe(12)
        user = user or User.objects.create_user(email)
        user.set_password(password)
        user.is_staff = role == Role.ADMIN
        user.save()
    identity.add_member(organization, user, role)
    return password


def _key(organization: Organization, name: str, agent: Agent, secret: str | None) -> str:
    """A working key of the agent: the one that is known, or a new one in place of the old."""
    principal = Principal.objects.filter(
        organization=organization, name=name
    ).first() or identity.make_principal(
        organization, name, capabilities=agent.capabilities + agent.takes_over
    )
    scopes = sorted(agent.scopes.split())
    digest = identity.digest_of(secret) if secret else None
    valid = ApiKey.objects.filter(principal=principal, label=LABEL, revoked_at=None)
    if secret and valid.filter(digest=digest, scopes=scopes).exists():
        return secret
    for key in valid:
        identity.revoke_key(organization.pk, key.pk)
    _, secret = identity.issue_key(principal, scopes=scopes, label=LABEL)
    return secret


def _policy(organization: Organization) -> None:
    """The first rules and lines, in an organization that never had any: what admins made of them stays."""
    if ToolEntry.objects.filter(organization=organization).exists():
        return
    caller = _admin(organization)
    for tool in policy.TOOLS:
        policy_edits.add_tool(caller, tool)
    for rule in policy.RULES:
        policy_edits.add_rule(caller, rule)


def _admin(organization: Organization) -> Caller:
    caller = human(User.objects.get(email=ADMIN), organization.pk)
    assert caller is not None
    return caller


def _tasks(organization: Organization, places: Places) -> None:
    """The first batch, in an organization without tasks; housekeeping, when there is none open."""
    caller = _admin(organization)
    if not Task.objects.filter(organization=organization).exists():
        # A measurement that was cut off, as a full disk would leave it: one task fails once.
        places.line_counts.write_text('[{"coordination": 4180, "titen": 39')
        ids: dict[str, UUID] = {}
        for name in backlog.FIRST:
            item = backlog.ITEMS[name]
            ids[name] = tasks.create(
                caller, **item.fields(), depends_on=[ids[before] for before in item.after]
            ).pk
    refill = backlog.housekeeping(0)
    if not Task.objects.filter(organization=organization, title=refill.title, finished_at=None).exists():
        tasks.create(
            caller, **refill.fields(), not_before=timezone.now() + timedelta(minutes=backlog.minutes_until(0))
        )
