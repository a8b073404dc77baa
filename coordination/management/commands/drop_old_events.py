"""`manage.py drop_old_events`: give up the part of the log that is no longer kept."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from coordination import partitions, retention


class Command(BaseCommand):
    """Says what was dropped, and what had to stay and why."""

    help = (
        "Drop the months of events that TITEN_EVENTS_KEPT_MONTHS no longer keeps; acts as the tables' owner."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Drop."""
        with partitions.as_owner():
            for sentence in retention.drop_old(months_kept=settings.EVENTS_KEPT_MONTHS):
                self.stdout.write(sentence)
