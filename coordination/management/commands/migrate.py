"""Django's migrate, as the owner of the tables instead of the application's role."""

from typing import Any

from django.conf import settings
from django.core.management.commands.migrate import Command as Migrate
from django.db import connections, transaction

from coordination import partitions, signing


class Command(Migrate):
    """Migrates as the user of DATABASE_URL; makes the coming months' partitions and the first signing key."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Set the role aside, and put it back. Before the checks: on a fresh database there is no role yet."""
        connection = connections[options["database"]]
        role_options = connection.settings_dict["OPTIONS"].pop("options", None)
        connection.close()
        try:
            return super().execute(*args, **options)
        finally:
            connection.close()
            if role_options is not None:
                connection.settings_dict["OPTIONS"]["options"] = role_options

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
