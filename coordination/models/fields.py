"""What the tables share: ids made by the database, and the clock of the database."""

from typing import Any

from django.db import models
from django.db.models import Func


class Uuid7(Func):
    """A time-ordered UUID (RFC 9562, version 7) from the database's own clock."""

    function = "titen_uuid7"
    template = "%(function)s()"
    output_field = models.UUIDField()


class ClockNow(Func):
    """`clock_timestamp()`: the moment itself, not the start of the transaction."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = models.DateTimeField()


def uuid_key() -> "models.UUIDField[Any, Any]":
    """A primary key that the database fills."""
    return models.UUIDField(primary_key=True, db_default=Uuid7(), editable=False)


def stamped() -> "models.DateTimeField[Any, Any]":
    """A creation time, UTC, that the database fills."""
    return models.DateTimeField(db_default=ClockNow(), editable=False)
