"""The tables of coordination, a file per aggregate."""

from .comments import Comment
from .events import Event, EventPosition, UnnumberedEvent
from .idempotency import StoredAnswer
from .identity import ApiKey, CapabilityLimit, Membership, Organization, Principal, PrincipalKind, Role, User
from .resources import GrantReason, Lease, LeaseEnd, Renewal, Resource
from .runs import OPEN_RUNS, Run, RunStatus
from .tasks import Blocker, BlockerKind, CapabilityProfile, Task, TaskDependency, TaskStatus

__all__ = [
    "OPEN_RUNS",
    "ApiKey",
    "Blocker",
    "BlockerKind",
    "CapabilityLimit",
    "CapabilityProfile",
    "Comment",
    "Event",
    "EventPosition",
    "GrantReason",
    "Lease",
    "LeaseEnd",
    "Membership",
    "Organization",
    "Principal",
    "PrincipalKind",
    "Renewal",
    "Resource",
    "Role",
    "Run",
    "RunStatus",
    "StoredAnswer",
    "Task",
    "TaskDependency",
    "TaskStatus",
    "UnnumberedEvent",
    "User",
]
