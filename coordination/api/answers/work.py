"""What the doors of coordination answer."""

from coordination.models import (
    BlockerKind,
    GrantReason,
    LeaseEnd,
    RunStatus,
    TaskStatus,
)
from titen.api.answers import (
    SHAPES,
    Shape,
    anything,
    choice,
    fields,
    flag,
    free,
    ident,
    integer,
    many,
    maybe,
    moment,
    page,
    ref,
    text,
)

CERTAINTIES = ("held", "jeopardy", "expired")
TIMED_WAITS = ("not_before", "backoff", "reservation", "avoidance")

TASK_ID = ident("task", "The task.")
RUN_ID = ident("run", "The run.")
PRINCIPAL_ID = ident("agent", "The principal.")
EPOCH = integer("The number of the grant on the task's resource; each grant has a higher one.", 1)
TTL = integer("How long the lease lives after its last renewal, in seconds.", 1)
PROGRESS = integer("Per cent, as the holder last reported it.", 0, 100)
SEQUENCER = text(
    "A signed statement of this lease (JWS) to send along with effects, good until `expires_at`. In a claim"
    " always; in a heartbeat on request.",
)
SERVER_TIME = moment("The database's clock at this answer.")
CAPABILITIES = many("Sorted; empty means that anybody can do it.", text("Such as `python`."))
SECRET_REFS = many("Pointers to secrets, never secrets.", text("Such as `vault://team/token`."))


def some(shape: Shape, *names: str) -> dict[str, Shape]:
    """The named fields of another shape."""
    return {name: shape["properties"][name] for name in names}


SHAPES["Task"] = fields(
    "A piece of work. Payload, secret_refs, result, evidence and last_error are shown only to its current"
    " holder, its creator, the target of a live handoff of it, and humans; the result also to the holder of a"
    " task that waited for it.",
    {
        "id": TASK_ID,
        "title": text("One line.", maxLength=200),
        "description": text("What is to be done; may be empty."),
        "status": choice("Where it stands.", TaskStatus.values),
        "priority": integer("Higher is claimed first; among equals the oldest.", -100, 100),
        "required_capabilities": CAPABILITIES,
        "round": integer(
            "Reopening begins the next one, in which earlier decisions and answers do not count.", 1
        ),
        "attempt_count": integer("Runs that were abandoned or failed since it was last reopened."),
        "max_attempts": integer("At so many attempts the task is blocked.", 1),
        "open_blockers": integer("How many reasons block it now."),
        "open_dependencies": integer("How many tasks it still waits for."),
        "lease_ttl_seconds": maybe(
            {**TTL, "description": "The TTL of its leases in seconds; null: the organization's."}
        ),
        "not_before": maybe(moment("It cannot be claimed earlier.")),
        "backoff_until": maybe(moment("After a failure: it cannot be claimed earlier.")),
        "created_by": ident("agent", "The principal that created it."),
        "created_at": moment("Its age for ever."),
        "finished_at": maybe(moment("When it was done or cancelled.")),
        "summary": text("What the run that succeeded said; may be empty."),
        "payload": free("The input of the work."),
        "secret_refs": SECRET_REFS,
        "result": anything("The outcome that the successful run sent."),
        "evidence": many("What the successful run sent to prove it.", anything("Any JSON value.")),
        "last_error": text("The error of the last failed run; may be empty."),
    },
    optional=["payload", "secret_refs", "result", "evidence", "last_error"],
)
SHAPES["CancelledTask"] = fields(
    "The task as `GET` shows it to this key. Without `tasks:read`: its id, its status and when it ended.",
    SHAPES["Task"]["properties"],
    optional=[name for name in SHAPES["Task"]["properties"] if name not in ("id", "status", "finished_at")],
)
DEPENDS_ON = many("All tasks that it waits or waited for. Its holder may read the result of each.", TASK_ID)
SHAPES["Standing"] = fields(
    "Who may advance the task now.",
    {
        "holder": text("The name of the principal."),
        "run_id": RUN_ID,
        "epoch": EPOCH,
        "until": moment("When the lease runs out unless it is renewed."),
        "certainty": choice("`jeopardy`: the last renewal is older than 2/3 of the TTL.", CERTAINTIES),
        "because": choice("Why the lease was granted.", GrantReason.values),
    },
)
SHAPES["Wait"] = fields(
    "One thing that has to happen before the task can be claimed or go on.",
    {
        "kind": choice("What sort of thing.", [*BlockerKind.values, *TIMED_WAITS]),
        "sentence": text("What would end it and who can."),
        "since": moment("When it began."),
        "until": moment("When it ends by itself."),
        "task_id": ident("task", "The task that is waited for."),
    },
    optional=["since", "until", "task_id"],
)
_SEEN = {
    "epoch": integer("The last epoch given on this task; 0 before the first claim."),
    "digest": text(
        "Of its epoch, state, priority, reservation and open blockers: what a human's verb sends as"
        " `shown_digest`."
    ),
}
SHAPES["MovedTask"] = fields(
    "A task after a human's verb, with what the next one has to carry.",
    {**SHAPES["Task"]["properties"], **_SEEN},
    optional=["payload", "secret_refs", "result", "evidence", "last_error"],
)
SHAPES["TaskDetail"] = fields(
    "A task, who holds it and what it waits for.",
    {
        **SHAPES["Task"]["properties"],
        "depends_on": DEPENDS_ON,
        **_SEEN,
        "standing": maybe(ref("Standing")),
        "waits_for": many("Empty when nothing holds it up.", ref("Wait")),
    },
    optional=["payload", "secret_refs", "result", "evidence", "last_error"],
)
SHAPES["TaskPage"] = page("tasks", "Task")

