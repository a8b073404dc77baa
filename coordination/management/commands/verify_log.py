"""`manage.py verify_log`: recompute the chain of every organization's log."""

import time
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter, defaultdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from coordination import integrity, retention
from coordination.models import Organization
from titen.postgres.limits import unhurried

# So many faults of one organization are told; the rest is counted.
TOLD = 20
PROGRESS_SECONDS = 2.0


def head(text: str) -> integrity.Head:
    """The type of `--expect`."""
    try:
        return integrity.read_head(text)
    except ValueError:
        raise ArgumentTypeError("must be ORG:POSITION:DIGEST, as this command prints it") from None


class Command(BaseCommand):
    """Prints each log's head on standard output, faults and progress on standard error; 1 when there are faults.

    Who keeps the heads where nobody of this server can write, and gives them back later, also finds a log that
    was cut off at its end or rewritten.
    """

    help = (
        "Recompute the hash chain of the log, name every fault, and print each organization's newest digest."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose log, and what is known of it."""
        parser.add_argument("--org", help="slug of the organization; all of them without it")
        parser.add_argument(
            "--expect",
            type=head,
            nargs="+",
            action="extend",
            default=[],
            metavar="ORG:POSITION:DIGEST",
            help="heads that were printed earlier: they must still be in their logs",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify."""
        organizations = Organization.objects.order_by("slug")
        if options["org"]:
            organizations = organizations.filter(slug=options["org"])
            if not organizations:
                raise CommandError(f"There is no organization {options['org']}.")
        expected: dict[str, dict[int, bytes]] = defaultdict(dict)
        self._faults = Counter[str]()
        for kept in options["expect"]:
            expected[kept.slug][kept.position] = kept.digest
        with unhurried(), retention.undisturbed():
            for organization in organizations:
                self._verify(organization, expected.pop(organization.slug, {}))
            for slug in [] if options["org"] else expected:
                self._fault(slug, "there is no such organization any more")
            one = organizations[0].pk if options["org"] else None
            for sentence in integrity.strays(one):
                self._fault(options["org"] or "all", sentence)
        if count := self._faults.total():
            raise CommandError(f"The log does not hold together: {count} fault{'s' if count > 1 else ''}.")

    def _verify(self, organization: Organization, expected: dict[int, bytes]) -> None:
        slug, said = organization.slug, time.monotonic()

        def looked_at(position: int) -> None:
            nonlocal said
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                self.stderr.write(f"{slug}: {position:,} so far")

        def report(position: int, problem: str) -> None:
            self._fault(slug, f"position {position}: {problem}")

        found = integrity.verify(organization.pk, slug, expected=expected, report=report, looked_at=looked_at)
        if found.position:
            self.stdout.write(str(found))
        if self._faults[slug] > TOLD:
            self.stderr.write(f"{slug}: and {self._faults[slug] - TOLD} more")

    def _fault(self, slug: str, sentence: str) -> None:
        self._faults[slug] += 1
        if self._faults[slug] <= TOLD:
            self.stderr.write(f"{slug}: {sentence}")
