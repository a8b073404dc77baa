"""System checks: missing or wrong configuration is one clear sentence at start."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection

from titen.errors import Refused

from . import signing
from .keyring import SHORTEST_SECRET


@register()
def configuration_is_complete(**_: Any) -> list[CheckMessage]:
    """The settings that have no default."""
    found: list[CheckMessage] = []
    if not settings.DATABASE_URL:
        found.append(
            Error(
                "No database is configured: set DATABASE_URL to a PostgreSQL URL, or run 'make up', "
                "which starts one under the state folder.",
                id="titen.E001",
            )
        )
    elif not settings.DATABASE_URL.startswith(("postgres:", "postgresql:")):
        found.append(Error("DATABASE_URL must be a PostgreSQL URL (postgresql://…).", id="titen.E002"))
    if not settings.CELERY_BROKER_URL:
        found.append(
            Error(
                "No broker is configured: set CELERY_BROKER_URL to a Valkey or Redis URL, or run 'make up'.",
                id="titen.E003",
            )
        )
    if not _has_secret_key():
        found.append(
            Error(
                "TITEN_SECRET_KEY is not set, or empty: set it to a long random text, or leave it out and run "
                "'make up', which makes one under the state folder.",
                id="titen.E004",
            )
        )
    if not settings.SECRET_KEYS or min(map(len, settings.SECRET_KEYS)) < SHORTEST_SECRET:
        found.append(
            Error(
                "TITEN_SECRET_KEYS is not set, or one of its secrets (separated by commas) has fewer than "
                f"{SHORTEST_SECRET} characters: 'make up' makes one under the state folder.",
                id="titen.E006",
            )
        )
    if not settings.PUBLIC_URL.startswith(("http://", "https://")):
        found.append(Error("TITEN_PUBLIC_URL must be a URL such as https://titen.example.", id="titen.E007"))
    if not 1 <= settings.LEASE_TTL_MINIMUM <= 300:
        found.append(Error("TITEN_LEASE_TTL_MINIMUM must be between 1 and 300 seconds.", id="titen.E005"))
    if settings.EVENTS_KEPT_MONTHS < 0:
        found.append(
            Error("TITEN_EVENTS_KEPT_MONTHS must be 0 (for ever) or a number of months.", id="titen.E008")
        )
    return found


def _has_secret_key() -> bool:
    try:
        return bool(settings.SECRET_KEY)
    except ImproperlyConfigured:
        # Django's own answer to an empty one.
        return False


@register("database")
def database_is_fit(**_: Any) -> list[CheckMessage]:
    """What the connected server must be: PostgreSQL 15 or later, with an event log we cannot change."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('server_version_num')::int, to_regclass('coordination_event') IS NULL"
            )
            version, fresh = cursor.fetchone()
            if version < 150_000:
                return [Error("PostgreSQL 15 or later is needed.", id="titen.E010")]
            if fresh:
                return []
            # `migrate` looks as the owner, so the question is about the role that the application acts as.
            cursor.execute(
                "SELECT has_table_privilege(r, 'coordination_event', 'UPDATE')"
                " OR has_table_privilege(r, 'coordination_event', 'DELETE') FROM coalesce(%s, current_user::text) r",
                [settings.DB_ROLE or None],
            )
            if cursor.fetchone()[0]:
                return [
                    Warning(
                        "The application's database role can change the event log. "
                        "Leave TITEN_DB_ROLE at 'titen_app', or use a role without that right.",
                        id="titen.W011",
                    )
                ]
    except DatabaseError as problem:
        return [
            Error(
                f"The database of DATABASE_URL cannot be used: {str(problem).splitlines()[0]}",
                id="titen.E012",
            )
        ]
    return []


@register("database")
def the_keyring_opens_the_signing_key(**_: Any) -> list[CheckMessage]:
    """What was sealed can be opened: the signing key stands for all of it."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('coordination_signingkey') IS NOT NULL")
            if settings.SECRET_KEYS and cursor.fetchone()[0]:
                signing.check()
    except DatabaseError:
        # A database that cannot be used is said above.
        return []
    except Refused:
        return [
            Error(
                "No secret of TITEN_SECRET_KEYS opens the signing key in the database. Put the secret that "
                "sealed it back into the list, or give the key up: 'manage.py rotate_signing_key --at-once'.",
                id="titen.E013",
            )
        ]
    return []
