"""What tests keep, and handoffs of it in every state, made as rows with their events."""

from typing import Any

from coordination import handoffs
from coordination.models import Handoff

from .cast import Agent
from .clockwork import sql, uuid_of

OVER = ("rejected", "withdrawn", "expired")


def keep(agent: Agent, state: Any, **more: Any) -> Any:
    """Write a checkpoint about `customer-7`."""
    return agent.post("/checkpoints", {"subject_id": "customer-7", "state": state, **more})


def word(claim: Any, state: Any, **more: Any) -> dict[str, Any]:
    """The body of a checkpoint under a claim's run."""
    return {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"], "state": state, **more}


def versions(agent: Agent, kept: Any) -> list[int]:
    """The versions that the history shows."""
    page = agent.get(f"/checkpoints/{kept['checkpoint_id']}/history?limit=200")
    return [each["version"] for each in page["versions"]]


def hand(to: Agent, by: Agent, *, status: str = "pending", **names: Any) -> Handoff:
    """A handoff of `task`, `checkpoint` and `version`, or `context`, by their printed ids.

    `run out` is pending, and nobody has written down that its time is over.
    """
    columns: dict[str, Any] = {"subject_id": "customer-7", "from_principal_id": by.principal.pk}
    columns |= {
        f"{name}_id": uuid_of(names[name]) for name in ("task", "checkpoint", "context") if name in names
    }
    columns["checkpoint_version"] = names.get("version")
    pending = status in ("pending", "run out")
    (found,) = sql(
        "SELECT clock_timestamp(), clock_timestamp() + %s * interval '1 s'",
        -1 if status == "run out" else 3600,
    )
    handoff = Handoff.objects.create(
        organization_id=by.principal.organization_id,
        to_principal=to.principal,
        to_address=to.principal.name,
        status="pending" if pending else status,
        ended_at=None if pending else found[0],
        expires_at=found[1],
        **columns,
    )
    handoffs.record("handoff.created", handoff, actor_id=by.principal.pk)
    if not pending:
        handoffs.record(f"handoff.{status}", handoff, actor_id=to.principal.pk)
    return handoff


def expire(kept: Any) -> None:
    """A checkpoint's time is over; nobody has written that down."""
    changed = sql(
        "UPDATE coordination_checkpoint SET expires_at = clock_timestamp() WHERE id = %s RETURNING 1",
        uuid_of(kept["checkpoint_id"]),
    )
    assert changed
