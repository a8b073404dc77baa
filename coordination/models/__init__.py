"""The tables of coordination, a file per aggregate."""

from .checkpoints import Checkpoint, CheckpointVersion, ContextItem, ContextItemKind, ContextPack
from .comments import Comment
from .documents import Document, DocumentPosition
from .events import Event, EventPosition, LogFloor, UnnumberedEvent
from .handoffs import Handoff, HandoffStatus
from .idempotency import StoredAnswer
from .identity import ApiKey, CapabilityLimit, Membership, Organization, Principal, PrincipalKind, Role, User
from .messages import Message
from .resources import GrantReason, Lease, LeaseEnd, Renewal, Resource
from .runs import OPEN_RUNS, Run, RunStatus
from .signing import SigningKey
from .tasks import LONG_COLUMNS, Blocker, BlockerKind, CapabilityProfile, Task, TaskDependency, TaskStatus
from .webhooks import Delivery, DeliveryStatus, PauseReason, Webhook

__all__ = [
    "LONG_COLUMNS",
    "OPEN_RUNS",
    "ApiKey",
    "Blocker",
    "BlockerKind",
    "CapabilityLimit",
    "CapabilityProfile",
    "Checkpoint",
    "CheckpointVersion",
    "Comment",
    "ContextItem",
    "ContextItemKind",
    "ContextPack",
    "Delivery",
    "DeliveryStatus",
    "Document",
    "DocumentPosition",
    "Event",
    "EventPosition",
    "GrantReason",
    "Handoff",
    "HandoffStatus",
    "Lease",
    "LeaseEnd",
    "LogFloor",
    "Membership",
    "Message",
    "Organization",
    "PauseReason",
    "Principal",
    "PrincipalKind",
    "Renewal",
    "Resource",
    "Role",
    "Run",
    "RunStatus",
    "SigningKey",
    "StoredAnswer",
    "Task",
    "TaskDependency",
    "TaskStatus",
    "UnnumberedEvent",
    "User",
    "Webhook",
]
