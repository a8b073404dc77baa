"""Django's migrate, as the owner of the tables instead of the application's role."""

from typing import Any

from django.conf import settings
from django.core.management.commands.migrate import Command as Migrate
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from coordination import partitions, retention, signing


class Command(Migrate):
    """Migrates as the user of DATABASE_URL; makes the coming months' partitions and the first signing key.

    Drops what `TITEN_EVENTS_KEPT_MONTHS` no longer keeps, since it is run whenever a server starts.
    """

    def execute(self, *args: Any, **options: Any) -> str | None:
        """As the owner. Before the checks: on a fresh database there is no role yet."""
        with partitions.as_owner(options["database"]):
            return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, then see to what migrations alone cannot know: the date and the statistics."""
        super().handle(*args, **options)
        if options["app_label"] is None and not options["plan"] and not options["check_unapplied"]:
            with connections[options["database"]].cursor() as cursor:
                partitions.make_ahead(cursor)
                # Plans cached while the tables were empty would stay bad for a connection's life.
                cursor.execute("ANALYZE")
            if settings.SECRET_KEYS:
                with transaction.atomic(using=options["database"]):
                    signing.make_key()
            if options["database"] == DEFAULT_DB_ALIAS:
                for sentence in retention.drop_old(months_kept=settings.EVENTS_KEPT_MONTHS):
                    self.stderr.write(sentence)
