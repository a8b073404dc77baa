"""What the doors of approvals answer."""

from approvals.models import ApprovalStatus
from approvals.requests import MAX_OPTIONS
from coordination.models import Role
from titen.api.answers import SHAPES, choice, fields, ident, integer, many, maybe, moment, page, text

SHAPES["Approval"] = fields(
    "A question to humans and, once it is decided, their answer.",
    {
        "id": ident("appr", "The approval."),
        "task_id": maybe(ident("task", "The task that it belongs to and blocks.")),
        "run_id": maybe(ident("run", "The run that asked.")),
        "epoch": maybe(integer("The epoch of that run's lease.", 1)),
        "requested_by": ident("agent", "The principal that asked."),
        "question": text("What is asked; never changes."),
        "context": text("What helps to decide; may be empty."),
        "options": {
            **many(
                "The possible answers, in the order in which they are shown; never change.",
                text("One answer."),
            ),
            "minItems": 2,
            "maxItems": MAX_OPTIONS,
        },
        "digest": text(
            "SHA-256 over question and options: what a human was shown.", pattern="^[0-9a-f]{64}$"
        ),
        "required_role": choice("The role that may decide.", Role.values),
        "status": choice("`expired` as soon as its time is over.", ApprovalStatus.values),
        "decision": maybe(text("Exactly one of the options, once decided.")),
        "reason": text("What the human added; may be empty."),
        "decided_by_user_id": maybe(ident("user", "Who decided.")),
        "created_at": moment("When it was asked."),
        "expires_at": moment("Until when it can be decided."),
        "ended_at": maybe(moment("When it was decided, cancelled or expired; null while it is pending.")),
    },
)
SHAPES["ApprovalPage"] = page("approvals", "Approval")
