"""The agent SDK of Titen: claim work under a lease, keep it, and know when it is lost.

```python
with Titen("http://127.0.0.1:8000", "titen_sk_…") as titen:
    run = titen.claim(["python"], wait=25)
    if run is not None:
        with run:
            run.progress(10, "reading")
            decision = run.ask("Delete the old build?", ["Delete", "Keep"])
            if decision.decision == "Delete":
                run.guard()
                delete_it()
            run.complete("Done.", result={"decision": decision.decision})
```
"""

from .client import Titen
from .errors import (
    AlreadyCompleted,
    AlreadyConsumed,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ApprovalRequired,
    ApprovalVoid,
    Conflict,
    CursorTooOld,
    DigestMismatch,
    EffectsUnreconciled,
    Forbidden,
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
    PolicyDenied,
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
)
from .lease_clock import LeaseState
from .run import Run
from .shapes import Answer, Approval, Comment, Decision, Heartbeat, Lease, Principal, Task

__all__ = [
    "AlreadyCompleted",
    "AlreadyConsumed",
    "Answer",
    "Approval",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalPending",
    "ApprovalRequired",
    "ApprovalVoid",
    "Comment",
    "Conflict",
    "CursorTooOld",
    "Decision",
    "DigestMismatch",
    "EffectsUnreconciled",
    "Forbidden",
    "Heartbeat",
    "IdempotencyMismatch",
    "InFlight",
    "Internal",
    "Lease",
    "LeaseExpired",
    "LeaseInJeopardy",
    "LeaseLost",
    "LeaseState",
    "LeaseSuperseded",
    "MethodNotAllowed",
    "NotClaimable",
    "NotFound",
    "NotHolder",
    "NotReady",
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
]
