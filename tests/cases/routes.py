"""Every route of `/v1` and what a valid request to it looks like, for the cases that walk all of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from titen.urls import v1

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
EPOCH = {"epoch": 1}
SHOWN = {"shown_digest": "0" * 64}

# (method, route) -> a body that nothing is wrong with. A route that is missing here fails the tests.
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "tasks"): {"title": "Mine"},
    ("POST", "tasks/claim"): {},
    ("POST", "tasks/<str:task_id>/cancel"): {"reason": "No longer needed"},
    ("POST", "tasks/<str:task_id>/comments"): {"body": "Hello"},
    ("POST", "tasks/<str:task_id>/comments/<str:comment_id>/answer"): {"body": "Yes"},
    ("POST", "tasks/<str:task_id>/takeover"): {"to": "me", "reason": "It is urgent", **EPOCH, **SHOWN},
    ("POST", "tasks/<str:task_id>/reopen"): SHOWN,
    ("POST", "tasks/<str:task_id>/block"): {"sentence": "Wait for the review", **SHOWN},
    ("POST", "tasks/<str:task_id>/unblock"): SHOWN,
    ("POST", "tasks/<str:task_id>/priority"): {"priority": 5, **SHOWN},
    ("POST", "runs/<str:run_id>/heartbeat"): {**EPOCH, "progress": 1},
    ("POST", "runs/<str:run_id>/complete"): {**EPOCH, "summary": "Done"},
    ("POST", "runs/<str:run_id>/fail"): {**EPOCH, "error": "No luck"},
    ("POST", "runs/<str:run_id>/release"): EPOCH,
    ("POST", "runs/<str:run_id>/jeopardy"): EPOCH,
    ("POST", "leases"): {"resource_type": "deploy", "resource_id": "checkout-service"},
    ("POST", "leases/batch"): {"resources": [{"resource_type": "deploy", "resource_id": "search-service"}]},
    ("PATCH", "leases/<str:lease_id>"): {},
    ("DELETE", "leases/<str:lease_id>"): {},
    ("POST", "leases/<str:lease_id>/jeopardy"): {},
    ("POST", "leases/<str:lease_id>/revoke"): {"reason": "The deployment is frozen"},
    ("POST", "fencing/verify"): {"resource_type": "deploy", "resource_id": "checkout-service", **EPOCH},
    ("POST", "approvals"): {"run_id": "{run_id}", "question": "Go?", "options": ["Yes", "No"], **EPOCH},
    ("POST", "approvals/<str:approval_id>/cancel"): {},
    ("POST", "approvals/<str:approval_id>/decide"): {"option": "Yes", "shown_digest": "0" * 64},
    ("POST", "approvals/<str:approval_id>/lift"): {},
    ("POST", "approvals/<str:approval_id>/withdraw"): {"reason": "The freeze began."},
    ("POST", "effects"): {
        "run_id": "{run_id}",
        "action": {"tool": "deploy", "arguments": {"build": 41}},
        "effect_key": "deploy-41",
        **EPOCH,
    },
    ("POST", "effects/<str:effect_id>/outcome"): {"outcome": "succeeded"},
    ("POST", "effects/<str:effect_id>/reconcile"): {"outcome": "failed", "note": "I looked."},
    ("POST", "handoffs"): {"to_principal": "bert", "subject_id": "rollout"},
    ("POST", "handoffs/<str:handoff_id>/resolve"): {"status": "accepted"},
    ("POST", "handoffs/<str:handoff_id>/withdraw"): {"reason": "Done meanwhile"},
    ("POST", "messages"): {"to_principal": "bert", "body": "Hello"},
    ("POST", "messages/<str:message_id>/read"): {},
    ("POST", "checkpoints"): {"subject_id": "customer-7", "state": {"step": 1}},
    ("POST", "contexts"): {"items": [{"type": "task", "id": f"task_{'0' * 32}"}]},
    ("POST", "webhooks"): {"url": "http://127.0.0.2:9/events"},
    ("PATCH", "webhooks/<str:webhook_id>"): {"description": "Mine"},
    ("DELETE", "webhooks/<str:webhook_id>"): {},
    ("POST", "webhooks/<str:webhook_id>/rotate_secret"): {},
    ("POST", "webhooks/<str:webhook_id>/test"): {},
    ("POST", "webhooks/<str:webhook_id>/deliveries/<str:delivery_id>/redeliver"): {},
    ("POST", "keys"): {"scopes": ["tasks:read"]},
    ("DELETE", "keys/<str:key_id>"): {},
}
# Only a person with a session does these: any key is refused before anything is looked up.
HUMAN_ONLY = (
    "takeover",
    "reopen",
    "block",
    "unblock",
    "priority",
    "decide",
    "lift",
    "reconcile",
    "approval_id>/withdraw",
)
PREFIXES = {
    "task_id": "task",
    "comment_id": "cmt",
    "run_id": "run",
    "approval_id": "appr",
    "effect_id": "eff",
    "key_id": "key",
    "lease_id": "lease",
    "handoff_id": "hoff",
    "checkpoint_id": "ckpt",
    "context_id": "ctx",
    "message_id": "msg",
    "webhook_id": "whk",
    "delivery_id": "dlv",
}


@dataclass(frozen=True)
class Call:
    """One method on one route."""

    method: str
    route: str

    @property
    def names(self) -> list[str]:
        """The names of the ids in the route."""
        return re.findall(r"<str:(\w+)>", self.route)

    @property
    def human_only(self) -> bool:
        """True where any API key gets 403."""
        return self.route.endswith(HUMAN_ONLY)

    def path(self, ids: dict[str, str]) -> str:
        """The path with its ids, below `/v1`."""
        return "/" + re.sub(r"<str:(\w+)>", lambda found: ids[found[1]], self.route)

    def body(self, ids: dict[str, str]) -> dict[str, Any] | None:
        """A valid body, or None where none belongs."""
        if self.method == "GET":
            return None
        known = BODIES[self.method, self.route]
        return {name: ids["run_id"] if value == "{run_id}" else value for name, value in known.items()}


def offered() -> Iterator[Call]:
    """Every method that some route offers."""
    for pattern in v1:
        view = getattr(pattern.callback, "view_class")  # noqa: B009
        for method in METHODS:
            if hasattr(view, method.lower()):
                yield Call(method, str(pattern.pattern))


def routes() -> list[str]:
    """Every route."""
    return [str(pattern.pattern) for pattern in v1]
