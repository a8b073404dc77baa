"""What the admin changes, it changes through rules: each leaves an event, and a refusal is a sentence."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.urls import reverse

from coordination import identity, leasing, takeovers
from coordination.models import (
    ApiKey,
    CapabilityLimit,
    Document,
    Lease,
    Membership,
    Organization,
    Principal,
    Role,
    Run,
    Task,
    TaskStatus,
    User,
)
from titen.api.authentication import caller_by_digest, human
from titen.api.doors import transact
from titen.api.ids import public_id
from titen.errors import Refused

from .auditing import PAGES, World, last_event, log_in, page_of, populate, refused, send
from .cast import PASSWORD, found_company
from .dump import changed_since, table_digests

TESTED = {
    "organization": {"make", "configure"},
    "user": {"password"},
    "membership": {"add", "role", "end"},
    "principal": {"make", "key", "disable"},
    "apikey": {"revoke"},
    "capabilitylimit": {"limit", "change"},
    "task": {"cancel", "reopen"},
    "lease": {"revoke"},
    "document": {"delete"},
    # In tests/test_webhooks.py.
    "webhook": {"pause", "resume"},
    "delivery": {"redeliver"},
    # In tests/test_signing_keys.py.
    "signingkey": {"rotate", "rotate-at-once"},
}


@pytest.fixture
def world(static_files: None) -> World:
    """An organization of the test's own."""
    return populate(found_company())


@pytest.fixture
def boss(world: World) -> Client:
    """The browser of the organization's admin."""
    return log_in(world.admin.user)


@pytest.fixture
def root(static_files: None) -> Client:
    """The browser of somebody who sees everything and is a member of nothing."""
    slug = found_company().organization.slug
    return log_in(User.objects.create_superuser(f"root-{slug}@example.org", PASSWORD))


def test_these_are_all_verbs() -> None:
    declared = {model._meta.model_name: {verb.name for verb in page_of(model).verbs} for model in PAGES}
    assert {name: verbs for name, verbs in declared.items() if verbs} == TESTED


def test_a_superuser_makes_an_organization(root: Client, boss: Client) -> None:
    slug = found_company().organization.slug + "-new"
    answer = send(root, Organization, "make", name="New", slug=slug)
    made = Organization.objects.get(slug=slug)
    assert answer.headers["Location"] == reverse("admin:coordination_organization_change", args=[made.pk])
    event = last_event(made)
    assert event.kind == "organization.created"
    assert event.data["user_id"].startswith("user_")
    before = table_digests()
    refused(send(root, Organization, "make", name="New", slug=slug), 409, "exists already")
    assert send(boss, Organization, "make", name="Mine", slug=slug + "2").status_code == 403
    refused(send(root, Organization, "make", name="New", slug="a b"), 200, "valid")
    assert changed_since(before) == []


def test_an_admin_configures_an_organization(world: World, boss: Client) -> None:
    organization = world.company.organization
    send(boss, Organization, "configure", organization, lease_ttl_seconds="120", forbid_self_approval="on")
    organization.refresh_from_db()
    assert (organization.lease_ttl_seconds, organization.forbid_self_approval) == (120, True)
    assert not organization.require_approval_for_outward_actions
    event = last_event(organization)
    assert (event.kind, event.actor_id) == ("organization.configured", world.admin.caller.principal_id)
    assert event.data["was"]["lease_ttl_seconds"] == 300
    assert event.data["now"] == {
        "lease_ttl_seconds": 120,
        "require_approval_for_destructive_tools": False,
        "require_approval_for_outward_actions": False,
        "forbid_self_approval": True,
    }
    before = table_digests()
    refused(send(boss, Organization, "configure", organization, lease_ttl_seconds="0"), 400, "between")
    refused(send(boss, Organization, "configure", organization, lease_ttl_seconds="9" * 30), 400, "between")
    send(boss, Organization, "configure", organization, lease_ttl_seconds="120", forbid_self_approval="on")
    # Nothing new was configured, so nothing is said.
    assert changed_since(before) == []


