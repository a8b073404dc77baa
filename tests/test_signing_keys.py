"""The keys that sign sequencers: made once, replaced without a gap, sealed under a ring of secrets."""

import logging
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings, settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.test import Client

from coordination import keyring, signing
from coordination.locks import clock
from coordination.models import SigningKey, User
from titen.api.doors import transact
from titen.errors import Refused
from titen.supervisor.state import State

from .auditing import log_in, verb_url
from .cast import PASSWORD, Agent, Company
from .dump import changed_since, table_digests
from .locking import together

RING = ["first-secret-of-a-ring-of-two-0123456789", "second-secret-of-a-ring-of-two-987654321"]


def kids() -> list[str]:
    return [row["id"].hex for row in signing.published()]


def move(key: SigningKey, ago: timedelta) -> None:
    """The key signs since so long; every process looks anew."""
    SigningKey.objects.filter(pk=key.pk).update(signs_from=clock() - ago)
    signing.forget()


@pytest.fixture
def first(own_keys: None) -> SigningKey:
    """The only key there is, which has signed for two days."""
    SigningKey.objects.all().delete()
    made = transact(signing.make_key)
    assert made is not None
    move(made, timedelta(days=2))
    return made


def test_a_new_key_is_published_first_then_signs_and_the_old_one_stays_for_the_longest_lease(
    first: SigningKey,
) -> None:
    made = transact(signing.rotate)
    assert kids() == [str(first), str(made)]
    assert signing.signer().kid == str(first)
    assert made.signs_from - clock() > timedelta(minutes=9)
    move(made, timedelta(0))
    assert signing.signer().kid == str(made)
    longest = timedelta(seconds=settings.LEASE_TTL_MAXIMUM)
    move(made, longest)
    assert kids() == [str(first), str(made)]
    # A process that had not heard of the new key signed with the old one for half a minute more.
    move(made, longest + timedelta(seconds=31))
    assert kids() == [str(made)]


def test_after_a_leak_the_new_key_signs_at_once_and_is_the_only_one(first: SigningKey) -> None:
    pending = transact(signing.rotate)
    made = transact(lambda: signing.rotate(at_once=True))
    assert kids() == [str(made)]
    assert signing.signer().kid == str(made)
    for key in (first, pending):
        key.refresh_from_db()
        assert key.withdrawn_at is not None


def test_the_first_uses_at_once_make_one_key(own_keys: None) -> None:
    SigningKey.objects.all().delete()
    signing.forget()
    made = together(*[lambda: signing.signer().kid] * 6)
    assert len(set(made)) == SigningKey.objects.count() == 1
    assert transact(signing.make_key) is None


def test_a_first_key_that_was_undone_signs_nothing_more(own_keys: None) -> None:
    SigningKey.objects.all().delete()
    signing.forget()

    def undone() -> None:
        assert signing.signer()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transact(undone)
    assert kids() == []
    assert signing.signer().kid == kids()[0]


def test_the_command_rotates_and_migrate_makes_only_the_first(
    first: SigningKey, caplog: pytest.LogCaptureFixture
) -> None:
    said = StringIO()
    with caplog.at_level(logging.INFO, "titen"):
        call_command("rotate_signing_key", stdout=said)
        assert said.getvalue().strip() == kids()[1]
        assert f"made the signing key {kids()[1]}" in caplog.text
        call_command("rotate_signing_key", "--at-once", stdout=said)
        assert "2 signing keys were withdrawn" in caplog.text
    assert len(kids()) == 1
    call_command("migrate", verbosity=0)
    assert len(kids()) == 1
    SigningKey.objects.all().delete()
    call_command("migrate", verbosity=0)
    assert len(kids()) == 1


def test_the_admin_rotates_for_superusers_alone(
    first: SigningKey, company: Company, static_files: None
) -> None:
    root = log_in(User.objects.create_superuser(f"root-{company.organization.slug}@example.org", PASSWORD))
    staff = company.human("admin").user
    User.objects.filter(pk=staff.pk).update(is_staff=True)
    url = verb_url(SigningKey, "rotate")
    assert root.get(url).status_code == 200
    assert log_in(staff).post(url).status_code == 403
    assert log_in(staff).get("/admin/coordination/signingkey/").status_code == 403
    assert len(kids()) == 1
    assert root.post(url).status_code == 302
    assert len(kids()) == 2
    root.post(verb_url(SigningKey, "rotate-at-once"))
    assert len(kids()) == 1
    page = root.get(f"/admin/coordination/signingkey/{first.pk}/change/").content.decode()
    assert first.public in page
    assert bytes(first.private).decode() not in page


