"""Who acts and where: organizations, users, memberships, principals, API keys."""

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from .fields import stamped, uuid_key


class Organization(models.Model):
    """The tenant. Every row of work belongs to exactly one."""

    PREFIX = "org"

    id = uuid_key()
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=60, unique=True)
    lease_ttl_seconds = models.PositiveIntegerField(default=300)
    require_approval_for_destructive_tools = models.BooleanField(default=True)
    require_approval_for_outward_actions = models.BooleanField(default=True)
    forbid_self_approval = models.BooleanField(default=False)
    created_at = stamped()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class UserManager(BaseUserManager["User"]):
    """Makes users by e-mail address."""

    def create_user(self, email: str, password: str | None = None, **extra: Any) -> "User":
        """A user with a normalised address and a hashed password (unusable when None)."""
        user = self.model(email=self.normalize_email(email).lower(), **extra)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **extra: Any) -> "User":
        """A user who may open Django admin and see everything there."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **extra)

    def get_by_natural_key(self, username: str | None) -> "User":
        """Addresses are compared without regard to case."""
        return self.get(email__iexact=username)


class User(AbstractBaseUser, PermissionsMixin):
    """A human who logs in by e-mail. What they may do is their membership's role."""

    PREFIX = "user"

    id = uuid_key()
    email = models.EmailField(unique=True)
    name = models.CharField(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField("may open the admin", default=False)
    created_at = stamped()

    objects: ClassVar[UserManager] = UserManager()
    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ["email"]
        constraints = [models.CheckConstraint(condition=Q(email=Lower("email")), name="email_is_lower_case")]

    def __str__(self) -> str:
        return self.email


class Role(models.TextChoices):
    """What a human may do in an organization; each includes the ones before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """True when this role may do all that `other` may."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


class Membership(models.Model):
    """A user's role in an organization."""

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    ended_at = models.DateTimeField(null=True, blank=True)
    created_at = stamped()

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", "user", name="one_membership_per_user"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.organization} as {self.role}"


class PrincipalKind(models.TextChoices):
    """What sort of actor a principal is."""

    AGENT = "agent"
    HUMAN = "human"
    SERVICE = "service"


class Principal(models.Model):
    """Who acts: an agent, a service, or a human in one organization."""

    PREFIX = "agent"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="principals")
    kind = models.CharField(max_length=8, choices=PrincipalKind.choices)
    name = models.CharField(max_length=120)
    name_key = models.CharField(max_length=240, editable=False)
    owner = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, blank=True, related_name="owned_principals"
    )
    user = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="principals")
    capabilities = ArrayField(models.CharField(max_length=80), default=list, blank=True)
    max_concurrent_runs = models.PositiveIntegerField(null=True, blank=True)
    disabled_at = models.DateTimeField(null=True, blank=True)
    created_at = stamped()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("organization", "name_key", name="principal_name_is_unique"),
            models.UniqueConstraint(
                "organization", "user", condition=Q(user__isnull=False), name="one_principal_per_member"
            ),
            models.CheckConstraint(
                condition=Q(kind="human", user__isnull=False) | (~Q(kind="human") & Q(user__isnull=True)),
                name="principal_is_human_iff_it_has_a_user",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class CapabilityLimit(models.Model):
    """Admission: how many runs that need one capability may be open at once."""

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="capability_limits")
    capability = models.CharField(max_length=80)
    max_concurrent_runs = models.PositiveIntegerField()

    class Meta:
        ordering = ["capability"]
        constraints = [
            models.UniqueConstraint("organization", "capability", name="one_limit_per_capability"),
        ]

    def __str__(self) -> str:
        return f"{self.capability}: at most {self.max_concurrent_runs}"


class ApiKey(models.Model):
    """A principal's credential. The secret is shown once; only its SHA-256 is stored."""

    PREFIX = "key"

    id = uuid_key()
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="api_keys")
    principal = models.ForeignKey(Principal, on_delete=models.PROTECT, related_name="api_keys")
    label = models.CharField(max_length=120, blank=True)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=40))
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(Principal, on_delete=models.PROTECT, null=True, related_name="+")
    # The key with which it was made; null for one that a human made.
    made_by = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="made_with_it")
    created_at = stamped()

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.label or 'key'} of {self.principal}"