def test_members_are_added_changed_and_removed(world: World, boss: Client) -> None:
    organization = world.company.organization
    email = f"new-{organization.slug}@example.org"
    asked = {"organization": organization.slug, "email": email.upper(), "role": "viewer"}
    refused(send(boss, Membership, "add", **asked, password="short"), 400, "too short")
    refused(
        send(boss, Membership, "add", **asked | {"email": "nobody"}, password="long-enough-words"),
        400,
        "address",
    )
    assert not User.objects.filter(email=email).exists()
    send(boss, Membership, "add", **asked, password="long-enough-words", name="Nora")
    user = User.objects.get(email=email)
    assert user.check_password("long-enough-words")
    assert not user.is_staff
    membership = Membership.objects.get(user=user)
    event = last_event(organization)
    assert (event.kind, event.subject_id, event.data["role"]) == ("member.added", user.pk, "viewer")
    refused(send(boss, Membership, "add", **asked, password="another-long-one"), 400, "keeps theirs")
    assert User.objects.get(email=email).password == user.password
    send(boss, Membership, "role", membership, role="admin")
    membership.refresh_from_db()
    user.refresh_from_db()
    assert (membership.role, user.is_staff) == (Role.ADMIN, True)
    send(boss, Membership, "end", membership)
    assert human(user, organization.pk) is None
    assert last_event(organization).kind == "member.removed"
    assert (
        b"/do/end/"
        not in boss.get(reverse("admin:coordination_membership_change", args=[membership.pk])).content
    )
    refused(send(boss, Membership, "end", membership), 409, "ended")


def test_a_member_who_goes_holds_nothing(world: World, boss: Client) -> None:
    operator = world.company.human("operator")
    task = Task.objects.get(organization=world.company.organization, title="First the ground")
    transact(
        lambda: takeovers.take_over(
            operator.caller, task.pk, to=Principal.objects.get(user=operator.user), reason="Mine", epoch=1
        )
    )
    assert Run.objects.filter(principal__user=operator.user, ended_at=None).exists()
    send(boss, Membership, "end", Membership.objects.get(user=operator.user))
    assert not Run.objects.filter(principal__user=operator.user, ended_at=None).exists()
    task.refresh_from_db()
    assert task.status == TaskStatus.TODO


def test_an_agent_is_made_gets_a_key_and_is_disabled(world: World, boss: Client) -> None:
    organization = world.company.organization
    asked = {"organization": organization.slug, "name": "digger", "capabilities": "dig:deep python"}
    refused(send(boss, Principal, "make", **asked | {"capabilities": "Not Fine"}), 400, "lower-case")
    send(boss, Principal, "make", **asked, max_concurrent_runs="2")
    agent = Principal.objects.get(organization=organization, name="digger")
    assert (agent.capabilities, agent.max_concurrent_runs, agent.owner) == (
        ["dig:deep", "python"],
        2,
        world.admin.user,
    )
    refused(send(boss, Principal, "make", **asked), 409, "exists already")
    answer = send(boss, Principal, "key", agent, label="first", scopes=["tasks:read", "tasks:claim"])
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    secret = answer.content.decode().partition('<pre id="secret">')[2].partition("</pre>")[0]
    caller = caller_by_digest(identity.digest_of(secret))
    assert caller.name == "digger"
    assert caller.scopes == {"tasks:read", "tasks:claim"}
    key = ApiKey.objects.get(principal=agent)
    assert (key.pk, key.created_by_id) == (caller.key_id, world.admin.caller.principal_id)
    assert_kept_nowhere(secret, boss)
    refused(send(boss, Principal, "key", agent, label="none"), 200, "required")
    send(boss, Principal, "disable", agent)
    agent.refresh_from_db()
    assert agent.disabled_at is not None
    with pytest.raises(Refused):
        caller_by_digest(identity.digest_of(secret))
    refused(send(boss, Principal, "disable", agent), 409, "disabled")
    person = Principal.objects.get(organization=organization, user=world.admin.user)
    refused(send(boss, Principal, "disable", person), 409, "End the membership")
    refused(send(boss, Principal, "key", person, scopes=["*"]), 400, "no API key")


