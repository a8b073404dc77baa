"""The admin: it shows everything to whom it may, changes nothing but through rules, and tells no secret."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.models import Approval
from coordination import identity
from coordination.models import Event, Lease, Organization, Run, SigningKey, Task, UnnumberedEvent, User

from .auditing import PAGES, World, log_in, name_of, page_of, populate, rows_of
from .cast import found_company
from .dump import changed_since, table_digests

QUERIES = 16
FORMS = {"_save": "Save", "post": "yes", "confirm": "yes"}


@pytest.fixture(scope="module")
def world(static_files: None) -> World:
    """What the admin shows."""
    return populate(found_company())


@pytest.fixture(scope="module")
def other(static_files: None) -> World:
    """Somebody else's organization."""
    return populate(found_company())


@pytest.fixture(scope="module")
def root() -> User:
    """Somebody who sees everything."""
    slug = found_company().organization.slug
    return User.objects.create_superuser(f"root-{slug}@example.org", "long-enough-password")


@pytest.fixture
def browser(root: User) -> Client:
    """The superuser's browser."""
    return log_in(root)


def list_url(model: Any) -> str:
    """The list of a model."""
    return reverse(f"admin:{name_of(model)}_changelist")


def row_url(model: Any, pk: Any, what: str = "change") -> str:
    """A page of one row."""
    return reverse(f"admin:{name_of(model)}_{what}", args=[pk])


def urls_of(model: Any, pk: Any) -> Iterator[str]:
    """Every page of Django's own that a model has in the admin."""
    yield list_url(model)
    yield reverse(f"admin:{name_of(model)}_add")
    for what in ("change", "delete", "history"):
        yield row_url(model, pk, what)


def test_every_table_of_the_product_is_there() -> None:
    inline = {item.model for model in PAGES for item in page_of(model).inlines}
    for label in ("coordination", "approvals"):
        for model in apps.get_app_config(label).get_models():
            # A lease's page shows its renewals.
            if model._meta.model_name != "renewal":
                assert model in PAGES or model in inline, model
    assert {model._meta.app_label for model in PAGES} == {"coordination", "approvals"}


def queries_of(browser: Client, url: str) -> list[str]:
    """What a page asks the database."""
    with CaptureQueriesContext(connection) as asked:
        assert browser.get(url).status_code == 200, url
    return [query["sql"] for query in asked]


def test_pages_are_answered_with_few_queries_however_many_rows(world: World, browser: Client) -> None:
    def ask() -> dict[Any, tuple[list[str], list[str]]]:
        found = {}
        for model in PAGES:
            row = rows_of(model, world).first()
            assert row is not None, f"the world has no {model}"
            found[model] = queries_of(browser, list_url(model)), queries_of(browser, row_url(model, row.pk))
        return found

    first = ask()
    for _ in range(3):
        populate(found_company())
    for model, (rows, row) in ask().items():
        assert len(rows) <= QUERIES, (model, rows)
        assert len(row) <= QUERIES, (model, row)
        assert len(rows) <= len(first[model][0]), (model, rows)


@pytest.mark.parametrize("model", PAGES, ids=name_of)
def test_no_page_and_no_action_changes_a_row(world: World, browser: Client, model: Any) -> None:
    row = rows_of(model, world).first()
    values = {field.name: "1" for field in model._meta.fields} | FORMS
    before = table_digests()
    for url in urls_of(model, row.pk):
        for method in ("get", "head", "post", "put", "patch", "delete"):
            answer = getattr(browser, method)(url, values if method == "post" else None)
            assert answer.status_code < 500, (method, url)
            if method == "post" and url != list_url(model):
                assert answer.status_code in (302, 403), (url, answer.status_code)
    for action in ("delete_selected", "decide", "approve", ""):
        chosen = {
            "action": action,
            "_selected_action": str(row.pk),
            "select_across": "1",
            "index": "0",
            "post": "yes",
        }
        for url in (list_url(model), row_url(model, row.pk)):
            sent = chosen | {f"change_form-{key}": value for key, value in chosen.items()}
            assert browser.post(url, sent).status_code in (200, 302, 403)
    for verb in page_of(model).verbs:
        url = page_of(model)._verb_url(verb, None if verb.makes else row)
        assert browser.get(url).status_code == 200
        assert browser.head(url).status_code == 200
    assert changed_since(before) == []
    assert not LogEntry.objects.exists()


