"""`manage.py demo_data`: the demo's organization, people, agents and tasks."""

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from coordination.models import User
from titen.demo.places import Places
from titen.demo.seeding import PEOPLE, seed
from titen.errors import Refused


class Command(BaseCommand):
    """Makes what is missing, and prints where to log in and as whom."""

    # `migrate` has just made them.
    requires_system_checks = []
    help = "Make the demo's data, once; print the board's address (TITEN_URL) and the logins."

    def handle(self, *args: Any, **options: Any) -> None:
        """Seed, then print."""
        try:
            credentials = seed(Places.here())
        except Refused as refused:
            raise CommandError(refused.message) from None
        self.stdout.write(f"board     {os.environ.get('TITEN_URL', 'http://127.0.0.1:8000')}/")
        for email, role in PEOPLE.items():
            password = credentials.passwords[email]
            if not User.objects.get(email=email).check_password(password):
                password = "(changed since)"  # noqa: S105
            self.stdout.write(f"{role:9} {email:24} {password}")
