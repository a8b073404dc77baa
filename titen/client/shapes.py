"""The JSON of the server as typed dictionaries. A newer server may add keys; none here goes away."""

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict


class Task(TypedDict):
    """A unit of work. `status`: todo, in_progress, blocked, done, cancelled. `priority`: -100..100."""

    id: str
    title: str
    description: str
    status: str
    priority: int
    required_capabilities: list[str]
    attempt_count: int
    max_attempts: int
    payload: Any
    secret_refs: list[str]


class RunInfo(TypedDict):
    """One attempt. `status`: running, waiting, or how it ended."""

    id: str
    epoch: int
    status: str


class Lease(TypedDict):
    """`ttl_seconds` from each renewal on; `expires_at` by the server's clock; `certainty`: held,
    jeopardy, expired, as the server judged when it answered."""

    lease_id: str
    epoch: int
    ttl_seconds: int
    expires_at: str
    certainty: str


class Claim(TypedDict):
    """The answer to a claim, and `next` in the answer to complete, fail and release."""

    task: Task
    run: RunInfo
    lease: Lease
    heartbeat_interval_seconds: float
    server_time: str
    context: dict[str, Any]


class Heartbeat(TypedDict):
    """The answer to a heartbeat. `run` has its status and the last accepted progress; `directives`
    may hold `pause`; the others hold what was decided and answered since."""

    run: dict[str, Any]
    lease: Lease
    directives: list[str]
    resolved_approvals: list[dict[str, Any]]
    answers: list[dict[str, Any]]


class Approval(TypedDict):
    """A question to humans. `status`: pending, then decided, expired or cancelled (and consumed or
    void for one that is bound to an action)."""

    id: str
    status: str
    question: str
    options: list[str]
    decision: str | None
    reason: NotRequired[str | None]
    expires_at: str


class Comment(TypedDict):
    """A comment on a task; `answer` is `{body, answered_by}` once somebody answered."""

    id: str
    body: str
    blocking: bool
    answer: dict[str, Any] | None


class Principal(TypedDict):
    """Who a key belongs to. `kind`: agent, human, service."""

    organization_id: str
    principal_id: str
    name: str
    kind: str
    scopes: list[str]
    key_id: str


@dataclass(frozen=True)
class Decision:
    """How an approval ended.

    status: `decided`, `expired` (nobody decided in time: that is not a denial) or `cancelled`.
    decision: exactly one of the options if decided, else None.
    """

    approval_id: str
    status: str
    decision: str | None
    reason: str | None
    approval: Approval


@dataclass(frozen=True)
class Answer:
    """The answer to a blocking question. answered_by: the name of who answered."""

    comment_id: str
    body: str
    answered_by: str