SHAPES["Lease"] = fields(
    "A lease that was just granted or renewed.",
    {
        "lease_id": ident("lease", "The lease."),
        "epoch": EPOCH,
        "ttl_seconds": TTL,
        "expires_at": moment("From this moment on the holder is refused, even if nobody took over."),
        "certainty": choice("How sure the holder may be.", CERTAINTIES),
        "granted_because": choice("Why it was granted.", GrantReason.values),
        "sequencer": SEQUENCER,
    },
    optional=["sequencer"],
)
SHAPES["Run"] = fields(
    "One attempt at a task by one principal under one lease. Error and checkpoint are shown only to its"
    " principal, the task's holder and creator, the target of a live handoff of it, and humans.",
    {
        "id": RUN_ID,
        "task_id": TASK_ID,
        "principal_id": PRINCIPAL_ID,
        "principal": text("The name of the principal."),
        "number": integer("Counts the runs of the task.", 1),
        "epoch": EPOCH,
        "status": choice("`running` or `waiting`, then how it ended.", RunStatus.values),
        "progress": PROGRESS,
        "status_line": text("What the holder last reported; may be empty.", maxLength=200),
        "started_at": moment("When it was claimed."),
        "ended_at": maybe(moment("When it ended; null while it is open.")),
        "lease": fields(
            "Its lease.",
            {
                **some(SHAPES["Lease"], "lease_id", "epoch", "ttl_seconds", "granted_because"),
                "granted_at": moment("When it was granted."),
                "renewed_at": moment("The last accepted heartbeat, or the grant."),
                "renewal_count": integer("How many heartbeats were accepted."),
                **some(SHAPES["Lease"], "expires_at", "certainty"),
                "ended_at": maybe(moment("When it ended.")),
                "end_reason": maybe(choice("How it ended.", LeaseEnd.values)),
            },
        ),
        "error": text("Why it failed or was released; may be empty."),
        "checkpoint": anything("The last state that it left for the next run; null for none."),
    },
    optional=["error", "checkpoint"],
)
SHAPES["RunDetail"] = fields(
    "A run with its latest renewals.",
    {
        **SHAPES["Run"]["properties"],
        "renewals": many(
            "The latest 200, newest first.",
            fields(
                "One accepted heartbeat.",
                {
                    "renewed_at": moment("When."),
                    "expires_at": moment("The expiry that it gave."),
                    "progress": maybe(PROGRESS),
                },
            ),
        ),
    },
    optional=["error", "checkpoint"],
)
SHAPES["RunPage"] = page("runs", "Run")

SHAPES["Answer"] = fields(
    "The answer to a question.",
    {
        "body": text("What was answered."),
        "answered_by": text("The name of who answered."),
        "answered_at": moment("When."),
    },
)
SHAPES["Comment"] = fields(
    "A comment on a task; a blocking one is a question.",
    {
        "id": ident("cmt", "The comment."),
        "task_id": TASK_ID,
        "run_id": maybe(ident("run", "The run that asked, for a question.")),
        "author_id": ident("agent", "Who wrote it."),
        "author": text("The name of who wrote it."),
        "body": text("Text, never markup."),
        "round": integer("The task's round when it was written; of a question, when it was answered.", 1),
        "blocking": flag("True for a question: the task is blocked until it is answered."),
        "withdrawn": flag("True when the question no longer needs an answer."),
        "answer": maybe(ref("Answer")),
        "created_at": moment("When it was written."),
    },
)
SHAPES["AnsweredComment"] = fields(
    "The question with its answer. Without `tasks:read`: the answer, not what was asked.",
    SHAPES["Comment"]["properties"],
    optional=["run_id", "author_id", "author", "body", "round", "created_at"],
)
SHAPES["Comments"] = fields(
    "The comments of a task.", {"comments": many("The latest 200, oldest first.", ref("Comment"))}
)
