"""Organizations, members, principals and their keys.

`actor_id` is the principal that acts. In the admin also somebody who is no principal of the
organization may act: their user id goes into the event as `user_id`.
"""

import hashlib
import re
import secrets
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction

from titen.errors import Refused, invalid, not_found

from . import events, keys, leasing, reservations
from .admission import check_capabilities, check_concurrency
from .callers import EVERYTHING, SCOPES, Caller
from .claims import check_ttl
from .handoffs import end_offers_with
from .models import ApiKey, Membership, Organization, Principal, PrincipalKind, Role, User
from .models.fields import ClockNow
from .takeovers import revoke_runs_of

SLUG = re.compile(r"[-a-zA-Z0-9_]{1,60}")
CONFIGURABLE = (
    "lease_ttl_seconds",
    "require_approval_for_destructive_tools",
    "require_approval_for_outward_actions",
    "forbid_self_approval",
)
SECRET_PREFIX = "titen_sk_"  # noqa: S105  (what every secret begins with)


def name_key(name: str) -> str:
    """Names are compared after NFKC and case folding, so that look-alikes by case or width are one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def digest_of(secret: str) -> bytes:
    """The only form in which a key's secret is stored."""
    return hashlib.sha256(secret.encode()).digest()


def check_email(email: str) -> str:
    """An address in lower case. Only what no mail system takes is refused: the local part is anybody's."""
    address = email.strip().lower()
    local, at, domain = address.rpartition("@")
    if (
        not (local and at and domain)
        or len(address) > 254
        or any(c.isspace() or ord(c) < 32 for c in address)
    ):
        raise invalid("email", "must be an address such as ada@example.org.")
    return address


def make_organization(name: str, slug: str, *, user_id: UUID | None = None) -> Organization:
    """A new tenant. `CONFLICT` when the slug is taken."""
    if not name.strip():
        raise invalid("name", "may not be blank.")
    if not SLUG.fullmatch(slug):
        raise invalid("slug", "must be 1 to 60 letters, digits, - and _.")
    try:
        with transaction.atomic():
            organization = Organization.objects.create(name=name, slug=slug)
    except IntegrityError:
        raise Refused("CONFLICT", f"An organization '{slug}' exists already.") from None
    events.record("organization.created", organization_id=organization.pk, actor_id=None, user_id=user_id)
    return organization


def configure(
    organization: Organization,
    changes: Mapping[str, int | bool],
    *,
    actor_id: UUID | None = None,
    user_id: UUID | None = None,
    kind: str = "organization.configured",
) -> Organization:
    """Change an organization's policy flags and its default lease TTL (seconds); each by its column's name.

    The event, of this `kind`, holds what was and what is, of what changed. `VALIDATION_ERROR` for a TTL out of
    range.
    """
    unknown = sorted(set(changes) - set(CONFIGURABLE))
    if unknown:
        raise invalid(unknown[0], "cannot be configured.")
    if "lease_ttl_seconds" in changes:
        check_ttl(changes["lease_ttl_seconds"], "lease_ttl_seconds")
    held = Organization.objects.select_for_update(no_key=True).get(pk=organization.pk)
    was = {name: getattr(held, name) for name, value in changes.items() if getattr(held, name) != value}
    if was:
        now = {name: changes[name] for name in was}
        Organization.objects.filter(pk=held.pk).update(**now)
        events.record(
            kind,
            organization_id=held.pk,
            actor_id=actor_id,
            was=was,
            now=now,
            user_id=user_id,
        )
        held.refresh_from_db()
    return held


def add_member(
    organization: Organization,
    user: User,
    role: Role,
    *,
    actor_id: UUID | None = None,
    user_id: UUID | None = None,
) -> Membership:
    """Give a user a role in an organization (or another one), and a human principal to act as.

    Admins may open Django admin, where they see what they are admin of.
    """
    membership, _ = Membership.objects.update_or_create(
        organization=organization, user=user, defaults={"role": role, "ended_at": None}
    )
    Principal.objects.get_or_create(
        organization=organization,
        user=user,
        defaults={"kind": PrincipalKind.HUMAN, "name": user.email, "name_key": name_key(user.email)},
    )
    if role == Role.ADMIN:
        User.objects.filter(pk=user.pk, is_staff=False).update(is_staff=True)
    events.record(
        "member.added",
        organization_id=organization.pk,
        actor_id=actor_id,
        subject_id=user.pk,
        role=role,
        user_id=user_id,
    )
    return membership


def end_membership(
    membership: Membership, *, actor_id: UUID | None = None, user_id: UUID | None = None
) -> None:
    """Take a user's role in an organization away; their open pages end within 30 seconds.

    What they hold there goes back at once. `CONFLICT` when it has ended already.
    """
    count = Membership.objects.filter(pk=membership.pk, ended_at=None).update(ended_at=ClockNow())
    if not count:
        raise Refused("CONFLICT", object="membership", state="ended")
    organization_id = membership.organization_id
    events.record(
        "member.removed",
        organization_id=organization_id,
        actor_id=actor_id,
        subject_id=membership.user_id,
        user_id=user_id,
    )
    mine = Principal.objects.filter(organization_id=organization_id, user_id=membership.user_id)
    # Waits for what they are taking just now, so that it is seen below.
    for principal in mine.select_for_update():
        _take_back(principal, actor_id)


