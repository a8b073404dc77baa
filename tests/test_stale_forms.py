"""The admin's forms carry a digest of what their pages showed, and write only what the person changed."""

import re
from typing import Any

import pytest
from django.test import Client

from coordination import admission, identity, tasks, webhooks
from coordination.models import (
    CapabilityLimit,
    Document,
    Lease,
    Membership,
    Organization,
    Principal,
    Role,
    Run,
    Task,
    User,
    Webhook,
)
from titen.api.doors import transact

from .auditing import PAGES, World, last_event, log_in, page_of, populate, rows_of, send, verb_url
from .cast import PASSWORD, found_company
from .dump import changed_since, table_digests
from .locking import together


@pytest.fixture
def world(static_files: None) -> World:
    """An organization of the test's own."""
    return populate(found_company())


@pytest.fixture
def boss(world: World) -> Client:
    """The browser of the organization's admin."""
    return log_in(world.admin.user)


def fields(html: str) -> dict[str, str]:
    """What the form on a verb's page would send."""
    sent = {}
    for tag in re.findall(r"<input[^>]*>", html):
        given = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        boxed = given.get("type") == "checkbox"
        if given.get("name") not in (None, "csrfmiddlewaretoken") and (not boxed or " checked" in tag):
            sent[given["name"]] = given.get("value", "on")
    return sent


def form_of(browser: Client, model: Any, verb: str, row: Any) -> dict[str, str]:
    """The form as its page shows it now."""
    return fields(browser.get(verb_url(model, verb, row)).content.decode().split('id="content-main"')[1])


def test_a_stale_configure_form_does_not_switch_a_colleagues_flag_off(world: World, boss: Client) -> None:
    organization = world.company.organization
    form = form_of(boss, Organization, "configure", organization)
    assert set(form) == {
        "shown",
        "lease_ttl_seconds",
        "require_approval_for_destructive_tools",
        "require_approval_for_outward_actions",
    }
    transact(lambda: identity.configure(organization, {"forbid_self_approval": True}))
    before = table_digests()
    refused = send(boss, Organization, "configure", organization, **form | {"lease_ttl_seconds": "120"})
    assert refused.status_code == 409
    assert "Look at it again" in refused.content.decode()
    assert changed_since(before) == []
    # What comes back is what stands, so that sending it again cannot undo the colleague's change either.
    again = fields(refused.content.decode().split('id="content-main"')[1])
    assert (again["forbid_self_approval"], again["lease_ttl_seconds"]) == ("on", "300")
    assert (
        send(
            boss, Organization, "configure", organization, **again | {"lease_ttl_seconds": "120"}
        ).status_code
        == 302
    )
    organization.refresh_from_db()
    assert (organization.lease_ttl_seconds, organization.forbid_self_approval) == (120, True)
    assert last_event(organization).data["now"] == {"lease_ttl_seconds": 120}


