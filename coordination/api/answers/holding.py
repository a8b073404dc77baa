"""What the holder of a run is answered: claims, heartbeats, ends, and the context of the work."""

from coordination import context
from coordination.models import BlockerKind, RunStatus, TaskStatus
from titen.api.answers import (
    SHAPES,
    Shape,
    anything,
    choice,
    fields,
    flag,
    free,
    integer,
    many,
    maybe,
    moment,
    ref,
    text,
)

from .keeping import KEPT
from .work import DEPENDS_ON, PROGRESS, RUN_ID, SECRET_REFS, SERVER_TIME, TASK_ID, some

TASK, RUN = SHAPES["Task"], SHAPES["Run"]
PARTS = context.PARTS
NEWS = ("resolved_approvals", "answers")
CUT = many("What is null here because there was no room: read it at `href`.", text("The field."))


def cut(description: str, properties: dict[str, Shape], *names: str) -> Shape:
    """The shape of an item of a context, whose fields `names` may be null for want of room."""
    shown = {name: maybe(shape) if name in names else shape for name, shape in properties.items()}
    return fields(
        description,
        {**shown, "href": text("Where the whole is read."), "truncated": CUT},
        optional=["truncated"],
    )


def more(*parts: str) -> Shape:
    """Where lists that are not whole are read."""
    links = {part: text("Where the list is read.") for part in parts}
    return fields("Of lists of which older items are missing: where they are read.", links, optional=parts)