def make_principal(
    organization: Organization,
    name: str,
    *,
    kind: PrincipalKind = PrincipalKind.AGENT,
    owner: User | None = None,
    capabilities: Iterable[str] = (),
    max_concurrent_runs: int | None = None,
    actor_id: UUID | None = None,
    user_id: UUID | None = None,
) -> Principal:
    """An agent or a service with a name that is unique in its organization."""
    if not name.strip():
        raise invalid("name", "may not be blank.")
    check_capabilities(capabilities)
    check_concurrency(max_concurrent_runs)
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
        actor_id=actor_id,
        subject_id=principal.pk,
        principal=kind,
        user_id=user_id,
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


def disable_principal(
    principal: Principal, *, actor_id: UUID | None = None, user_id: UUID | None = None
) -> None:
    """Stop an agent or a service at once: its keys no longer work and its leases are revoked.

    `CONFLICT` for one that is disabled already, and for a human, whose membership is ended instead.
    """
    if principal.kind == PrincipalKind.HUMAN:
        raise Refused("CONFLICT", "A human cannot be disabled. End the membership instead.")
    # Waits for the claims that have found this caller already, so that their runs are seen below.
    Principal.objects.select_for_update().get(pk=principal.pk)
    if not Principal.objects.filter(pk=principal.pk, disabled_at=None).update(disabled_at=ClockNow()):
        raise Refused("CONFLICT", object="principal", state="disabled")
    events.record(
        "principal.disabled",
        organization_id=principal.organization_id,
        actor_id=actor_id,
        subject_id=principal.pk,
        user_id=user_id,
    )
    _take_back(principal, actor_id)


def _take_back(principal: Principal, actor_id: UUID | None) -> None:
    revoke_runs_of(principal, actor_id=actor_id)
    leasing.revoke_all_of(principal, actor_id=actor_id)
    end_offers_with(principal, actor_id=actor_id)


def issue_key(
    principal: Principal,
    *,
    scopes: Iterable[str],
    label: str = "",
    expires_at: datetime | None = None,
    maker: Caller | None = None,
    user_id: UUID | None = None,
) -> tuple[ApiKey, str]:
    """Make a key and return it with its secret, which is not kept. A human has none.

    `maker` is the caller whose key asks: it can only pass on scopes that it has, to itself, and the new key
    ends no later than the one that asks; with that one when `expires_at` is not given.
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
    made_by = keys.lock_maker(maker.key_id) if maker is not None and maker.key_id is not None else None
    if made_by is not None:
        expires_at = keys.end_within(made_by, expires_at)
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    key = ApiKey.objects.create(
        organization_id=principal.organization_id,
        principal=principal,
        label=label,
        digest=digest_of(secret),
        scopes=wanted,
        expires_at=expires_at,
        created_by_id=maker.principal_id if maker else None,
        made_by=made_by,
    )
    events.record(
        "key.created",
        organization_id=principal.organization_id,
        actor_id=maker.principal_id if maker else None,
        subject_id=key.pk,
        user_id=user_id,
        **keys.log_data(key),
    )
    return key, secret


def revoke_key(
    organization_id: UUID, key_id: UUID, *, actor_id: UUID | None = None, user_id: UUID | None = None
) -> ApiKey:
    """End a key at once; leases that were taken with it run out by themselves. Those made with it stay.

    What is kept for its principal is kept no longer when it was the last key that can claim.
    """
    count = ApiKey.objects.filter(pk=key_id, organization_id=organization_id, revoked_at=None).update(
        revoked_at=ClockNow()
    )
    key = ApiKey.objects.filter(pk=key_id, organization_id=organization_id).first()
    if key is None:
        raise not_found()
    if count:
        events.record(
            "key.revoked",
            organization_id=organization_id,
            actor_id=actor_id,
            subject_id=key_id,
            user_id=user_id,
        )
        reservations.end_without_key(key.principal, actor_id=actor_id)
    return key


def revoke_key_and_made_with_it(
    organization_id: UUID, key_id: UUID, *, actor_id: UUID | None = None, user_id: UUID | None = None
) -> tuple[ApiKey, list[UUID]]:
    """End a key and every key that was made with it; the key, and the ids of the others that ended now."""
    key = revoke_key(organization_id, key_id, actor_id=actor_id, user_id=user_id)
    ended = keys.revoke_made_with(key, actor_id=actor_id, user_id=user_id)
    for principal in Principal.objects.filter(api_keys__in=ended).distinct().order_by("pk"):
        reservations.end_without_key(principal, actor_id=actor_id)
    return key, ended
