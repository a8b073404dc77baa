"""Tasks, runs, leases, comments and events as the API prints them."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from titen.api.ids import maybe_id, public_id

from .database import Row
from .models import CheckpointVersion, Comment, Lease, Renewal, Run, Task
from .times import stamp


def size_of(content: Any) -> int:
    """How many bytes it takes in an answer."""
    return len(json.dumps(content, ensure_ascii=False).encode())


def certainty(lease: Lease, now: datetime, jeopardy_share: float) -> str:
    """`held`, `jeopardy` or `expired`, judged at the database's `now`."""
    if lease.ended_at is not None or lease.expires_at <= now:
        return "expired"
    quiet = (now - lease.renewed_at).total_seconds()
    if lease.jeopardy_declared_at is not None or quiet >= lease.ttl_seconds * jeopardy_share:
        return "jeopardy"
    return "held"


def lease_json(row: Row, *, certainty: str = "held") -> dict[str, Any]:
    """A lease from a row of a claim or a renewal, both of which make it certain."""
    return {
        "lease_id": public_id("lease", row["lease_id"]),
        "epoch": row["epoch"],
        "ttl_seconds": row["ttl_seconds"],
        "expires_at": stamp(row["expires_at"]),
        "certainty": certainty,
        "granted_because": row["granted_because"],
    }


def claim_json(row: Row, context: dict[str, Any], *, sequencer: str) -> dict[str, Any]:
    """What a claim answers: task, run, lease with its sequencer, and all that the work needs."""
    return {
        "task": {
            "id": public_id("task", row["task_id"]),
            "title": row["title"],
            "description": row["description"],
            "status": row.get("task_status", "in_progress"),
            "priority": row["priority"],
            "required_capabilities": row["required_capabilities"],
            "payload": row["payload"],
            "secret_refs": row["secret_refs"],
            "attempt_count": row["attempt_count"],
            "max_attempts": row["max_attempts"],
            "created_at": stamp(row["created_at"]),
            "not_before": stamp(row["not_before"]),
            "depends_on": [other["task_id"] for other in context.get("dependencies", ())],
        },
        "run": {
            "id": public_id("run", row["run_id"]),
            "task_id": public_id("task", row["task_id"]),
            "number": row["number"],
            "epoch": row["epoch"],
            "status": row["run_status"],
            "progress": 0,
            "status_line": "",
            "started_at": stamp(row["started_at"]),
            "ended_at": None,
        },
        "lease": {**lease_json(row), "sequencer": sequencer},
        "heartbeat_interval_seconds": row["ttl_seconds"] / 3,
        "server_time": stamp(row["server_time"]),
        "context": context,
    }


def ended_json(row: Row) -> dict[str, Any]:
    """What complete, fail and release answer."""
    return {
        "task": {
            "id": public_id("task", row["ended_task_id"]),
            "title": row["ended_title"],
            "status": row["ended_task_status"],
            "attempt_count": row["ended_attempt_count"],
            "finished_at": stamp(row["finished_at"]),
            "backoff_until": stamp(row["backoff_until"]),
        },
        "run": {
            "id": public_id("run", row["ended_run_id"]),
            "task_id": public_id("task", row["ended_task_id"]),
            "number": row["ended_number"],
            "epoch": row["ended_epoch"],
            "status": row["ended_run_status"],
            "progress": row["ended_progress"],
            "started_at": stamp(row["ended_started_at"]),
            "ended_at": stamp(row["ended_at"]),
        },
    }


def task_json(task: Task, *, private: bool, result: bool = False) -> dict[str, Any]:
    """A task. `private` adds what only its holder, its creator and humans see; `result` only its result."""
    shown = {
        "id": public_id("task", task.pk),
        "title": task.title,
        "description": task.description,
        "status": task.status,
        "priority": task.priority,
        "required_capabilities": task.profile.capabilities,
        "round": task.round,
        "attempt_count": task.attempt_count,
        "max_attempts": task.max_attempts,
        "open_blockers": task.open_blockers,
        "open_dependencies": task.open_dependencies,
        "lease_ttl_seconds": task.lease_ttl_seconds,
        "not_before": stamp(task.not_before),
        "backoff_until": stamp(task.backoff_until),
        "created_by": public_id("agent", task.created_by_id),
        "created_at": stamp(task.created_at),
        "finished_at": stamp(task.finished_at),
        "summary": task.summary,
    }
    if private:
        shown.update(
            payload=task.payload,
            secret_refs=task.secret_refs,
            result=task.result,
            evidence=task.evidence,
            last_error=task.last_error,
        )
    elif result:
        shown.update(result=task.result)
    return shown


def ended_task_json(task: Task) -> dict[str, Any]:
    """What a key that may end a task but read none learns of it."""
    return {
        "id": public_id("task", task.pk),
        "status": task.status,
        "finished_at": stamp(task.finished_at),
    }


def run_json(
    run: Run, *, now: datetime, jeopardy_share: float, private: bool, checkpoint: Any = None
) -> dict[str, Any]:
    """A run with its lease; `checkpoint` is the state that it left, if it may be shown."""
    lease = run.lease
    shown = {
        "id": public_id("run", run.pk),
        "task_id": public_id("task", run.task_id),
        "principal_id": public_id("agent", run.principal_id),
        "principal": run.principal.name,
        "number": run.number,
        "epoch": run.epoch,
        "status": run.status,
        "progress": run.progress,
        "status_line": run.status_line,
        "started_at": stamp(run.started_at),
        "ended_at": stamp(run.ended_at),
        "lease": {
            "lease_id": public_id("lease", lease.pk),
            "epoch": lease.epoch,
            "ttl_seconds": lease.ttl_seconds,
            "granted_because": lease.granted_because,
            "granted_at": stamp(lease.granted_at),
            "renewed_at": stamp(lease.renewed_at),
            "renewal_count": lease.renewal_count,
            "expires_at": stamp(lease.expires_at),
            "certainty": certainty(lease, now, jeopardy_share),
            "ended_at": stamp(lease.ended_at),
            "end_reason": lease.end_reason,
        },
    }
    if private:
        shown.update(error=run.error, checkpoint=checkpoint)
    return shown


