"""The JSON of the server as typed dictionaries. A newer server may add keys; none here goes away."""

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict


class Task(TypedDict):
    """A unit of work. `status`: todo, in_progress, blocked, done, cancelled. `priority`: -100..100.
    `depends_on`: the ids of what it waited for, of which its holder reads the `result` with `Titen.task`."""

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
    depends_on: NotRequired[list[str]]


class RunInfo(TypedDict):
    """One attempt. `status`: running, waiting, or how it ended."""

    id: str
    epoch: int
    status: str


class Lease(TypedDict):
    """`ttl_seconds` from each renewal on; `expires_at` by the server's clock; `certainty`: held,
    jeopardy, expired, as the server judged when it answered; `sequencer`: for recipients of effects."""

    lease_id: str
    epoch: int
    ttl_seconds: int
    expires_at: str
    certainty: str
    sequencer: NotRequired[str]


class GrantedLease(Lease):
    """A new lease on a resource."""

    resource_type: str
    resource_id: str
    granted_because: str


class Verification(TypedDict):
    """`valid`: the lease of the epoch that was asked about is live; `current_epoch`: the resource's last,
    0 when it was never leased."""

    valid: bool
    current_epoch: int


class Event(TypedDict):
    """One line of the log. `cursor`: the position behind it. `data`: ids, states, numbers and codes."""

    id: str
    cursor: str
    kind: str
    created_at: str
    actor_id: str | None
    task_id: str | None
    run_id: str | None
    lease_id: str | None
    subject_id: str | None
    epoch: int | None
    data: dict[str, Any]


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
    may hold `pause`; the others hold what was decided and answered since the one before, without arguments:
    `href` says where an item is read, `more` where a list of which older items are missing."""

    run: dict[str, Any]
    lease: Lease
    directives: list[str]
    resolved_approvals: list[dict[str, Any]]
    answers: list[dict[str, Any]]
    more: NotRequired[dict[str, str]]


class Comment(TypedDict):
    """A comment on a task; `answer` is `{body, answered_by}` once somebody answered. `round`: of the task
    when it was written or answered; reopening begins the next one."""

    id: str
    round: NotRequired[int]
    body: str
    blocking: bool
    answer: dict[str, Any] | None


class Handoff(TypedDict):
    """An offer. `status`: pending, accepted, rejected, withdrawn, expired. `task_id` where a task is offered,
    `checkpoint_version`: the version that is pinned."""

    handoff_id: str
    status: str
    from_principal: str
    from_name: str
    to_principal: str
    to_name: str
    subject_id: str
    message: str
    reason: str
    task_id: str | None
    context_id: str | None
    checkpoint_id: str | None
    checkpoint_version: int | None
    created_at: str
    expires_at: str
    ended_at: str | None


class CheckpointVersion(TypedDict):
    """One version of a checkpoint. `state_hash`: SHA-256 of the state's canonical JSON; `run_id` and `epoch`
    where a run's holder wrote it."""

    version: int
    state_hash: str
    run_id: str | None
    epoch: int | None
    created_at: str


class Checkpoint(TypedDict):
    """Durable state of `agent` (an id) about a subject, as it stands with `version`; `state` when it was read."""

    checkpoint_id: str
    subject_id: str
    agent: str
    kind: str
    version: int
    state_hash: str
    run_id: str | None
    epoch: int | None
    task_id: str | None
    created_at: str
    updated_at: str
    expires_at: str | None
    state: NotRequired[Any]


class ContextItem(TypedDict):
    """What a pack names. In a pack that was read: `readable` by this agent, with its `content`, or with `href`
    where it did not fit."""

    type: str
    id: str
    version: int | None
    readable: NotRequired[bool]
    content: NotRequired[Any]
    href: NotRequired[str]


class ContextPack(TypedDict):
    """What somebody should read, pinned as it stood."""

    context_id: str
    author: str
    subject_id: str
    task_id: str | None
    note: str
    created_at: str
    items: list[ContextItem]


class Message(TypedDict):
    """A message; `resource` where it went to its holder, whom its sender is not told; `read_at` for its recipient."""

    message_id: str
    from_principal: str
    from_name: str
    to_principal: str | None
    to_name: str | None
    resource: dict[str, str] | None
    body: str
    created_at: str
    read_at: str | None


class Principal(TypedDict):
    """Who a key belongs to. `kind`: agent, human, service."""

    organization_id: str
    principal_id: str
    name: str
    kind: str
    scopes: list[str]
    key_id: str


@dataclass(frozen=True)
class Answer:
    """The answer to a blocking question. answered_by: the name of who answered."""

    comment_id: str
    body: str
    answered_by: str
