"""The standing of a holder: the first reason that refuses its verb, and what jeopardy still allows."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from titen.errors import Refused, not_found

from .database import Row
from .models import Lease
from .shapes import certainty
from .times import stamp


@dataclass(frozen=True)
class Jeopardy:
    """What the holder of a lease in jeopardy may do, what only a certain one may, and what ends it."""

    allowed: tuple[str, ...]
    refused: tuple[str, ...]
    remedy: str


OF_A_RUN = Jeopardy(
    allowed=("heartbeat", "checkpoint", "comment", "ask", "release", "fail"),
    refused=("complete", "hand_off", "authorize"),
    remedy="Send a heartbeat",
)
OF_A_LEASE = Jeopardy(allowed=("renew", "release"), refused=("authorize",), remedy="Renew it")


def of_lease(lease: Lease, at: datetime) -> Row:
    """The columns of a row of standing that come from its lease."""
    return {
        "lease_id": lease.pk,
        "principal_id": lease.principal_id,
        "epoch": lease.epoch,
        "ended_at": lease.ended_at,
        "end_reason": lease.end_reason,
        "expired": lease.expires_at <= at,
        "jeopardy": certainty(lease, at, settings.JEOPARDY_SHARE) == "jeopardy",
        "jeopardy_declared_at": lease.jeopardy_declared_at,
        "renewed_at": lease.renewed_at,
        "ttl_seconds": lease.ttl_seconds,
        "at": at,
    }


def judge(row: Row, epoch: int, verb: str, *, rules: Jeopardy = OF_A_RUN) -> Refused:
    """The refusal for a row of standing that did not let `verb` through."""
    state = {"run": row["run_status"], "task": row["task_status"]}
    if row["run_id"] is None:
        return not_found()
    if row["principal_id"] != row["caller_id"]:
        return Refused("NOT_HOLDER")
    if row["ended_at"] is not None:
        return _ended(row, state)
    if row["epoch"] != epoch:
        return Refused("STALE_EPOCH", details={"current_epoch": row["epoch"]})
    if row["expired"]:
        return Refused("LEASE_EXPIRED", details=state)
    if row["jeopardy"] and verb in rules.refused:
        return _in_jeopardy(row, state, rules)
    if verb == "complete" and row["open_effects"]:
        return Refused(
            "EFFECTS_UNRECONCILED", count=row["open_effects"], details={"open_effects": row["open_effects"]}
        )
    return Refused("CONFLICT", object="task", state=row["task_status"], details=state)


def _in_jeopardy(row: Row, state: dict[str, Any], rules: Jeopardy) -> Refused:
    declared = row["jeopardy_declared_at"]
    if declared is not None:
        why = f"its holder declared it at {stamp(declared)}"
    else:
        quiet = (row["at"] - row["renewed_at"]).total_seconds()
        why = f"no renewal for {quiet:.1f} s of a TTL of {row['ttl_seconds']} s"
    return Refused(
        "LEASE_IN_JEOPARDY",
        why=why,
        remedy=rules.remedy,
        details={
            **state,
            "because": "silence" if declared is None else "declared",
            "declared_at": stamp(declared),
            "renewed_at": stamp(row["renewed_at"]),
            "ttl_seconds": row["ttl_seconds"],
            "allowed": list(rules.allowed),
            "refused": list(rules.refused),
        },
    )


def _ended(row: Row, state: dict[str, Any]) -> Refused:
    match row["end_reason"]:
        case "completed":
            return Refused("ALREADY_COMPLETED", details=state)
        case "expired":
            return Refused("LEASE_EXPIRED", details=state)
        case "revoked" | "handed_off" | "superseded":
            return Refused(
                "LEASE_SUPERSEDED",
                reason=row["end_reason"].replace("_", " "),
                details={**state, "reason": row["end_reason"]},
            )
        case "cancelled":
            return Refused("TASK_CANCELLED", details=state)
        case _:
            return Refused("CONFLICT", object="run", state=row["run_status"], details=state)