def held_lease_json(lease: Lease, *, now: datetime, jeopardy_share: float) -> dict[str, Any]:
    """A lease with its resource and its holder, for those who may know them."""
    return {
        "lease_id": public_id("lease", lease.pk),
        "resource_type": lease.resource.resource_type,
        "resource_id": lease.resource.resource_id,
        "holder_id": public_id("agent", lease.principal_id),
        "holder": lease.principal.name,
        "purpose": lease.purpose,
        "epoch": lease.epoch,
        "ttl_seconds": lease.ttl_seconds,
        "granted_because": lease.granted_because,
        "previous_lease_id": maybe_id("lease", lease.previous_lease_id),
        "granted_at": stamp(lease.granted_at),
        "renewed_at": stamp(lease.renewed_at),
        "renewal_count": lease.renewal_count,
        "expires_at": stamp(lease.expires_at),
        "certainty": certainty(lease, now, jeopardy_share),
        "jeopardy_declared_at": stamp(lease.jeopardy_declared_at),
        "ended_at": stamp(lease.ended_at),
        "end_reason": lease.end_reason,
        "end_note": lease.end_note,
    }


def renewal_json(renewal: Renewal) -> dict[str, Any]:
    """One accepted renewal."""
    return {
        "renewed_at": stamp(renewal.renewed_at),
        "expires_at": stamp(renewal.expires_at),
        "progress": renewal.progress,
    }


def checkpoint_json(version: CheckpointVersion, *, state: bool) -> dict[str, Any]:
    """A checkpoint as it stood with this version, with or without what it holds."""
    checkpoint, run = version.checkpoint, version.run
    shown = {
        "checkpoint_id": public_id("ckpt", checkpoint.pk),
        "subject_id": checkpoint.subject_id,
        "agent": public_id("agent", checkpoint.principal_id),
        "kind": checkpoint.kind,
        **version_json(version),
        "task_id": maybe_id("task", run.task_id if run else None),
        "created_at": stamp(checkpoint.created_at),
        "updated_at": stamp(version.created_at),
        "expires_at": stamp(checkpoint.expires_at),
    }
    return {**shown, "state": version.state} if state else shown


def version_json(version: CheckpointVersion) -> dict[str, Any]:
    """One version of a checkpoint, without what it holds; whether its state changed is in the hash."""
    return {
        "version": version.version,
        "state_hash": version.state_hash,
        "run_id": maybe_id("run", version.run_id),
        "epoch": version.epoch,
    }


def comment_json(comment: Comment) -> dict[str, Any]:
    """A comment; for a question also its answer, or null."""
    return {
        "id": public_id("cmt", comment.pk),
        "task_id": public_id("task", comment.task_id),
        "run_id": maybe_id("run", comment.run_id),
        "author_id": public_id("agent", comment.author_id),
        "author": comment.author.name,
        "body": comment.body,
        "round": comment.round,
        "blocking": comment.blocking,
        "withdrawn": comment.withdrawn_at is not None,
        "answer": {
            "body": comment.answer,
            "answered_by": comment.answered_by.name if comment.answered_by else "",
            "answered_at": stamp(comment.answered_at),
        }
        if comment.answered_at
        else None,
        "created_at": stamp(comment.created_at),
    }


def answered_json(comment: Comment) -> dict[str, Any]:
    """What a key that may answer questions but read none learns: its own answer."""
    shown = comment_json(comment)
    return {name: shown[name] for name in ("id", "task_id", "blocking", "withdrawn", "answer")}


def event_json(row: Row, *, sees_holders: bool, reader_id: UUID | None = None) -> dict[str, Any]:
    """One line of the log, with its position as the cursor behind it.

    Who holds a lease is shown to its holder (`reader_id`) and to whom `sees_holders`.
    """
    hidden = row["kind"].startswith("lease.") and not sees_holders and row["actor_id"] != reader_id
    return {
        "id": public_id("evt", row["id"]),
        "cursor": str(row["position"]),
        "kind": row["kind"],
        "created_at": stamp(row["created_at"]),
        "actor_id": None if hidden else maybe_id("agent", row["actor_id"]),
        "task_id": maybe_id("task", row["task_id"]),
        "run_id": maybe_id("run", row["run_id"]),
        "lease_id": maybe_id("lease", row["lease_id"]),
        "subject_id": maybe_id(_subject_prefix(row["kind"]), row["subject_id"]),
        "epoch": row["epoch"],
        "data": row["data"],
    }


# What an event's subject is: by its kind, else by the first word of it.
SUBJECTS = {
    "approval": "appr",
    "checkpoint": "ckpt",
    "comment": "cmt",
    "context": "ctx",
    "document": "doc",
    "effect": "eff",
    "handoff": "hoff",
    "key": "key",
    "member": "user",
    "message": "msg",
    "principal": "agent",
    "section": "doc",
    "task": "task",
    "task.taken_over": "agent",
    "user": "user",
    "webhook": "whk",
}


def _subject_prefix(kind: str) -> str:
    return SUBJECTS.get(kind) or SUBJECTS.get(kind.partition(".")[0], "agent")
