"""People who log in: making them, and their passwords."""

from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from titen.errors import Refused, invalid

from . import events
from .identity import check_email
from .models import Membership, User


def make_user(email: str, password: str, *, name: str = "") -> User:
    """A user who can log in and is no member of anything yet. `CONFLICT` when the address is taken."""
    email = check_email(email)
    _check_password(password, User(email=email, name=name))
    try:
        with transaction.atomic():
            return User.objects.create_user(email, password, name=name)
    except IntegrityError:
        raise Refused("CONFLICT", f"A user {email} exists already.") from None


def set_password(user: User, password: str, *, user_id: UUID) -> None:
    """Give a user another password, which ends their other sessions; `user_id` is who did it.

    Every organization of the user learns that it happened, and by whom.
    """
    _check_password(password, user)
    user.set_password(password)
    user.save(update_fields=["password"])
    for organization_id in Membership.objects.filter(user=user, ended_at=None).values_list(
        "organization_id", flat=True
    ):
        events.record(
            "user.password_changed",
            organization_id=organization_id,
            actor_id=None,
            subject_id=user.pk,
            user_id=user_id,
        )


def _check_password(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as problem:
        raise invalid("password", " ".join(problem.messages)) from None
