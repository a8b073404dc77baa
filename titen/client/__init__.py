"""The agent SDK of Titen: claim work under a lease, keep it, and know when it is lost.

```python
with Titen("http://127.0.0.1:8000", "titen_sk_…") as titen:
    run = titen.claim(["python"], wait=25)
    if run is not None:
        with run:
            run.progress(10, "reading")
            question = "May I delete the old build?"
            run.act("delete", {"build": 40}, lambda effect: delete(40), question=question, effect_key="delete 40")
            run.complete("Done.", result={"deleted": 40})
```
"""

from .client import Titen
from .effect_errors import (
    AlreadyConsumed,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ApprovalRequired,
    ApprovalVoid,
    DigestMismatch,
    EffectsUnreconciled,
    PolicyDenied,
)
from .effect_shapes import Action, Approval, Decision, EffectRecord, Option
from .effects import Effect
from .errors import (
    AlreadyCompleted,
    Conflict,
    CursorTooOld,
    Forbidden,
    HandedOff,
    IdempotencyMismatch,
    InFlight,
    Internal,
    LeaseExpired,
    LeaseInJeopardy,
    LeaseLost,
    LeaseSuperseded,
    MethodNotAllowed,
    NotClaimable,
    NotFound,
    NotHolder,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    Reserved,
    RunEnded,
    StaleEpoch,
    TaskCancelled,
    TitenError,
    Unauthenticated,
    UnexpectedAnswer,
    Unreachable,
    UnsupportedMediaType,
    ValidationError,
    VersionMismatch,
    WrongProcess,
)
from .lease_clock import LeaseState
from .leases import HeldLease, HeldLeases
from .run import Run
from .shapes import (
    Answer,
    Checkpoint,
    CheckpointVersion,
    Comment,
    ContextItem,
    ContextPack,
    Event,
    Handoff,
    Heartbeat,
    Lease,
    Message,
    Principal,
    Task,
)

__all__ = [
    "Action",
    "AlreadyCompleted",
    "AlreadyConsumed",
    "Answer",
    "Approval",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalPending",
    "ApprovalRequired",
    "ApprovalVoid",
    "Checkpoint",
    "CheckpointVersion",
    "Comment",
    "Conflict",
    "ContextItem",
    "ContextPack",
    "CursorTooOld",
    "Decision",
    "DigestMismatch",
    "Effect",
    "EffectRecord",
    "EffectsUnreconciled",
    "Event",
    "Forbidden",
    "HandedOff",
    "Handoff",
    "Heartbeat",
    "HeldLease",
    "HeldLeases",
    "IdempotencyMismatch",
    "InFlight",
    "Internal",
    "Lease",
    "LeaseExpired",
    "LeaseInJeopardy",
    "LeaseLost",
    "LeaseState",
    "LeaseSuperseded",
    "Message",
    "MethodNotAllowed",
    "NotClaimable",
    "NotFound",
    "NotHolder",
    "NotReady",
    "Option",
    "Overloaded",
    "PayloadTooLarge",
    "PolicyDenied",
    "Principal",
    "RateLimited",
    "Reserved",
    "Run",
    "RunEnded",
    "StaleEpoch",
    "Task",
    "TaskCancelled",
    "Titen",
    "TitenError",
    "Unauthenticated",
    "UnexpectedAnswer",
    "Unreachable",
    "UnsupportedMediaType",
    "ValidationError",
    "VersionMismatch",
    "WrongProcess",
]
