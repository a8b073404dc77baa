"""Context packs: what somebody should read, pinned as it stood, and read under the reader's own rights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F

from titen.api.ids import maybe_id, public_id
from titen.errors import invalid, not_found

from . import checkpoints, events
from .callers import Caller
from .fitting import json_bytes
from .locks import clock
from .models import LONG_COLUMNS, Comment, ContextItem, ContextItemKind, ContextPack, Run, Task
from .reading import may_read_context, may_read_task, readable_versions
from .shapes import checkpoint_json, comment_json, run_json, size_of, task_json
from .times import stamp

LIMIT_BYTES = 256 * 1024
# In place of what was not read.
TOO_LONG: dict[str, Any] = {}
# kind -> (the prefix of its ids, the scope that a key needs to read one, where it can be read alone)
KINDS = {
    ContextItemKind.TASK: ("task", "tasks:read", "/v1/tasks/{id}"),
    ContextItemKind.RUN: ("run", "tasks:read", "/v1/runs/{id}"),
    ContextItemKind.CHECKPOINT: ("ckpt", "checkpoints:read", "/v1/checkpoints/{id}?version={version}"),
    ContextItemKind.COMMENT: ("cmt", "tasks:read", "/v1/tasks/{task_id}/comments/{id}"),
}


@dataclass(frozen=True)
class Named:
    """One thing that a pack should name; a checkpoint without a version is pinned as it stands now."""

    kind: ContextItemKind
    target_id: UUID
    version: int | None = None


def create(
    caller: Caller,
    *,
    items: Sequence[Named],
    subject_id: str = "",
    note: str = "",
    task_id: UUID | None = None,
) -> ContextPack:
    """Make a pack of things that the caller may read now; `VALIDATION_ERROR` where one is anything else."""
    tasks = Task.objects.filter(organization_id=caller.organization_id)
    if task_id is not None and not tasks.filter(pk=task_id).exists():
        raise invalid("task_id", "names no task of your organization.")
    checkpoints.keep(item.target_id for item in items if item.kind == ContextItemKind.CHECKPOINT)
    pinned = [
        ContextItem(
            number=number, kind=item.kind, target_id=item.target_id, version=_pin(caller, item, number)
        )
        for number, item in enumerate(items)
    ]
    pack = ContextPack.objects.create(
        organization_id=caller.organization_id,
        author_id=caller.principal_id,
        subject_id=subject_id,
        task_id=task_id,
        note=note,
    )
    for each in pinned:
        each.pack = pack
    ContextItem.objects.bulk_create(pinned)
    events.record(
        "context.created",
        organization_id=caller.organization_id,
        actor_id=caller.principal_id,
        task_id=task_id,
        subject_id=pack.pk,
        items=len(pinned),
    )
    return pack


def _pin(caller: Caller, item: Named, number: int) -> int | None:
    """The version that is pinned of a checkpoint, None of anything else."""
    if item.kind == ContextItemKind.CHECKPOINT:
        found = checkpoints.look_for(caller, item.target_id, item.version)
        if found is not None and _has_scope(caller, item.kind):
            return found.version
    elif _content(caller, item.kind, item.target_id) is not None:
        return None
    raise invalid("items", f"number {number + 1} names nothing that you may read.")


def find(caller: Caller, pack_id: UUID) -> ContextPack:
    """A pack that the caller may read; `NOT_FOUND` for any other."""
    pack = (
        ContextPack.objects.filter(pk=pack_id, organization_id=caller.organization_id)
        .select_related("author", "task")
        .first()
    )
    if pack is None or not may_read_context(caller, pack):
        raise not_found()
    return pack


def pack_json(pack: ContextPack) -> dict[str, Any]:
    """A pack without what it names."""
    return {
        "context_id": public_id("ctx", pack.pk),
        "author_id": public_id("agent", pack.author_id),
        "author": pack.author.name,
        "subject_id": pack.subject_id,
        "task_id": maybe_id("task", pack.task_id),
        "note": pack.note,
        "created_at": stamp(pack.created_at),
    }


def item_json(item: ContextItem) -> dict[str, Any]:
    """What a pack names, without what that holds."""
    prefix, _, _ = KINDS[ContextItemKind(item.kind)]
    return {"type": item.kind, "id": public_id(prefix, item.target_id), "version": item.version}


def resolve(caller: Caller, pack: ContextPack) -> dict[str, Any]:
    """The pack with what the caller may read of it itself, at most 256 KiB.

    A thing that it may not read shows its id alone; for one that does not fit, `href` says where it is.
    """
    shown = pack_json(pack)
    left = LIMIT_BYTES - size_of(shown)
    items = []
    for item in pack.items.order_by("number"):
        named = item_json(item)
        kind = ContextItemKind(item.kind)
        content = _content(caller, kind, item.target_id, item.version, most=left)
        if content is None:
            named["readable"] = False
        else:
            whole = {**named, "readable": True, "content": content}
            _, _, href = KINDS[kind]
            link = href.format(**{**content, **named})
            cut = {**named, "readable": True, "content": None, "truncated": True, "href": link}
            named = cut if content is TOO_LONG or size_of(whole) > left else whole
        left -= size_of(named)
        items.append(named)
    return {**shown, "items": items}


def _has_scope(caller: Caller, kind: ContextItemKind) -> bool:
    _, scope, _ = KINDS[kind]
    return caller.is_human or caller.has(scope)


def _content(
    caller: Caller,
    kind: ContextItemKind,
    target_id: UUID,
    version: int | None = None,
    *,
    most: int = LIMIT_BYTES,
) -> dict[str, Any] | None:
    """What the API shows this caller of a thing; None where that is nothing.

    `TOO_LONG` for a task or a checkpoint of more than `most` bytes, which is then not read.
    """
    if not _has_scope(caller, kind):
        return None
    mine = {"pk": target_id, "organization_id": caller.organization_id}
    if kind == ContextItemKind.TASK:
        return _task(caller, mine, most)
    if kind == ContextItemKind.RUN:
        runs = Run.objects.select_related("lease", "principal", "task")
        run = runs.defer(*(f"task__{name}" for name in LONG_COLUMNS)).filter(**mine).first()
        return None if run is None else _run(caller, run)
    if kind == ContextItemKind.COMMENT:
        comment = Comment.objects.filter(**mine).select_related("author", "answered_by").first()
        return None if comment is None else comment_json(comment)
    pinned = readable_versions(caller).filter(checkpoint=target_id, version=version or 0)
    measured = pinned.defer("state").annotate(bytes=json_bytes("state", F("state"), most=LIMIT_BYTES))
    found = measured.select_related("checkpoint__principal", "run").first()
    if found is None:
        return None
    return TOO_LONG if found.bytes > most else checkpoint_json(found, state=True)


def _task(caller: Caller, mine: dict[str, Any], most: int) -> dict[str, Any] | None:
    sizes = {f"{name}_bytes": json_bytes(name, F(name), most=LIMIT_BYTES) for name in LONG_COLUMNS}
    found = Task.objects.filter(**mine).select_related("profile").defer(*LONG_COLUMNS)
    task = found.annotate(**sizes).first()
    if task is None:
        return None
    private = may_read_task(caller, task)
    if private:
        if sum(getattr(task, name) or 0 for name in sizes) > most:
            return TOO_LONG
        task.refresh_from_db(fields=LONG_COLUMNS)
    return task_json(task, private=private)


def _run(caller: Caller, run: Run) -> dict[str, Any]:
    private = run.principal_id == caller.principal_id or may_read_task(caller, run.task)
    return run_json(
        run,
        now=clock(),
        jeopardy_share=settings.JEOPARDY_SHARE,
        private=private,
        checkpoint=checkpoints.left_by([run.pk]).get(run.pk) if private else None,
    )