# fmt: off
WEIRD = [
    "", " ", "'", '"', "'\"--", "%", "_", "\\", "\0", "a\0b", "é😀", "x" * 5000, "\u202e", "a b c d e f g h", '"a b', "(", "[",
    "task_", "task_" + "0" * 32, "0" * 32, "00000000-0000-0000-0000-000000000000", "9" * 30,
]
WEIRD_QUERIES = [
    *(f"{name}={quote(text)}" for name in ("organization", "kind", "status", "task_id") for text in ("", "\0", "'", "9" * 30)),
    "p=-1", "p=" + "9" * 30, "o=99.-99.x", "all=", "e=1", "%FF=1", "_popup=1", "_to_field=id", "_facets=True", "a=1&a=2",
]
# fmt: on


@pytest.mark.parametrize("model", PAGES, ids=name_of)
def test_weird_searches_filters_and_ids_are_answered(browser: Client, model: Any) -> None:
    url = list_url(model)
    assert page_of(model).search_fields
    for text in WEIRD:
        assert browser.get(url, {"q": text}, follow=True).status_code == 200, text
    for query in WEIRD_QUERIES:
        assert browser.get(f"{url}?{query}", follow=True).status_code in (200, 400), query
    for pk in ("0", "_00", "x" * 3000, "9" * 30, "%00", "%FF", "a_5Fb"):
        for what in ("change", "delete", "history"):
            assert browser.get(f"{url}{pk}/{what}/").status_code in (302, 403, 404), (pk, what)


def test_columns_cannot_be_guessed_letter_by_letter(world: World, browser: Client) -> None:
    for model, query in (
        ("apikey", "digest__startswith=a"),
        ("apikey", "principal__api_keys__digest__gt=a"),
        ("user", "password__startswith=argon2"),
        ("membership", "user__password__startswith=argon2"),
        ("storedanswer", "body__icontains=hidden"),
        ("task", "created_by__user__password__startswith=a"),
    ):
        assert browser.get(f"/admin/coordination/{model}/?{query}").status_code == 400, query


def test_search_finds_by_printed_id_and_by_text(world: World, browser: Client) -> None:
    slug = world.company.organization.slug
    task = Task.objects.get(organization=world.company.organization, title="Then the roof")
    for text in (f"task_{task.pk.hex}", str(task.pk), "then ROOF"):
        page = browser.get(list_url(Task), {"q": text, "organization": slug})
        assert [row.pk for row in page.context["cl"].result_list] == [task.pk], text
    run = Run.objects.get(organization=world.company.organization)
    for text in (f"run_{run.pk.hex}", f"lease_{run.lease_id.hex}"):
        page = browser.get(list_url(Event), {"q": text})
        assert {row.run_id for row in page.context["cl"].result_list} == {run.pk}


def test_filters_narrow_a_list(world: World, browser: Client) -> None:
    slug = world.company.organization.slug
    page = browser.get(list_url(Task), {"status": "blocked", "organization": slug})
    assert [row.title for row in page.context["cl"].result_list] == ["First the ground"]
    page = browser.get(list_url(Event), {"kind": "limit.set", "organization": slug})
    assert [row.data["now"] for row in page.context["cl"].result_list] == [2]


