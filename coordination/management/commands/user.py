"""`manage.py user`: make a user and give them a role in an organization."""

import os
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from coordination import identity
from coordination.models import Organization, Role, User
from titen.errors import Refused


class Command(BaseCommand):
    """Takes the password from the environment, so that it stands in no process list."""

    help = (
        "Make a user (or change one) with a role in an organization; the password comes from TITEN_PASSWORD."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Who and what."""
        parser.add_argument("--org", required=True, help="slug of the organization; made when missing")
        parser.add_argument("--email", required=True)
        parser.add_argument("--role", required=True, choices=Role.values)

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the user, the organization when it is missing, and the membership."""
        password = os.environ.get("TITEN_PASSWORD", "")
        email = options["email"].strip().lower()
        role = Role(options["role"])
        try:
            identity.check_email(email)
            if not password:
                raise CommandError("Set TITEN_PASSWORD to the password of the user.")
            validate_password(password)
        except ValidationError as problem:
            raise CommandError(" ".join(problem.messages)) from None
        except Refused as refused:
            raise CommandError(refused.message) from None
        with transaction.atomic():
            organization = Organization.objects.filter(
                slug=options["org"]
            ).first() or identity.make_organization(options["org"], options["org"])
            user = User.objects.filter(email__iexact=email).first() or User.objects.create_user(email)
            user.set_password(password)
            # Admins of an organization audit in Django admin; the admin changes nothing but through rules.
            user.is_staff = user.is_staff or role == Role.ADMIN
            user.save()
            identity.add_member(organization, user, role)
        self.stderr.write(f"{email} is {role} of {organization.slug}")
