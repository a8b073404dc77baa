"""What the tests of leases share: asking for one, and reading what the database keeps of them."""

from typing import Any

from coordination import leasing

from .cast import Agent
from .clockwork import let_lease_run_out, sql, uuid_of


def named(resource: str, **more: Any) -> dict[str, Any]:
    """The body of an acquire: `deploy/checkout`, or `checkout` of the type `deploy`."""
    kind, _, rest = resource.partition("/")
    return {"resource_type": kind if rest else "deploy", "resource_id": rest or kind, **more}


def batch(*resources: str, **more: Any) -> dict[str, Any]:
    """The body of a batch."""
    return {"resources": [named(resource) for resource in resources], **more}


def acquire(agent: Agent, resource: str = "checkout", **more: Any) -> Any:
    """A lease that must be granted."""
    return agent.post("/leases", named(resource, **more))


def shown(agent: Agent, lease: Any) -> Any:
    """The lease as those who may know its holder see it."""
    return agent.get(f"/leases/{lease['lease_id']}")


def renew(agent: Agent, lease: Any, **body: Any) -> Any:
    """The renewed lease, which must be renewable."""
    answer = agent.send("PATCH", f"/leases/{lease['lease_id']}", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def release(agent: Agent, lease: Any) -> Any:
    """Release what must be live."""
    answer = agent.send("DELETE", f"/leases/{lease['lease_id']}")
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def gone(agent: Agent, lease: Any, method: str = "DELETE") -> str | None:
    """Why a lease is over, as its holder learns it; the lease must be a 404."""
    body: dict[str, Any] | None = None if method == "DELETE" else {}
    error = agent.refused("NOT_FOUND", f"/leases/{lease['lease_id']}", body, method=method)
    reason: str | None = error.get("details", {}).get("reason")
    return reason


def let_run_out(lease: Any) -> None:
    """The lease's time is over; nobody has written it down."""
    let_lease_run_out({"lease": lease})


def swept() -> None:
    """Everything that has run out is written down."""
    leasing.sweep()


def history(agent: Agent, resource: str = "checkout") -> list[tuple[Any, ...]]:
    """(epoch, end reason) of all leases on a resource, the oldest first."""
    body = named(resource)
    return sql(
        "SELECT l.epoch, l.end_reason FROM coordination_lease l JOIN coordination_resource r ON r.id = l.resource_id"
        " WHERE r.organization_id = %s AND r.resource_type = %s AND r.resource_id = %s ORDER BY l.epoch",
        agent.principal.organization_id,
        body["resource_type"],
        body["resource_id"],
    )


def lease_events(lease: Any) -> list[str]:
    """The kinds of the events of one lease, in the order in which they were written."""
    found = sql(
        "SELECT kind FROM coordination_event WHERE lease_id = %s ORDER BY seq", uuid_of(lease["lease_id"])
    )
    return [kind for (kind,) in found]
