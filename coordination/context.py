"""The working context of a task: what the next attempt should know."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import F

from titen.api.ids import public_id

from . import checkpoints, handoffs, participants
from .callers import Caller
from .fitting import Item, Part, Text, fit, json_bytes
from .models import Blocker, BlockerKind, CheckpointVersion, Comment, Run, Task, TaskDependency
from .passing import led_here_json
from .reading import readable_results
from .times import stamp

LIMIT_BYTES = 256 * 1024
RUNS = 10
COMMENTS = 50
# The order in which texts of one length are given room, and in which parts are named.
PARTS = ("blockers", "checkpoint", "handoff", "effects", "approvals", "dependencies", "comments", "attempts")
SUBJECTS = {BlockerKind.APPROVAL: "appr", BlockerKind.QUESTION: "cmt", BlockerKind.DEPENDENCY: "task"}


def gather(task: Task, *, reader: Caller | None = None) -> dict[str, Any]:
    """What blocks the task, its checkpoint, the handoff that led here, effects and decisions, its
    dependencies with their results, comments, earlier attempts; at most 256 KiB.

    Of a list that is too long the oldest go; blockers, dependencies and effects that nobody knows the outcome
    of stay. A text that does not fit is null, and the item's `href` says where it is read. `reader` is who
    does not hold the task: it is shown the results that it may read by itself.
    """
    return {"round": task.round, **fit(_parts(task, reader), LIMIT_BYTES)}


def gather_with_input(task: Task, *, reader: Caller | None = None) -> dict[str, Any]:
    """The same, with the payload and the secret_refs of the task, within the same bounds."""
    shown: dict[str, Any] = {"payload": task.payload, "secret_refs": task.secret_refs}
    own = Item.of(shown, ["payload"])
    parts = {"payload": Part([own], _path(task), one=True), **_parts(task, reader)}
    found = fit(parts, LIMIT_BYTES)
    return {"round": task.round, **found, **found["payload"]}


def _parts(task: Task, reader: Caller | None) -> dict[str, Part]:
    parts = {
        "blockers": _blockers(task),
        "checkpoint": _checkpoint(task),
        "handoff": _handoff(task),
        "dependencies": _dependencies(task, reader),
        "comments": _comments(task),
        "attempts": _attempts(task),
    }
    for participant in participants.everyone():
        parts.update(participant.context(task))
    return {name: parts[name] for name in PARTS}


def _path(task: Task) -> str:
    return f"/v1/tasks/{public_id('task', task.pk)}"


def _blockers(task: Task) -> Part:
    def item(blocker: Blocker) -> Item:
        prefix = SUBJECTS.get(BlockerKind(blocker.kind))
        subject = public_id(prefix, blocker.subject_id) if prefix and blocker.subject_id else None
        shown = {
            "kind": blocker.kind,
            "sentence": blocker.sentence,
            "subject_id": subject,
            "since": stamp(blocker.opened_at),
        }
        return Item(shown, stays=True)

    found = Blocker.objects.filter(task=task, closed_at=None).order_by("-opened_at", "-pk")
    return Part([item(blocker) for blocker in found], _path(task))


def _dependencies(task: Task, reader: Caller | None) -> Part:
    """All that the task names, at most 100; what was done last is given room first."""
    found = (
        TaskDependency.objects.filter(task=task)
        .annotate(bytes=json_bytes("depends_on__result", F("depends_on__result"), most=LIMIT_BYTES))
        .order_by(F("depends_on__finished_at").desc(nulls_last=True), "-pk")
        .values_list(
            "depends_on_id",
            "depends_on__title",
            "depends_on__status",
            "depends_on__summary",
            "bytes",
            named=True,
        )
    )
    rows: Sequence[Any] = list(found)
    ids = [row.depends_on_id for row in rows]
    readable = (
        ids if reader is None else readable_results(reader).filter(pk__in=ids).values_list("pk", flat=True)
    )
    may_read = set(readable)
    items = []
    for row in rows:
        printed = public_id("task", row.depends_on_id)
        shown = {
            "task_id": printed,
            "title": row.depends_on__title,
            "status": row.depends_on__status,
            "summary": row.depends_on__summary,
            "result": None,
            "href": f"/v1/tasks/{printed}",
        }
        texts = []
        if row.bytes is not None and row.depends_on_id in may_read:
            texts = [Text(shown, "result", row.bytes, "result", read=_results, key=row.depends_on_id)]
        items.append(Item.of(shown, ["summary"], texts=texts, stays=True))
    return Part(items, _path(task))


def _results(ids: list[UUID]) -> dict[UUID, Any]:
    return dict(Task.objects.filter(pk__in=ids).values_list("pk", "result"))


def _states(ids: list[UUID]) -> dict[UUID, Any]:
    return dict(CheckpointVersion.objects.filter(pk__in=ids).values_list("pk", "state"))


def _attempts(task: Task) -> Part:
    found = Run.objects.filter(task=task, ended_at__isnull=False).select_related("principal")
    runs = list(found.order_by("-number")[: RUNS + 1])
    left = checkpoints.measured_of(run.pk for run in runs)

    def item(run: Run) -> Item:
        shown = {
            "run_id": public_id("run", run.pk),
            "number": run.number,
            "principal": run.principal.name,
            "status": run.status,
            "progress": run.progress,
            "status_line": run.status_line,
            "error": run.error,
            "checkpoint": None,
            "ended_at": stamp(run.ended_at),
            "href": f"/v1/runs/{public_id('run', run.pk)}",
        }
        state = left.get(run.pk)
        texts = [_state(shown, "checkpoint", state)] if state else []
        return Item.of(shown, ["error"], texts=texts)

    rest = f"/v1/runs?task={public_id('task', task.pk)}"
    return Part.newest([item(run) for run in runs], RUNS, rest)


def _state(shown: dict[str, Any], name: str, version: CheckpointVersion) -> Text:
    size: int = version.bytes  # type: ignore[attr-defined]
    return Text(shown, name, size, name, read=_states, key=version.pk)


def _checkpoint(task: Task) -> Part:
    """The newest word of a holder. Whoever may read the task's context may read it."""
    version = checkpoints.newest_of_task(task.pk)
    if version is None:
        return Part([], one=True)
    author = version.checkpoint.principal
    printed = public_id("ckpt", version.checkpoint_id)
    shown = {
        "checkpoint_id": printed,
        "subject_id": version.checkpoint.subject_id,
        "version": version.version,
        "kind": version.checkpoint.kind,
        "author": author.name,
        "author_kind": author.kind,
        "state": None,
        "state_hash": version.state_hash,
        "created_at": stamp(version.created_at),
        "href": f"/v1/checkpoints/{printed}?version={version.version}",
    }
    return Part([Item(shown, [_state(shown, "state", version)])], one=True)


def _handoff(task: Task) -> Part:
    shown = led_here_json(handoffs.that_led_here(task))
    if shown is None:
        return Part([], one=True)
    shown["href"] = f"/v1/handoffs/{shown['handoff_id']}"
    return Part([Item.of(shown, ["message"])], one=True)


def _comments(task: Task) -> Part:
    def item(comment: Comment) -> Item:
        printed = public_id("cmt", comment.pk)
        shown = {
            "id": printed,
            "author": comment.author.name,
            "author_kind": comment.author.kind,
            "body": comment.body,
            "round": comment.round,
            "blocking": comment.blocking,
            "answered": comment.answered_at is not None,
            "answer": comment.answer if comment.answered_at else None,
            "answered_by": comment.answered_by.name if comment.answered_by else None,
            "created_at": stamp(comment.created_at),
            "href": f"{_path(task)}/comments/{printed}",
        }
        return Item.of(shown, ["body", "answer"])

    found = Comment.objects.filter(task=task).select_related("author", "answered_by")
    newest = found.order_by("-created_at")[: COMMENTS + 1]
    return Part.newest([item(comment) for comment in newest], COMMENTS, f"{_path(task)}/comments")
