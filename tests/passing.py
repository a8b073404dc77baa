"""What tests of handoffs share: offering, answering, and letting time pass."""

from typing import Any

from .cast import Agent
from .clockwork import sql, uuid_of
from .scenes import offer


def hand(sender: Agent, target: Agent, **more: Any) -> Any:
    """A pending handoff of a subject."""
    return sender.post("/handoffs", {"to_principal": target.principal.name, "subject_id": "rollout", **more})


def hand_task(claim: Any, sender: Agent, target: Agent, **more: Any) -> Any:
    """A pending handoff of a claimed task."""
    return sender.post("/handoffs", offer(target, claim, **more))


def path(handoff: Any, verb: str = "") -> str:
    """The handoff, or a verb on it."""
    return f"/handoffs/{handoff['handoff_id']}" + (f"/{verb}" if verb else "")


def accept(agent: Agent, handoff: Any, **more: Any) -> Any:
    """Accept; the handoff with the claim."""
    return agent.post(path(handoff, "resolve"), {"status": "accepted", **more})


def refused_acceptance(agent: Agent, handoff: Any, code: str, **more: Any) -> Any:
    """Accept in vain; the error."""
    return agent.refused(code, path(handoff, "resolve"), {"status": "accepted", **more})


def let_offer_run_out(handoff: Any) -> None:
    """The handoff's time is over; nobody has written it down."""
    sql(
        "UPDATE coordination_handoff SET expires_at = clock_timestamp() WHERE id = %s AND status = 'pending'",
        uuid_of(handoff["handoff_id"]),
    )


def holder_of(agent: Agent, task_id: str) -> str | None:
    """The name of who holds a task now."""
    standing = agent.get(f"/tasks/{task_id}")["standing"]
    return standing["holder"] if standing else None


def beat(agent: Agent, claim: Any) -> Any:
    """A heartbeat, which must be accepted."""
    return agent.post(f"/runs/{claim['run']['id']}/heartbeat", {"epoch": claim["lease"]["epoch"]})


def end(agent: Agent, claim: Any, verb: str, **more: Any) -> Any:
    """Complete, fail or release a run."""
    return agent.post(f"/runs/{claim['run']['id']}/{verb}", {"epoch": claim["lease"]["epoch"], **more})


def superseded(agent: Agent, claim: Any) -> Any:
    """The error of a heartbeat by who has lost the task to another."""
    body = {"epoch": claim["lease"]["epoch"]}
    return agent.refused("LEASE_SUPERSEDED", f"/runs/{claim['run']['id']}/heartbeat", body)
