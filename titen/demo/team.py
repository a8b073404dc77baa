"""Who works in the demo: what each agent claims, what it takes over from others, what its key lets it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Agent:
    """An agent. It claims tasks of `capabilities`; those of `takes_over` it does when they are handed to it."""

    capabilities: tuple[str, ...]
    scopes: str
    takes_over: tuple[str, ...] = ()


AGENTS = {
    "linter": Agent(
        ("python", "housekeeping"),
        "tasks:claim tasks:read tasks:write checkpoints:write handoffs:read handoffs:write messages:read messages:write",
    ),
    "archivist": Agent(
        ("static",), "tasks:claim tasks:read comments:write effects:write approvals:request approvals:read"
    ),
    "scribe": Agent(
        ("docs",),
        "tasks:claim tasks:read comments:write handoffs:read handoffs:write leases:write "
        "messages:read messages:write effects:write approvals:request approvals:read",
        takes_over=("python",),
    ),
    "janitor": Agent(
        ("ops",),
        "tasks:claim tasks:read effects:write approvals:request approvals:read checkpoints:write leases:write "
        "messages:read messages:write",
    ),
}
