"""`manage.py key`: make an API key for an agent and print its secret."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from coordination import identity
from coordination.models import Organization, Principal
from titen.errors import Refused


class Command(BaseCommand):
    """Prints the secret and nothing else; organization and agent are made when they are missing."""

    help = "Make an API key for an agent (and the agent, and its organization) and print the secret."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Names and scopes."""
        parser.add_argument("--org", required=True, help="slug of the organization")
        parser.add_argument("--name", required=True, help="name of the agent")
        parser.add_argument("--scopes", required=True, help="scopes, separated by blanks, or *")
        parser.add_argument("--capabilities", default="", help="the agent's capabilities, when it is made")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make what is missing, then the key."""
        try:
            with transaction.atomic():
                slug, name = options["org"], options["name"]
                organization = Organization.objects.filter(slug=slug).first() or identity.make_organization(
                    slug, slug
                )
                principal = Principal.objects.filter(
                    organization=organization, name_key=identity.name_key(name)
                ).first() or identity.make_principal(
                    organization, name, capabilities=options["capabilities"].split()
                )
                _, secret = identity.issue_key(
                    principal, scopes=options["scopes"].split(), label="made by make key"
                )
        except Refused as refused:
            raise CommandError(refused.message) from None
        self.stdout.write(secret)
