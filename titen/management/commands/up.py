"""`manage.py up`: serves Titen from this checkout, with everything it needs."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from titen.embedded import default_var
from titen.supervisor.up import serve


class Command(BaseCommand):
    help = "Serves Titen on 127.0.0.1 until Ctrl-C: database, broker, web, hub, worker, beat and front."
    # The settings are complete only once `up` has made the state folder; its children check them.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--var", type=Path, default=default_var(), help="the state folder")
        parser.add_argument("--demo", action="store_true", help="with demo data and four agents at work")

    def handle(self, *args: Any, **options: Any) -> None:
        sys.exit(serve(port=options["port"], var=options["var"], demo=options["demo"]))
