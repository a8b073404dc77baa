"""`manage.py rotate_signing_key`: a new key for sequencers."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from coordination import signing
from titen.api.doors import transact
from titen.errors import Refused


class Command(BaseCommand):
    """Prints the new key's id."""

    help = "Make a new key that signs sequencers; it is published now and signs in ten minutes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """How fast."""
        parser.add_argument(
            "--at-once", action="store_true", help="after a leak: it signs now, all others are withdrawn"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Rotate."""
        try:
            made = transact(lambda: signing.rotate(at_once=options["at_once"]))
        except Refused as refused:
            raise CommandError(refused.message) from None
        self.stdout.write(str(made))