def test_the_ring_seals_with_its_first_secret_and_opens_with_all(settings: LazySettings) -> None:
    settings.SECRET_KEYS = RING[1:]
    sealed = keyring.seal(b"old")
    assert b"old" not in sealed
    settings.SECRET_KEYS = RING
    assert keyring.open_sealed(sealed) == b"old"
    newer = keyring.seal(b"new")
    settings.SECRET_KEYS = RING[:1]
    assert keyring.open_sealed(newer) == b"new"
    for ring in (RING[:1], []):
        settings.SECRET_KEYS = ring
        with pytest.raises(Refused, match="NOT_READY"):
            keyring.open_sealed(sealed)
    with pytest.raises(Refused, match="NOT_READY"):
        keyring.seal(b"nothing")


def test_a_secret_is_replaced_by_a_rotation(first: SigningKey, settings: LazySettings) -> None:
    ring = list(settings.SECRET_KEYS)
    settings.SECRET_KEYS = [RING[0], *ring]
    signing.forget()
    assert signing.signer().kid == str(first)
    move(transact(signing.rotate), timedelta(0))
    settings.SECRET_KEYS = RING[:1]
    signing.forget()
    assert signing.signer().kid != str(first)
    assert str(first) in kids()


@pytest.mark.parametrize("ring", [[RING[0]], []])
def test_a_ring_that_opens_nothing_is_one_sentence_and_moves_nothing(
    claimed: Any,
    agent: Agent,
    own_keys: None,
    settings: LazySettings,
    caplog: pytest.LogCaptureFixture,
    ring: list[str],
) -> None:
    task = agent.create("Not claimed")
    settings.SECRET_KEYS = ring
    signing.forget()
    before = table_digests()
    run = f"/v1/runs/{claimed['run']['id']}"
    for path, body in (
        ("/v1/tasks/claim", {}),
        ("/v1/tasks/claim", {"task_id": task["id"]}),
        (f"{run}/heartbeat", {"epoch": 1, "sequencer": True}),
        (f"{run}/complete", {"epoch": 1, "claim_next": True}),
    ):
        answer = Client().post(
            path, body, content_type="application/json", HTTP_AUTHORIZATION=f"Bearer {agent.secret}"
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "NOT_READY"), path
        assert answer["Retry-After"] == "10"
    assert changed_since(before) == []
    assert "TITEN_SECRET_KEYS" in caplog.text
    assert "Traceback" not in caplog.text


def problems() -> set[str | None]:
    return {problem.id for problem in run_checks(databases=["default"])}


def test_the_checks_name_a_ring_that_is_missing_too_short_or_another(
    own_keys: None, settings: LazySettings
) -> None:
    good = list(settings.SECRET_KEYS)
    for ring, expected in (
        (good, set()),
        ([], {"titen.E006"}),
        (["short", *good], {"titen.E006"}),
        ([RING[0]], {"titen.E013"}),
        ([RING[0], *good], set()),
    ):
        settings.SECRET_KEYS = ring
        assert problems() & {"titen.E006", "titen.E013"} == expected, ring
    settings.SECRET_KEYS = RING[:1]
    # The way out that the sentence names, when the old secret is lost.
    call_command("rotate_signing_key", "--at-once", stdout=StringIO())
    assert "titen.E013" not in problems()
    settings.PUBLIC_URL = "titen.example"
    assert "titen.E007" in problems()


def test_a_state_folder_of_an_earlier_version_gets_the_new_secret(tmp_path: Path) -> None:
    (tmp_path / "environment").write_text("TITEN_SECRET_KEY=kept\n")
    state = State.open(tmp_path)
    state.keep({})
    after = state.environment()
    assert after["TITEN_SECRET_KEY"] == "kept"
    assert len(after["TITEN_SECRET_KEYS"]) >= keyring.SHORTEST_SECRET
    state.keep({})
    assert state.environment() == after
