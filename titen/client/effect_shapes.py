"""The JSON of approvals and effects as typed dictionaries: see `shapes`."""

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

Kind = Literal["destructive", "outward", "other"]
Risk = Literal["low", "medium", "high", "critical"]
Outcome = Literal["succeeded", "failed", "unknown", "compensated"]


class Action(TypedDict):
    """What an agent wants to do. `kind` is what it says that it is: policy's word counts if that is stricter."""

    tool: str
    server: NotRequired[str | None]
    arguments: NotRequired[dict[str, Any]]
    kind: NotRequired[Kind]


class Option(TypedDict):
    """A choice with words of its own. `value` is the decision; `grants`: it lets the action happen."""

    value: str
    label: NotRequired[str]
    grants: NotRequired[bool]


class Approval(TypedDict):
    """A question to humans. `status`: pending, then decided, expired or cancelled (and consumed or void for
    one that grants an action). `granted`: of a decided action; `final`: a denial that holds; `fallback`:
    what `on_expiry` named, once it expired. `valid_for_seconds`: how long a grant can be used. `round`: of
    the task when it was asked or decided; reopening begins the next one. `withdrawal_reason`: why a human
    withdrew a grant before it was used."""

    id: str
    round: NotRequired[int]
    withdrawal_reason: NotRequired[str]
    status: str
    question: str
    context: str
    options: list[str | Option]
    action: Action | None
    action_digest: str | None
    kind: Kind | None
    risk: Risk
    on_expiry: str | None
    valid_for_seconds: int
    decision: str | None
    granted: bool | None
    final: bool
    fallback: str | None
    reason: NotRequired[str | None]
    expires_at: str


class EffectReport(TypedDict):
    """One statement about the outcome of an effect, by its maker or by a human; it never changes."""

    id: str
    was: str
    outcome: str
    note: str
    late: bool
    reported_by: str
    reconciled_by_user_id: str | None
    created_at: str


class EffectRecord(TypedDict):
    """An effect as the server keeps it. `status`: authorized, then succeeded, failed, unknown, compensated; or
    refused with its `code`. `verdict`: what policy said. `reports`: all that was reported about its outcome,
    oldest first; `late` and `note` are those of the newest."""

    id: str
    task_id: str | None
    run_id: str | None
    lease_id: str
    epoch: int
    effect_key: str
    action: Action
    action_digest: str
    kind: Kind
    status: str
    code: str | None
    verdict: dict[str, Any]
    approval_id: str | None
    late: bool
    note: str
    reports: list[EffectReport]
    created_at: str
    outcome_at: str | None


@dataclass(frozen=True)
class Decision:
    """How an approval ended.

    status: `decided` (`consumed` once its grant was used), `expired` (nobody decided in time: that is not
    a denial) or `cancelled`.
    decision: exactly one of the options if decided, else None.
    granted: whether that lets the action happen; None without an action, or without a decision.
    fallback: what `on_expiry` named, if it expired.
    """

    approval_id: str
    status: str
    decision: str | None
    reason: str | None
    approval: Approval
    granted: bool | None = None
    fallback: str | None = None

    @classmethod
    def of(cls, approval: Approval) -> "Decision":
        """Of an approval that ended."""
        return cls(
            approval["id"],
            approval["status"],
            approval.get("decision"),
            approval.get("reason"),
            approval,
            approval.get("granted"),
            approval.get("fallback"),
        )
