"""Servers that others run: one look at each before anything is started."""

from urllib.parse import urlsplit

import kombu
import psycopg

from titen.supervisor.state import UpError


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def check_database(url: str) -> None:
    """Raises UpError when `url` leads to no PostgreSQL of version 15 or later."""
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise UpError(f"DATABASE_URL ({_without_password(url)}) can't be used: {reason}") from error
    if version < 150000:
        raise UpError(f"DATABASE_URL leads to PostgreSQL {version // 10000}; Titen needs 15 or later.")


def check_broker(url: str) -> None:
    """Raises UpError when the broker at `url` does not answer."""
    try:
        with kombu.Connection(url, connect_timeout=5) as connection:
            connection.ensure_connection(max_retries=1, timeout=5)
    except Exception as error:  # each transport raises its own kinds
        raise UpError(f"CELERY_BROKER_URL ({_without_password(url)}) can't be used: {error}") from error
