"""The admin in Chromium, its counts of what is too big to count, and the log that nobody can change."""

import time

import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import FloatField, Func, TextField, Value
from django.urls import reverse
from playwright.sync_api import sync_playwright

from coordination import audit
from coordination.models import Event, Principal, SigningKey

from .auditing import PAGES, World, name_of, populate
from .cast import PASSWORD, found_company
from .servers import Server

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def world() -> World:
    """What the admin shows."""
    return populate(found_company())


def test_the_admin_works_in_a_browser_under_the_content_policy(world: World, web: Server) -> None:
    """Log in, look around, issue a key: no violation, no error in the console."""
    agent = Principal.objects.get(organization=world.company.organization, name="auditee")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = chromium.new_page()
        problems: list[str] = []
        page.on(
            "console", lambda line: problems.append(line.text) if line.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.goto(f"{web.url}/admin/")
        page.fill("[name=username]", world.admin.user.email)
        page.fill("[name=password]", PASSWORD)
        page.press("[name=password]", "Enter")
        page.wait_for_selector("text=What there is")
        for model in PAGES:
            if model is SigningKey:  # the server's own, for superusers alone
                continue
            page.goto(f"{web.url}{reverse(f'admin:{name_of(model)}_changelist')}")
        page.goto(f"{web.url}{reverse('admin:coordination_principal_change', args=[agent.pk])}")
        page.click("text=Issue key")
        page.check("input[value='tasks:read']")
        page.click("input[type=submit]:not([data-no-enter])")
        assert page.inner_text("#secret").startswith("titen_sk_")
        chromium.close()
    assert not problems


def test_a_count_that_takes_too_long_is_estimated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "COUNT_MILLISECONDS", 50)
    asleep = Func(Value(1.0, FloatField()), function="pg_sleep", output_field=TextField())
    slow = Event.objects.annotate(asleep=asleep).filter(asleep__isnull=False)
    began = time.monotonic()
    count = audit.EstimatedPaginator(slow, 50).count
    assert time.monotonic() - began < 0.9
    assert count > 0
    assert audit.EstimatedPaginator(Event.objects.all(), 50).count == Event.objects.count()
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == (f"{settings.STATEMENT_TIMEOUT_SECONDS}s",)


@pytest.mark.parametrize(
    "statement", ["UPDATE {table} SET {column} = {column}", "DELETE FROM {table}", "TRUNCATE {table}"]
)
def test_the_application_cannot_change_or_delete_events(world: World, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT tableoid::regclass::text FROM coordination_event")
        partitions = [row[0] for row in cursor.fetchall()]
    assert partitions
    before = Event.objects.count()
    for table in [
        "coordination_event",
        "coordination_event_default",
        *partitions,
        "coordination_event_position",
    ]:
        column = "event_id" if table.endswith("position") else "kind"
        with (
            pytest.raises(DatabaseError, match="permission denied"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.format(table=table, column=column))
    assert Event.objects.count() == before
