"""What the holder of a run is answered: claims, heartbeats, ends, and the context of the work."""

from coordination.models import RunStatus, TaskStatus
from titen.api.answers import SHAPES, anything, choice, fields, free, integer, many, maybe, moment, ref, text

from .keeping import KEPT
from .work import PROGRESS, RUN_ID, SECRET_REFS, SERVER_TIME, TASK_ID, some

TASK, RUN = SHAPES["Task"], SHAPES["Run"]
PARTS = ("attempts", "checkpoint", "comments", "dependencies", "approvals", "effects")
SHAPES["LatestCheckpoint"] = fields(
    "The newest word that a holder of the task left under its lease.",
    {
        "checkpoint_id": KEPT["checkpoint_id"],
        "version": KEPT["version"],
        "kind": KEPT["kind"],
        "author": text("The name of who left it."),
        "author_kind": text("`agent`, `human` or `service`."),
        "state": anything("What it holds; null when it was cut: then read it by its id and version."),
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
    "dependencies": many(
        "What the task waited for.",
        fields(
            "A task that had to be done first.",
            {
                "task_id": TASK_ID,
                "title": text("Its title."),
                "status": choice("Where it stands.", TaskStatus.values),
                "summary": text("What its run said; may be empty."),
                "result": anything("Its result."),
            },
        ),
    ),
    "attempts": many(
        "Earlier runs, the latest first, at most 10.",
        fields(
            "A run that ended.",
            {
                "run_id": RUN_ID,
                "number": integer("Counts the runs of the task.", 1),
                "principal": text("Who held it."),
                "status": choice("How it ended.", RunStatus.values),
                "progress": PROGRESS,
                "status_line": text("What its holder last reported."),
                "error": text("Why it failed; may be empty."),
                "checkpoint": anything("The last state that it left, or null; null too when it was cut."),
                "ended_at": maybe(moment("When it ended.")),
            },
        ),
    ),
    "checkpoint": maybe(ref("LatestCheckpoint")),
    "comments": many(
        "The latest first, at most 50.",
        fields(
            "A comment or a question.",
            {
                **some(SHAPES["Comment"], "id", "author"),
                "author_kind": text("`agent`, `human` or `service`."),
                **some(SHAPES["Comment"], "body", "round", "blocking"),
                "answer": maybe(text("The answer to a question; null while it has none.")),
                "answered_by": maybe(text("The name of who answered.")),
                "created_at": moment("When it was written."),
            },
        ),
    ),
    "handoff": maybe(ref("LedHere")),
    "approvals": many("What humans decided, the oldest first.", ref("Approval")),
    "effects": many("What was attempted, and nobody knows what came of it; the oldest first.", ref("Effect")),
    "truncated": many("Parts that were cut to stay within 256 KiB.", choice("The part.", PARTS)),
}
SHAPES["Gathered"] = fields("What earlier attempts, other tasks and humans left for this one.", GATHERED)
SHAPES["Context"] = fields(
    "What the next attempt should know, at most 256 KiB.",
    {"payload": free("The input of the work."), "secret_refs": SECRET_REFS, **GATHERED},
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
            ),
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
        "resolved_approvals": many("The ended approvals of the task, the oldest first.", ref("Approval")),
        "answers": many("The task's answered questions, the oldest answer first.", ref("Comment")),
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