SHAPES["LatestCheckpoint"] = cut(
    "The newest word that a holder of the task left under its lease.",
    {
        "checkpoint_id": KEPT["checkpoint_id"],
        "subject_id": KEPT["subject_id"],
        "version": KEPT["version"],
        "kind": KEPT["kind"],
        "author": text("The name of who left it."),
        "author_kind": text("`agent`, `human` or `service`."),
        "state": anything("What it holds."),
        "state_hash": KEPT["state_hash"],
        "created_at": moment("When it was written."),
    },
)
GATHERED = {
    "round": integer(
        "The task's round: reopening begins the next one. Decisions and answers of earlier rounds are shown,"
        " each with its own, but no longer count.",
        1,
    ),
    "blockers": many(
        "Why the task is blocked now, the latest first; never cut.",
        fields(
            "A reason.",
            {
                "kind": choice("What sort of thing.", BlockerKind.values),
                "sentence": text("What would end it and who can."),
                "subject_id": maybe(text("The approval, question or task that it is about.")),
                "since": moment("When it began."),
            },
        ),
    ),
    "dependencies": many(
        "All that the task waited for; what was done last comes first.",
        cut(
            "A task that had to be done first.",
            {
                "task_id": TASK_ID,
                "title": text("Its title."),
                "status": choice("Where it stands.", TaskStatus.values),
                "summary": text("What its run said; may be empty."),
                "result": anything("Its result; null for who neither holds the task nor may read that one."),
            },
            "summary",
        ),
    ),
    "attempts": many(
        "Earlier runs, the latest first, at most 10.",
        cut(
            "A run that ended.",
            {
                "run_id": RUN_ID,
                "number": integer("Counts the runs of the task.", 1),
                "principal": text("Who held it."),
                "status": choice("How it ended.", RunStatus.values),
                "progress": PROGRESS,
                "status_line": text("What its holder last reported."),
                "error": text("Why it failed; may be empty."),
                "checkpoint": anything("The last state that it left, or null."),
                "ended_at": maybe(moment("When it ended.")),
            },
            "error",
        ),
    ),
    "checkpoint": maybe(ref("LatestCheckpoint")),
    "comments": many(
        "The latest first, at most 50.",
        cut(
            "A comment or a question.",
            {
                **some(SHAPES["Comment"], "id", "author"),
                "author_kind": text("`agent`, `human` or `service`."),
                **some(SHAPES["Comment"], "body", "round", "blocking"),
                "answered": flag("True for a question that has its answer."),
                "answer": maybe(text("The answer to a question; null while it has none.")),
                "answered_by": maybe(text("The name of who answered.")),
                "created_at": moment("When it was written."),
            },
            "body",
        ),
    ),
    "handoff": maybe(ref("LedHere")),
    "approvals": many("What humans decided, the oldest first, the newest 50.", ref("ContextApproval")),
    "effects": many(
        "What was attempted, the newest first: all whose outcome nobody knows, up to 200, and the newest 50 of"
        " the others. Refused ones are left out.",
        ref("ContextEffect"),
    ),
    "truncated": many(
        "Parts of which something is missing, to stay within 256 KiB or because there is more.",
        choice("The part.", ["payload", *PARTS]),
    ),
    "more": more("blockers", "dependencies", "attempts", "comments", "approvals", "effects"),
}
SHAPES["Gathered"] = fields("What earlier attempts, other tasks and humans left for this one.", GATHERED)
SHAPES["Context"] = fields(
    "What the next attempt should know, at most 256 KiB.",
    {
        "payload": maybe(free("The input of the work; null when it does not fit: read it from the task.")),
        "secret_refs": SECRET_REFS,
        **GATHERED,
    },
)
SHAPES["Claim"] = fields(
    "A run and a lease on a task, with all that the work needs.",
    {
        "task": fields(
            "The task that was claimed.",
            some(
                TASK,
                "id",
                "title",
                "description",
                "status",
                "priority",
                "required_capabilities",
                "payload",
                "secret_refs",
                "attempt_count",
                "max_attempts",
                "created_at",
                "not_before",
            )
            | {"depends_on": DEPENDS_ON},
        ),
        "run": fields(
            "The new run.",
            some(
                RUN,
                "id",
                "task_id",
                "number",
                "epoch",
                "status",
                "progress",
                "status_line",
                "started_at",
                "ended_at",
            ),
        ),
        "lease": ref("Lease"),
        "heartbeat_interval_seconds": {
            "type": "number",
            "description": "Send a heartbeat at least so often: a third of the TTL.",
            "exclusiveMinimum": 0,
        },
        "server_time": SERVER_TIME,
        "context": {
            "description": "Empty for a task without a past.",
            "oneOf": [ref("Gathered"), {"type": "object", "maxProperties": 0}],
        },
    },
)
SHAPES["Heartbeat"] = fields(
    "The renewed lease, and what happened meanwhile.",
    {
        "run": fields("The run.", some(RUN, "id", "task_id", "status", "progress", "status_line")),
        "lease": ref("Lease"),
        "server_time": SERVER_TIME,
        "directives": many(
            "What the holder should do.", choice("`pause`: stop until a human unblocks.", ["pause"])
        ),
        "resolved_approvals": many(
            "The approvals of the task that ended since the run's last heartbeat, or since `since`, the oldest"
            " first, at most 50.",
            ref("ResolvedApproval"),
        ),
        "answers": many(
            "The questions of the task that were answered in the same time, the oldest answer first, at most 50.",
            cut(
                "A question with its answer.",
                {
                    **SHAPES["Comment"]["properties"],
                    "answer": fields(
                        "The answer.",
                        {
                            **SHAPES["Answer"]["properties"],
                            "body": maybe(SHAPES["Answer"]["properties"]["body"]),
                        },
                    ),
                },
                "body",
            ),
        ),
        "truncated": many(
            "Lists of which something is missing, to stay within 64 KiB or because there is more.",
            choice("The list.", NEWS),
        ),
        "more": more(*NEWS),
    },
)
SHAPES["Ended"] = fields(
    "How task and run stand after complete, fail or release.",
    {
        "task": fields(
            "The task.",
            some(TASK, "id", "title", "status", "attempt_count", "finished_at", "backoff_until"),
        ),
        "run": fields(
            "The run that ended.",
            some(RUN, "id", "task_id", "number", "epoch", "status", "progress", "started_at", "ended_at"),
        ),
        "next": maybe(ref("Claim")),
    },
    optional=["next"],
)
