"""What is passed on: handoffs and messages."""

from coordination.models import HandoffStatus
from titen.api.answers import SHAPES, choice, fields, ident, integer, maybe, moment, page, ref, text

from .holding import cut
from .work import EPOCH, RUN_ID, TASK_ID

HANDOFF_ID = ident("hoff", "The handoff.")
SENDER = {
    "from_principal": ident("agent", "Who sent it."),
    "from_name": text("The name of who sent it."),
}
NAMED = {
    "context_id": maybe(ident("ctx", "The context pack that comes with it.")),
    "checkpoint_id": maybe(ident("ckpt", "The checkpoint that comes with it.")),
    "checkpoint_version": maybe(integer("The version of the checkpoint when it was offered.", 1)),
}
SHAPES["LedHere"] = cut(
    "The accepted handoff by which the task's open run began.",
    {"handoff_id": HANDOFF_ID, **SENDER, "message": text("What its sender wrote; may be empty."), **NAMED},
    "message",
)
HANDOFF = {
    "handoff_id": HANDOFF_ID,
    "status": choice("`pending`, then how it ended.", HandoffStatus.values),
    **SENDER,
    "to_principal": text("The target as the sender addressed it: an id or a name.", maxLength=120),
    "to_principal_id": ident("agent", "The target."),
    "to_name": text("The name of the target."),
    "subject_id": text("What it is about.", maxLength=200),
    **NAMED,
    "task_id": maybe({**TASK_ID, "description": "The task that is offered, if any."}),
    "run_id": maybe({**RUN_ID, "description": "The run that offered the task."}),
    "epoch": maybe({**EPOCH, "description": "The epoch of that run."}),
    "message": text("What its sender wrote; may be empty."),
    "reason": text("Why it was rejected or withdrawn; may be empty."),
    "created_at": moment("When it was offered."),
    "expires_at": moment("From this moment on it cannot be accepted."),
    "ended_at": maybe(moment("When it ended; null while it is pending.")),
    "accepted_run_id": maybe({**RUN_ID, "description": "The target's run, once a task was accepted."}),
}
SHAPES["Handoff"] = fields("An offer of a subject, and maybe of a task, to one principal.", HANDOFF)
SHAPES["Resolved"] = fields(
    "The handoff as it stands now, and what a claim answers where a task was accepted.",
    {**HANDOFF, "claim": maybe(ref("Claim"))},
)
SHAPES["HandoffPage"] = page("handoffs", "Handoff")

SHAPES["Message"] = fields(
    "A message. Whom one to a resource's holder went to, and whether it was read, its sender never learns.",
    {
        "message_id": ident("msg", "The message."),
        **SENDER,
        "to_principal": maybe(ident("agent", "Who received it.")),
        "to_name": maybe(text("The name of who received it.")),
        "resource": maybe(
            fields(
                "What its recipient held when it was asked as the holder.",
                {"resource_type": text("The sort of thing."), "resource_id": text("Which one.")},
            )
        ),
        "body": text("Text, never markup."),
        "created_at": moment("When it was sent."),
        "read_at": maybe(moment("When its recipient first marked it as read.")),
    },
)
SHAPES["MessagePage"] = page("messages", "Message")
