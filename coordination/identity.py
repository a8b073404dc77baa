"""Organizations, members, principals and their keys."""

import hashlib
import secrets
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction

from titen.errors import Refused, invalid, not_found

from . import events
from .callers import EVERYTHING, SCOPES, Caller
from .models import ApiKey, Membership, Organization, Principal, PrincipalKind, Role, User
from .models.fields import ClockNow
from .tasks import revoke_runs_of

SECRET_PREFIX = "titen_sk_"  # noqa: S105  (what every secret begins with)


def name_key(name: str) -> str:
    """Names are compared after NFKC and case folding, so that look-alikes by case or width are one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def digest_of(secret: str) -> bytes:
    """The only form in which a key's secret is stored."""
    return hashlib.sha256(secret.encode()).digest()


def make_organization(name: str, slug: str) -> Organization:
    """A new tenant. `CONFLICT` when the slug is taken."""
    try:
        with transaction.atomic():
            return Organization.objects.create(name=name, slug=slug)
    except IntegrityError:
        raise Refused("CONFLICT", f"An organization '{slug}' exists already.") from None


def add_member(organization: Organization, user: User, role: Role) -> Membership:
    """Give a user a role in an organization, and a human principal to act as."""
    membership, _ = Membership.objects.update_or_create(
        organization=organization, user=user, defaults={"role": role, "ended_at": None}
    )
    Principal.objects.get_or_create(
        organization=organization,
        user=user,
        defaults={"kind": PrincipalKind.HUMAN, "name": user.email, "name_key": name_key(user.email)},
    )
    events.record(
        "member.added", organization_id=organization.pk, actor_id=None, subject_id=user.pk, role=role
    )
    return membership


def end_membership(membership: Membership) -> None:
    """Take a user's role in an organization away; their open pages end within 30 seconds."""
    Membership.objects.filter(pk=membership.pk, ended_at=None).update(ended_at=ClockNow())
    events.record(
        "member.removed",
        organization_id=membership.organization_id,
        actor_id=None,
        subject_id=membership.user_id,
    )


def make_principal(
    organization: Organization,
    name: str,
    *,
    kind: PrincipalKind = PrincipalKind.AGENT,
    owner: User | None = None,
    capabilities: Iterable[str] = (),
    max_concurrent_runs: int | None = None,
) -> Principal:
    """An agent or a service with a name that is unique in its organization."""
    if not name.strip():
        raise invalid("name", "may not be blank.")
    try:
        with transaction.atomic():
            principal = Principal.objects.create(
                organization=organization,
                kind=kind,
                name=name,
                name_key=name_key(name),
                owner=owner or _first_admin(organization),
                capabilities=sorted(set(capabilities)),
                max_concurrent_runs=max_concurrent_runs,
            )
    except IntegrityError:
        raise Refused("CONFLICT", f"A principal called '{name}' exists already.") from None
    events.record(
        "principal.created",
        organization_id=organization.pk,
        actor_id=None,
        subject_id=principal.pk,
        principal=kind,
    )
    return principal


def _first_admin(organization: Organization) -> User | None:
    membership = (
        Membership.objects.filter(organization=organization, role=Role.ADMIN, ended_at=None)
        .select_related("user")
        .order_by("created_at")
        .first()
    )
    return membership.user if membership else None


def disable_principal(principal: Principal, *, actor_id: UUID | None = None) -> None:
    """Stop a principal at once: its keys no longer work and its leases are revoked."""
    Principal.objects.filter(pk=principal.pk, disabled_at=None).update(disabled_at=ClockNow())
    events.record(
        "principal.disabled",
        organization_id=principal.organization_id,
        actor_id=actor_id,
        subject_id=principal.pk,
    )
    revoke_runs_of(principal, actor_id=actor_id)


def issue_key(
    principal: Principal,
    *,
    scopes: Iterable[str],
    label: str = "",
    expires_at: datetime | None = None,
    maker: Caller | None = None,
) -> tuple[ApiKey, str]:
    """Make a key and return it with its secret, which is not kept.

    `maker` is the caller whose key asks: it can only pass on scopes that it has, to itself.
    """
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES and scope != EVERYTHING]
    if unknown or not wanted:
        raise invalid(
            "scopes",
            f"must be some of {' '.join(SCOPES)} or *." if not unknown else f"unknown: {' '.join(unknown)}.",
        )
    if principal.kind == PrincipalKind.HUMAN:
        raise invalid("principal", "a human works on the board and has no API key.")
    if maker is not None and not maker.is_human:
        for scope in wanted:
            maker.require(scope)
        if maker.principal_id != principal.pk:
            raise not_found()
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    key = ApiKey.objects.create(
        organization_id=principal.organization_id,
        principal=principal,
        label=label,
        digest=digest_of(secret),
        scopes=wanted,
        expires_at=expires_at,
        created_by_id=maker.principal_id if maker else None,
    )
    events.record(
        "key.created",
        organization_id=principal.organization_id,
        actor_id=maker.principal_id if maker else None,
        subject_id=key.pk,
    )
    return key, secret


def revoke_key(organization_id: UUID, key_id: UUID, *, actor_id: UUID | None = None) -> ApiKey:
    """End a key at once; leases that were taken with it run out by themselves."""
    count = ApiKey.objects.filter(pk=key_id, organization_id=organization_id, revoked_at=None).update(
        revoked_at=ClockNow()
    )
    key = ApiKey.objects.filter(pk=key_id, organization_id=organization_id).first()
    if key is None:
        raise not_found()
    if count:
        events.record("key.revoked", organization_id=organization_id, actor_id=actor_id, subject_id=key_id)
    return key
