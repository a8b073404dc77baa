"""`manage.py export_log`: an organization's log as JSON Lines."""

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from coordination import export, retention
from coordination.models import Organization
from coordination.visibility import Sight
from titen.errors import Refused


class Command(BaseCommand):
    """Everything, with the digests that `verify_log` recomputes; in little memory, however long the log is."""

    help = "Write the log of an organization to standard output, one event as JSON on each line."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which part of whose log."""
        parser.add_argument("--org", required=True, help="slug of the organization")
        parser.add_argument(
            "--after", type=int, help="begin behind this position; without it, where the log begins"
        )
        parser.add_argument(
            "--until", type=int, help="end with this position; without it, with the newest one"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Export."""
        organization = Organization.objects.filter(slug=options["org"]).first()
        if organization is None:
            raise CommandError(f"There is no organization {options['org']}.")
        sight = Sight(organization.pk, None, frozenset(), everything=True)
        try:
            with retention.undisturbed():
                after, until = export.bounds(organization.pk, after=options["after"])
                if options["until"] is not None:
                    until = min(until, options["until"])
                for page in export.lines(sight, after=after, until=until):
                    self.stdout.write(page.decode(), ending="")
                self.stdout.flush()
        except Refused as refused:
            raise CommandError(refused.message) from None
        except export.BrokenLogError as broken:
            raise CommandError(f"The log is damaged: {broken}. See verify_log.") from None
        except BrokenPipeError:
            # Whoever read it has enough; Python would complain when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
