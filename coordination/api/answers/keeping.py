"""What agents keep and hand on: checkpoints and context packs."""

from coordination.models import ContextItemKind
from titen.api.answers import (
    SHAPES,
    anything,
    choice,
    fields,
    flag,
    ident,
    integer,
    many,
    maybe,
    moment,
    page,
    ref,
    text,
)

from .work import EPOCH, PRINCIPAL_ID, RUN_ID, TASK_ID

CHECKPOINT_ID = ident("ckpt", "The checkpoint.")
VERSION = integer("Counts what was written to it, also through an expiry.", 1)
STATE_HASH = text("SHA-256 over the canonical JSON (RFC 8785) of the state.", pattern="^[0-9a-f]{64}$")
OF_RUN = {
    "run_id": maybe({**RUN_ID, "description": "The run under whose lease it was written."}),
    "epoch": maybe({**EPOCH, "description": "The epoch of that lease."}),
}
KEPT = {
    "checkpoint_id": CHECKPOINT_ID,
    "subject_id": text("What it is about, in its author's words.", maxLength=200),
    "agent": {**PRINCIPAL_ID, "description": "Its author, who alone writes it."},
    "kind": text("What sort of state, in its author's words.", maxLength=80),
    "version": VERSION,
    "state_hash": STATE_HASH,
    **OF_RUN,
    "task_id": maybe(
        {**TASK_ID, "description": "The task of that run, whose readers may read this version."}
    ),
    "created_at": moment("When its first version was written."),
    "updated_at": moment("When this version was written."),
    "expires_at": maybe(moment("From then on it is as unknown as a random one.")),
}
SHAPES["Checkpoint"] = fields("A checkpoint, without what it holds.", KEPT)
SHAPES["CheckpointDetail"] = fields(
    "One version of a checkpoint, the newest that the caller may read unless one was asked for.",
    {**KEPT, "state": anything("What it holds.")},
)
SHAPES["CheckpointPage"] = page("checkpoints", "Checkpoint")
SHAPES["CheckpointVersion"] = fields(
    "One version, without what it holds.",
    {
        "version": VERSION,
        "state_hash": STATE_HASH,
        **OF_RUN,
        "created_at": moment("When it was written."),
    },
)
SHAPES["CheckpointHistory"] = page("versions", "CheckpointVersion")

ITEM = {
    "type": choice("What it is.", ContextItemKind.values),
    "id": text("Its id, in the form of its type.", pattern="^(task|run|ckpt|cmt)_[0-9a-f]{32}$"),
    "version": maybe(integer("The pinned version of a checkpoint; null for anything else.", 1)),
}
PACK = {
    "context_id": ident("ctx", "The pack."),
    "author_id": PRINCIPAL_ID,
    "author": text("The name of who made it."),
    "subject_id": text("What it is about; may be empty.", maxLength=200),
    "task_id": maybe({**TASK_ID, "description": "The task that it is for."}),
    "note": text("What its author says; may be empty."),
    "created_at": moment("When it was made."),
}
SHAPES["NewContextPack"] = fields(
    "A pack that was just made.",
    {**PACK, "items": many("What it pins, in its author's order.", fields("One thing.", ITEM))},
)
SHAPES["ContextItem"] = fields(
    "One thing that a pack pins, as far as the reader may read it by itself.",
    {
        **ITEM,
        "readable": flag("False: the reader may not read it, and learns nothing but its id."),
        "content": {
            "description": "As its own route shows it to this reader; null when it does not fit.",
            "anyOf": [ref("Task"), ref("Run"), ref("CheckpointDetail"), ref("Comment"), {"type": "null"}],
        },
        "truncated": flag("True when it does not fit into 256 KiB."),
        "href": text("Where to read what does not fit."),
    },
    optional=["content", "truncated", "href"],
)
SHAPES["ContextPack"] = fields(
    "A pack, at most 256 KiB.",
    {**PACK, "items": many("What it pins, in its author's order.", ref("ContextItem"))},
)
