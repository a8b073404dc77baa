"""The working context of a task: what the next attempt should know."""

from typing import Any

from titen.api.ids import public_id

from . import checkpoints, handoffs, participants
from .models import Comment, Run, Task, TaskDependency
from .passing import led_here_json
from .shapes import size_of
from .times import stamp

LIMIT_BYTES = 256 * 1024
RUNS = 10
COMMENTS = 50
# The parts that are cut, in this order. States go first: whoever has their ids can read them elsewhere.
LISTS = ("comments", "attempts", "dependencies", "approvals", "effects")


def gather(task: Task) -> dict[str, Any]:
    """Dependencies' results, earlier attempts, checkpoint, comments, decided approvals; at most 256 KiB.

    What does not fit is left out, of a list the oldest first, and `truncated` names the parts.
    """
    context: dict[str, Any] = {
        "round": task.round,
        "dependencies": _dependencies(task),
        "attempts": _attempts(task),
        "handoff": led_here_json(handoffs.that_led_here(task)),
        "checkpoint": _checkpoint(task),
        "comments": _comments(task),
    }
    for participant in participants.everyone():
        context.update(participant.context(task))
    return _fitted(context)


def _dependencies(task: Task) -> list[dict[str, Any]]:
    return [
        {
            "task_id": public_id("task", item.depends_on_id),
            "title": item.depends_on.title,
            "status": item.depends_on.status,
            "summary": item.depends_on.summary,
            "result": item.depends_on.result,
        }
        for item in TaskDependency.objects.filter(task=task).select_related("depends_on")
    ]


def _attempts(task: Task) -> list[dict[str, Any]]:
    runs = list(
        Run.objects.filter(task=task, ended_at__isnull=False)
        .select_related("principal")
        .order_by("-number")[:RUNS]
    )
    left = checkpoints.left_by(run.pk for run in runs)
    return [
        {
            "run_id": public_id("run", run.pk),
            "number": run.number,
            "principal": run.principal.name,
            "status": run.status,
            "progress": run.progress,
            "status_line": run.status_line,
            "error": run.error,
            "checkpoint": left.get(run.pk),
            "ended_at": stamp(run.ended_at),
        }
        for run in runs
    ]


def _checkpoint(task: Task) -> dict[str, Any] | None:
    """The newest word of a holder. Whoever may read the task's context may read it."""
    version = checkpoints.newest_of_task(task.pk)
    if version is None:
        return None
    author = version.checkpoint.principal
    return {
        "checkpoint_id": public_id("ckpt", version.checkpoint_id),
        "version": version.version,
        "kind": version.checkpoint.kind,
        "author": author.name,
        "author_kind": author.kind,
        "state": version.state,
        "state_hash": version.state_hash,
        "created_at": stamp(version.created_at),
    }


def _comments(task: Task) -> list[dict[str, Any]]:
    comments = (
        Comment.objects.filter(task=task)
        .select_related("author", "answered_by")
        .order_by("-created_at")[:COMMENTS]
    )
    return [
        {
            "id": public_id("cmt", comment.pk),
            "author": comment.author.name,
            "author_kind": comment.author.kind,
            "body": comment.body,
            "round": comment.round,
            "blocking": comment.blocking,
            "answer": comment.answer if comment.answered_at else None,
            "answered_by": comment.answered_by.name if comment.answered_by else None,
            "created_at": stamp(comment.created_at),
        }
        for comment in comments
    ]


def _fitted(context: dict[str, Any]) -> dict[str, Any]:
    truncated = []
    for attempt in reversed(context["attempts"]):
        if size_of(context) > LIMIT_BYTES and attempt["checkpoint"] is not None:
            attempt["checkpoint"] = None
            truncated.append("attempts")
    if size_of(context) > LIMIT_BYTES and context["checkpoint"] is not None:
        context["checkpoint"]["state"] = None
        truncated.append("checkpoint")
    for part in LISTS:
        while size_of(context) > LIMIT_BYTES and context.get(part):
            context[part].pop()
            truncated.append(part)
    return {**context, "truncated": list(dict.fromkeys(truncated))}
