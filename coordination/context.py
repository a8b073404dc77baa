"""The working context of a task: what the next attempt should know."""

import json
from typing import Any

from titen.api.ids import public_id

from . import participants
from .models import Comment, Run, Task, TaskDependency
from .times import stamp

LIMIT_BYTES = 256 * 1024
RUNS = 10
COMMENTS = 50


def gather(task: Task) -> dict[str, Any]:
    """Dependencies' results, earlier attempts, comments, decided approvals; at most 256 KiB.

    What does not fit is left out, oldest first, and `truncated` names the parts.
    """
    dependencies = TaskDependency.objects.filter(task=task).select_related("depends_on")
    runs = list(
        Run.objects.filter(task=task, ended_at__isnull=False)
        .select_related("principal")
        .order_by("-number")[:RUNS]
    )
    comments = list(
        Comment.objects.filter(task=task)
        .select_related("author", "answered_by")
        .order_by("-created_at")[:COMMENTS]
    )
    context: dict[str, Any] = {
        "dependencies": [
            {
                "task_id": public_id("task", item.depends_on_id),
                "title": item.depends_on.title,
                "status": item.depends_on.status,
                "summary": item.depends_on.summary,
                "result": item.depends_on.result,
            }
            for item in dependencies
        ],
        "attempts": [
            {
                "run_id": public_id("run", run.pk),
                "number": run.number,
                "principal": run.principal.name,
                "status": run.status,
                "progress": run.progress,
                "status_line": run.status_line,
                "error": run.error,
                "checkpoint": run.checkpoint,
                "ended_at": stamp(run.ended_at),
            }
            for run in runs
        ],
        "comments": [
            {
                "id": public_id("cmt", comment.pk),
                "author": comment.author.name,
                "author_kind": comment.author.kind,
                "body": comment.body,
                "blocking": comment.blocking,
                "answer": comment.answer if comment.answered_at else None,
                "answered_by": comment.answered_by.name if comment.answered_by else None,
                "created_at": stamp(comment.created_at),
            }
            for comment in comments
        ],
    }
    for participant in participants.everyone():
        context.update(participant.context(task))
    return _fitted(context)


def _fitted(context: dict[str, Any]) -> dict[str, Any]:
    truncated = []
    for part in ("comments", "attempts", "dependencies", "approvals"):
        while _size(context) > LIMIT_BYTES and context.get(part):
            context[part].pop()
            if part not in truncated:
                truncated.append(part)
    return {**context, "truncated": truncated}


def _size(context: dict[str, Any]) -> int:
    return len(json.dumps(context, ensure_ascii=False).encode())