def assert_kept_nowhere(secret: str, browser: Client) -> None:
    """Not in any table, cookie, session or later page."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
        )
        for (table,) in cursor.fetchall():
            if "_20" not in table:
                cursor.execute(f'SELECT count(*) FROM "{table}" t WHERE t::text LIKE %s', [f"%{secret}%"])
                assert cursor.fetchone() == (0,), table
    assert not LogEntry.objects.exists()
    assert secret not in str([session.get_decoded() for session in Session.objects.all()])
    assert secret not in str(browser.cookies)
    assert secret not in browser.get("/admin/").content.decode()


def test_a_key_is_revoked(world: World, boss: Client) -> None:
    key = ApiKey.objects.get(digest=identity.digest_of(world.secret))
    send(boss, ApiKey, "revoke", key)
    with pytest.raises(Refused):
        caller_by_digest(identity.digest_of(world.secret))
    event = last_event(world.company.organization)
    assert (event.kind, event.subject_id) == ("key.revoked", key.pk)


def test_a_capability_is_limited_and_freed(world: World, boss: Client) -> None:
    organization = world.company.organization
    send(
        boss,
        CapabilityLimit,
        "limit",
        organization=organization.slug,
        capability="crane",
        max_concurrent_runs="1",
    )
    limit = CapabilityLimit.objects.get(organization=organization, capability="crane")
    send(boss, CapabilityLimit, "change", limit, max_concurrent_runs="0")
    limit.refresh_from_db()
    assert limit.max_concurrent_runs == 0
    event = last_event(organization)
    assert (event.kind, event.data) == ("limit.set", {"capability": "crane", "was": 1, "now": 0})
    assert send(boss, CapabilityLimit, "change", limit, max_concurrent_runs="").status_code == 302
    assert not CapabilityLimit.objects.filter(pk=limit.pk).exists()
    assert last_event(organization).data["now"] is None
    asked = {"organization": organization.slug, "max_concurrent_runs": "1"}
    refused(send(boss, CapabilityLimit, "limit", capability="Crane!", **asked), 400, "lower-case")
    refused(send(boss, CapabilityLimit, "limit", capability="a\0b", **asked), 200, "Null characters")


def test_a_task_is_cancelled_and_reopened_by_a_member(world: World, boss: Client, root: Client) -> None:
    task = Task.objects.get(organization=world.company.organization, title="Then the roof")
    before = table_digests()
    refused(send(root, Task, "cancel", task), 403, "Only a member")
    refused(send(boss, Task, "reopen", task), 409, "todo")
    assert changed_since(before) == []
    send(boss, Task, "cancel", task, reason="No roof")
    task.refresh_from_db()
    assert task.status == TaskStatus.CANCELLED
    refused(send(boss, Task, "cancel", task), 409, "cancelled")
    send(boss, Task, "reopen", task)
    task.refresh_from_db()
    assert task.status == TaskStatus.TODO


def test_passwords_are_changed_by_the_rule(world: World, boss: Client, root: Client) -> None:
    user, organization = world.admin.user, world.company.organization
    assert send(boss, User, "password", user, password="taken-over-by-me").status_code == 403
    refused(send(root, User, "password", user, password="12345"), 400, "too short")
    assert send(root, User, "password", user, password="set-by-the-superuser").status_code == 302
    event = last_event(organization)
    assert (event.kind, event.subject_id) == ("user.password_changed", user.pk)
    assert boss.get("/admin/").status_code == 302, "their sessions have ended"
    own = log_in(User.objects.get(pk=user.pk))
    new = {
        "old_password": "set-by-the-superuser",
        "new_password1": "chosen-by-myself",
        "new_password2": "chosen-by-myself",
    }
    assert own.post("/admin/password_change/", new).status_code == 302
    assert own.get("/admin/").status_code == 200
    event = last_event(organization)
    assert (event.kind, event.data["user_id"]) == ("user.password_changed", public_id("user", user.pk))
    assert User.objects.get(pk=user.pk).check_password("chosen-by-myself")


def test_nothing_is_made_in_a_foreign_organization(world: World) -> None:
    foreign = found_company().organization.slug
    boss, before = log_in(world.admin.user), table_digests()
    for model, verb, values in (
        (Membership, "add", {"email": "spy@example.org", "role": "admin", "password": "long-enough-words"}),
        (Principal, "make", {"name": "spy"}),
        (CapabilityLimit, "limit", {"capability": "spy", "max_concurrent_runs": "0"}),
    ):
        refused(
            send(boss, model, verb, organization=foreign, **values), 200, "not one of the available choices"
        )
    assert changed_since(before) == []


def test_a_lease_is_revoked_with_a_reason_by_a_member_and_once(
    world: World, boss: Client, root: Client
) -> None:
    agent = world.company.agent("deployer")
    wanted = [("deploy", "checkout-service")]
    first = transact(lambda: leasing.acquire(agent.caller, wanted, ttl_seconds=60, purpose="Build 41"))
    (row,) = transact(lambda: leasing.acquire(agent.caller, wanted, ttl_seconds=60, purpose="Build 42"))
    lease = Lease.objects.get(pk=row["lease_id"])
    before = table_digests()
    refused(send(boss, Lease, "revoke", lease), 200, "required")
    refused(send(root, Lease, "revoke", lease, reason="It hangs"), 403, "Only a member")
    assert changed_since(before) == []
    assert send(boss, Lease, "revoke", lease, reason="It hangs").status_code == 302
    lease.refresh_from_db()
    assert (lease.end_reason, lease.end_note) == ("revoked", "It hangs")
    event = last_event(world.company.organization)
    assert (event.kind, event.actor_id) == ("lease.revoked", world.admin.caller.principal_id)
    before = table_digests()
    refused(send(boss, Lease, "revoke", lease, reason="Again"), 404, "over (revoked)")
    assert changed_since(before) == []
    page = boss.get(reverse("admin:coordination_lease_change", args=[lease.pk])).content.decode()
    for words in (
        "Build 42",
        "deployer",
        "epoch 1",
        "epoch 2",
        "superseded",
        "lease.acquired",
        "lease.revoked",
    ):
        assert words in page
    assert "do/revoke" not in page
    assert first[0]["lease_id"] != lease.pk
    log = boss.get(reverse("admin:coordination_lease_history", args=[lease.pk]), follow=True).content.decode()
    assert re.findall(r'class="field-kind[^>]*>([\w.]+)<', log) == ["lease.revoked", "lease.acquired"]
    of_a_task = Run.objects.filter(organization=world.company.organization).first()
    assert of_a_task is not None
    page = boss.get(reverse("admin:coordination_lease_change", args=[of_a_task.lease_id])).content.decode()
    assert "task.claimed" in page


def test_a_document_is_deleted_by_a_member_and_its_leases_end(
    world: World, boss: Client, root: Client
) -> None:
    document = Document.objects.get(organization=world.company.organization)
    lease = Lease.objects.get(organization=world.company.organization, resource__resource_type="section")
    before = table_digests()
    refused(send(root, Document, "delete", document), 403, "Only a member")
    assert changed_since(before) == []
    assert send(boss, Document, "delete", document).status_code == 302
    lease.refresh_from_db()
    document.refresh_from_db()
    assert (lease.end_reason, document.deleted_at is None) == ("revoked", False)
    event = last_event(world.company.organization)
    assert (event.kind, event.actor_id) == ("document.deleted", world.admin.caller.principal_id)
    before = table_digests()
    refused(send(boss, Document, "delete", document), 404, "Nothing with this id")
    assert changed_since(before) == []