def test_a_lease_shows_its_renewals_and_a_task_its_children(world: World, browser: Client) -> None:
    lease = Lease.objects.get(organization=world.company.organization, resource__resource_type="task")
    assert ", 40 %" in browser.get(row_url(Lease, lease.pk)).content.decode()
    page = browser.get(row_url(Task, Run.objects.get(lease=lease).task_id)).content.decode()
    for text in ("Wait for the survey", "How deep?", "Two metres", "digging"):
        assert text in page


def test_the_history_of_a_row_is_its_log(world: World, browser: Client) -> None:
    for model in PAGES:
        page = browser.get(row_url(model, rows_of(model, world).first().pk, "history"), follow=True)
        assert page.status_code == 200
        assert "/admin/coordination/event/?" in page.redirect_chain[-1][0], model
    task = Task.objects.get(organization=world.company.organization, title="Then the roof")
    page = browser.get(row_url(Task, task.pk, "history"), follow=True)
    assert [row.kind for row in page.context["cl"].result_list] == ["task.created"]


def test_no_secret_and_no_digest_stands_on_any_page(world: World, browser: Client, root: User) -> None:
    digest = identity.digest_of(world.secret)
    needles = [world.secret, digest.hex(), repr(digest)[2:-1], str(list(digest)), "hidden answer", "argon2"]
    needles += [root.password, world.admin.user.password]
    seen = ""
    for model in PAGES:
        for url in [list_url(model), *(row_url(model, row.pk) for row in rows_of(model, world)[:20])]:
            page = browser.get(url)
            assert page.status_code == 200, url
            seen += page.content.decode()
    assert "auditee" in seen
    assert not [needle for needle in needles if needle in seen]


@pytest.mark.parametrize("model", [model for model in PAGES if model is not SigningKey], ids=name_of)
def test_staff_see_only_the_organizations_they_are_an_admin_of(
    world: World, other: World, model: Any
) -> None:
    hidden, row = rows_of(model, world), rows_of(model, world).first()
    browser = log_in(other.admin.user)
    page = browser.get(list_url(model))
    assert page.status_code == 200
    shown = {item.pk for item in page.context["cl"].result_list}
    assert shown
    assert shown.isdisjoint(hidden.values_list("pk", flat=True))
    assert world.company.organization.slug not in page.content.decode()
    random = "01020304-0506-7708-890a-0b0c0d0e0f00" if model is not UnnumberedEvent else "999999999"
    for what in ("change", "history"):
        answers = [browser.get(row_url(model, pk, what)) for pk in (row.pk, random)]
        assert [(answer.status_code, answer.headers["Location"]) for answer in answers] == [
            (302, "/admin/")
        ] * 2
    if model is not Organization:
        foreign = {"organization": world.company.organization.slug}
        assert browser.get(list_url(model), foreign).context["cl"].result_count == 0
    before = table_digests()
    for verb in page_of(model).verbs:
        if not verb.makes:
            assert browser.post(page_of(model)._verb_url(verb, row), FORMS).status_code in (302, 403)
    assert changed_since(before) == []


def test_who_is_no_admin_of_anything_sees_nothing(world: World) -> None:
    operator = world.company.human("operator").user
    for staff, status in ((False, 302), (True, 403)):
        User.objects.filter(pk=operator.pk).update(is_staff=staff)
        browser = log_in(operator)
        assert {browser.get(list_url(model)).status_code for model in PAGES} == {status}


def test_pages_hold_nothing_inline(world: World, browser: Client) -> None:
    """The content policy allows no inline script, handler or style."""
    task = rows_of(Task, world).first()
    for url in ("/admin/", list_url(Task), row_url(Task, task.pk), "/admin/password_change/"):
        answer = browser.get(url)
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>|\son\w+=\"|<style", answer.content.decode()), url


def test_deciding_is_not_possible_here(world: World, browser: Client) -> None:
    approval = rows_of(Approval, world).first()
    assert not page_of(Approval).verbs
    for name in ("decide", "approve", "vote"):
        answer = browser.post(f"/admin/approvals/approval/{approval.pk}/do/{name}/", {"option": "No"})
        assert answer.status_code == 404