def test_of_two_forms_of_one_moment_one_is_written(world: World) -> None:
    """Real threads: each changes another field of the same page."""
    organization = world.company.organization
    second = world.company.human(Role.ADMIN)
    browsers = [log_in(world.admin.user), log_in(second.user)]
    forms = [form_of(browser, Organization, "configure", organization) for browser in browsers]
    changes = [{"lease_ttl_seconds": "120"}, {"forbid_self_approval": "on"}]
    answers = together(
        *(
            lambda browser=browser, form=form: send(browser, Organization, "configure", organization, **form)
            for browser, form in zip(browsers, [forms[0] | changes[0], forms[1] | changes[1]], strict=True)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [302, 409]
    organization.refresh_from_db()
    now = (organization.lease_ttl_seconds, organization.forbid_self_approval)
    assert now in [(120, False), (300, True)]


ON_ROWS = [(model, verb.name) for model in PAGES for verb in page_of(model).verbs if not verb.makes]


@pytest.mark.parametrize(("model", "verb"), ON_ROWS, ids=[f"{m.__name__} {v}" for m, v in ON_ROWS])
def test_every_form_on_a_row_carries_what_its_page_showed(
    world: World, root: Client, model: Any, verb: str
) -> None:
    row = rows_of(model, world).first()
    sent = {
        "reason": "It hangs.",
        "role": "viewer",
        "label": "new",
        "scopes": "*",
        "password": "long-enough-words",
        "lease_ttl_seconds": "60",
        "max_concurrent_runs": "7",
    }
    assert (
        f'name="shown" value="{page_of(model).digest(row)}"'
        in root.get(verb_url(model, verb, row)).content.decode()
    )
    before = table_digests()
    for shown in ("", "0" * 64):
        assert send(root, model, verb, row, **sent, shown=shown).status_code == 409
    assert changed_since(before) == []


@pytest.fixture
def root(static_files: None) -> Client:
    """The browser of somebody who sees everything and is a member of nothing."""
    slug = found_company().organization.slug
    return log_in(User.objects.create_superuser(f"root-{slug}@example.org", PASSWORD))


def _lower(world: World) -> tuple[Any, str, dict[str, str], Any]:
    row = Membership.objects.get(user=world.company.human(Role.OPERATOR).user)
    return (
        row,
        "role",
        {"role": "approver"},
        lambda: identity.add_member(row.organization, row.user, Role.VIEWER),
    )


def _paused_again(world: World) -> tuple[Any, str, dict[str, str], Any]:
    row = Webhook.objects.filter(organization=world.company.organization).latest("pk")
    transact(lambda: webhooks.pause(row, actor_id=None))

    def since() -> None:
        webhooks.resume(row, actor_id=None)
        webhooks.pause(row, actor_id=None)

    return Webhook.objects.get(pk=row.pk), "resume", {}, since


def _limited_anew(world: World) -> tuple[Any, str, dict[str, str], Any]:
    organization = world.company.organization
    row = transact(lambda: admission.limit_capability(organization, "docker", 3))
    return (
        row,
        "change",
        {"max_concurrent_runs": ""},
        lambda: admission.limit_capability(organization, "docker", 1),
    )


CHANGED = {
    "a role that a colleague lowered": _lower,
    "a webhook that was paused again": _paused_again,
    "a limit that was tightened": _limited_anew,
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_colleagues_later_change_is_not_undone(world: World, boss: Client, case: str) -> None:
    row, verb, values, since = CHANGED[case](world)
    shown = page_of(type(row)).digest(row)
    transact(since)
    before = table_digests()
    assert send(boss, type(row), verb, row, **values, shown=shown).status_code == 409
    assert changed_since(before) == []


def test_the_lease_of_a_task_is_not_revoked_under_a_newer_blocker(world: World, boss: Client) -> None:
    """Revoking it takes the task over, which would close the blocker."""
    running = Run.objects.filter(organization=world.company.organization, ended_at=None)
    run = running.filter(task__blockers__kind="manual").earliest("pk")
    lease = Lease.objects.get(pk=run.lease_id)
    shown = page_of(Lease).digest(lease)
    transact(lambda: tasks.unblock(world.admin.caller, run.task_id))
    transact(lambda: tasks.block(world.admin.caller, run.task_id, sentence="Wait for the lawyers."))
    assert send(boss, Lease, "revoke", lease, reason="It hangs.", shown=shown).status_code == 409
    assert Task.objects.get(pk=run.task_id).status == "blocked"
    assert send(boss, Lease, "revoke", lease, reason="It hangs.").status_code == 302


def test_what_has_rows_with_verbs_says_what_they_are_judged_by() -> None:
    assert [
        model.__name__
        for model in PAGES
        if any(not verb.makes for verb in page_of(model).verbs)
        and not page_of(model).shown
        and model is not Task
    ] == []
    assert {Document, CapabilityLimit, Principal} <= {model for model, _ in ON_ROWS}
