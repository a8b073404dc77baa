"""Who may decide what: the roles that people have today, and what an agent's owner may not decide."""

from uuid import UUID

from coordination.models import Membership, Organization, Role


def role_of(user_id: UUID, organization_id: UUID) -> Role | None:
    """The role that somebody has in an organization today; None for who is no active member of it."""
    found = Membership.objects.filter(
        organization_id=organization_id, user_id=user_id, ended_at=None, user__is_active=True
    )
    role = found.values_list("role", flat=True).first()
    return Role(role) if role else None


def self_approval_is_forbidden(organization: Organization, role: Role = Role.APPROVER) -> bool:
    """True where the flag stands and somebody else could decide what needs `role`."""
    return organization.forbid_self_approval and deciders(organization.pk, role) > 1


def deciders(organization_id: UUID, role: Role = Role.APPROVER) -> int:
    """How many people of an organization have at least this role."""
    members = Membership.objects.filter(organization_id=organization_id, ended_at=None, user__is_active=True)
    return members.filter(role__in=[each for each in Role if each.includes(role)]).count()
