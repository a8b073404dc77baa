"""Who may read what inside an organization: the one place that says so.

A key with `tasks:read` sees tasks, runs and comments. Payloads, results, checkpoints and contexts are for
the current holder, the author, the task's creator, the target of a live handoff, and humans. The holder of
a task may read the results of what it waited for. Scopes are the doors' business.
"""

from django.db.models import Exists, F, OuterRef, Prefetch, Q, QuerySet

from .callers import Caller
from .models import (
    Checkpoint,
    CheckpointVersion,
    ContextItem,
    ContextItemKind,
    ContextPack,
    Handoff,
    HandoffStatus,
    PrincipalKind,
    Run,
    RunStatus,
    Task,
    TaskDependency,
)
from .models.fields import ClockNow

# A handoff that opens what it names: pending and not run out, or accepted.
LIVE_HANDOFF = Q(status=HandoffStatus.ACCEPTED) | Q(status=HandoffStatus.PENDING, expires_at__gt=ClockNow())
# Of a run: it is open under a live lease.
HELD = Q(ended_at=None, lease__expires_at__gt=ClockNow())
# Of a checkpoint: it has no end, or none yet.
UNEXPIRED = Q(expires_at=None) | Q(expires_at__gt=ClockNow())


def handed_to(caller: Caller) -> QuerySet[Handoff]:
    """The live handoffs that are addressed to the caller."""
    return Handoff.objects.filter(LIVE_HANDOFF, to_principal_id=caller.principal_id)


def readable_tasks(caller: Caller) -> QuerySet[Task]:
    """The tasks of which the caller may read everything."""
    tasks = Task.objects.filter(organization_id=caller.organization_id)
    if caller.is_human:
        return tasks
    of_it = Run.objects.filter(task=OuterRef("pk"), principal_id=caller.principal_id)
    wrote_the_result = Q(status=RunStatus.SUCCEEDED)
    return tasks.filter(
        Q(created_by_id=caller.principal_id)
        | Exists(of_it.filter(HELD | wrote_the_result))
        | Exists(handed_to(caller).filter(task=OuterRef("pk")))
    )


def readable_results(caller: Caller) -> QuerySet[Task]:
    """The tasks whose results the caller may read: those that it may read, and what a task waited for that it
    holds now. Of the latter it may read nothing else."""
    mine = Run.objects.filter(HELD, principal_id=caller.principal_id)
    waited = TaskDependency.objects.filter(depends_on=OuterRef("pk"), task__in=mine.values("task"))
    tasks = Task.objects.filter(organization_id=caller.organization_id)
    return tasks.filter(Exists(readable_tasks(caller).filter(pk=OuterRef("pk"))) | Exists(waited))


def holds_task(caller: Caller, task: Task) -> bool:
    """True while the caller holds the task under a live lease."""
    return Run.objects.filter(HELD, task=task, principal_id=caller.principal_id).exists()


def may_read_task(caller: Caller, task: Task) -> bool:
    """True where the caller may read payload, result, errors and context; a row of its organization."""
    if caller.is_human or task.created_by_id == caller.principal_id:
        return True
    return readable_tasks(caller).filter(pk=task.pk).exists()


def readable_versions(caller: Caller) -> QuerySet[CheckpointVersion]:
    """The versions of checkpoints that the caller may read, expired or not.

    One that a holder wrote under its lease is as private as the task; any other is its author's alone,
    until a handoff, or a pack in a handoff, names it. Not every sender may read what somebody else's pack
    pins: so such a pack opens only what its target may read anyway.
    """
    versions = CheckpointVersion.objects.filter(checkpoint__organization_id=caller.organization_id)
    if caller.is_human:
        return versions
    handed = handed_to(caller)
    packs = handed.filter(
        Q(context__author=F("from_principal")) | Q(from_principal__kind=PrincipalKind.HUMAN)
    )
    pinned = ContextItem.objects.filter(
        kind=ContextItemKind.CHECKPOINT,
        target_id=OuterRef("checkpoint_id"),
        version=OuterRef("version"),
        pack__in=packs.values("context"),
    )
    named = handed.filter(checkpoint=OuterRef("checkpoint_id"), checkpoint_version=OuterRef("version"))
    return versions.filter(
        Q(checkpoint__principal_id=caller.principal_id)
        | Exists(readable_tasks(caller).filter(pk=OuterRef("run__task")))
        | Exists(named)
        | Exists(pinned)
    )


def may_read_checkpoint(caller: Caller, checkpoint: Checkpoint, version: int | None = None) -> bool:
    """True where the caller may read this version, or any version when none is named."""
    if caller.is_human or checkpoint.principal_id == caller.principal_id:
        return True
    found = readable_versions(caller).filter(checkpoint=checkpoint)
    return (found if version is None else found.filter(version=version)).exists()


def readable_checkpoints(caller: Caller) -> QuerySet[Checkpoint]:
    """The unexpired checkpoints of which the caller may read some version; `newest` holds the last such.

    That one is without its state.
    """
    readable = readable_versions(caller)
    newest = readable.select_related("run").defer("state").order_by("-version")[:1]
    return (
        Checkpoint.objects.filter(UNEXPIRED, organization_id=caller.organization_id)
        .filter(Exists(readable.filter(checkpoint=OuterRef("pk"))))
        .select_related("principal")
        .prefetch_related(Prefetch("versions", newest, to_attr="newest"))
    )


def may_read_context(caller: Caller, pack: ContextPack) -> bool:
    """True for the pack's author, who may read its task, the target of a live handoff of it, and humans."""
    if caller.is_human or pack.author_id == caller.principal_id:
        return True
    if handed_to(caller).filter(context=pack).exists():
        return True
    return pack.task is not None and may_read_task(caller, pack.task)
