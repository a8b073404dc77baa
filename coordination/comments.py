"""Comments on tasks, and questions that block until somebody else answers."""

from uuid import UUID

from titen.errors import Refused, not_found

from . import blockers, events, standing
from .callers import Caller
from .leases import renew_human
from .locks import Held, hold_task
from .models import Blocker, BlockerKind, Comment, Run, Task
from .tasks import refuse_unless


def refuse_unless_holder(held: Held, caller: Caller, run_id: UUID, epoch: int, verb: str) -> Run:
    """The open run, if `caller` holds it under `epoch` with a live lease; else the refusal and its trace."""
    run = (
        Run.objects.filter(pk=run_id, organization_id=caller.organization_id).select_related("lease").first()
    )
    if run is None or run.task_id != held.task.pk:
        raise not_found()
    row = standing.of_lease(run.lease, held.at)
    # A person who holds a task is there, however long ago the last word was.
    unsure = row["jeopardy"] and verb in standing.OF_A_RUN.refused and not caller.is_human
    if held.run is not None and held.run.pk == run_id and held.lease is not None:
        live = held.lease_is_live and held.lease.epoch == epoch
        if live and not unsure and held.run.principal_id == caller.principal_id:
            return held.run
    row |= {
        "caller_id": caller.principal_id,
        "organization_id": caller.organization_id,
        "run_id": run.pk,
        "principal_id": run.principal_id,
        "run_status": run.status,
        "task_id": held.task.pk,
        "task_status": held.task.status,
        "open_effects": held.task.open_effects,
        "jeopardy": unsure,
    }
    refused = standing.judge(row, epoch, verb)
    refused.trace = (row, verb)
    raise refused


def post(
    caller: Caller, task_id: UUID, *, body: str, run_id: UUID | None = None, epoch: int | None = None
) -> Comment:
    """Write a comment; anybody who may write to the task can, and no run waits for it.

    With a run it is the holder's word: one that has lost its lease is refused.
    """
    if run_id is not None and epoch is not None:
        held = hold_task(caller.organization_id, task_id, for_holder=True)
        refuse_unless_holder(held, caller, run_id, epoch, "comment")
        task: Task | None = held.task
    elif caller.is_human:
        held = hold_task(caller.organization_id, task_id)
        renew_human(held, caller.principal_id)
        task = held.task
    else:
        task = Task.objects.filter(pk=task_id, organization_id=caller.organization_id).only("round").first()
    if task is None:
        raise not_found()
    comment = Comment.objects.create(
        organization_id=caller.organization_id,
        task_id=task_id,
        run_id=run_id,
        round=task.round,
        author_id=caller.principal_id,
        body=body,
    )
    events.record(
        "comment.posted",
        organization_id=caller.organization_id,
        actor_id=caller.principal_id,
        task_id=task_id,
        run_id=run_id,
        subject_id=comment.pk,
        blocking=False,
    )
    return comment


def ask(caller: Caller, task_id: UUID, *, body: str, run_id: UUID, epoch: int) -> Comment:
    """The holder asks a question that blocks the task until somebody else answers it."""
    held = hold_task(caller.organization_id, task_id, for_holder=True)
    run = refuse_unless_holder(held, caller, run_id, epoch, "ask")
    refuse_unless(held.task, "ask")
    comment = Comment.objects.create(
        organization_id=caller.organization_id,
        task=held.task,
        run_id=run.pk,
        round=held.task.round,
        author_id=caller.principal_id,
        body=body,
        blocking=True,
    )
    Run.objects.filter(pk=run.pk).update(has_asked=True)
    blocker = blockers.open_blocker(
        held,
        BlockerKind.QUESTION,
        f"{caller.name} asked a question. A human, or an agent that may answer, can end this by answering it.",
        subject_id=comment.pk,
    )
    blockers.record_blocked(held, blocker, actor_id=caller.principal_id, kind="comment.asked")
    return comment


def answer(caller: Caller, task_id: UUID, comment_id: UUID, *, body: str) -> Comment:
    """Answer a blocking question once; the asker cannot answer itself."""
    held = hold_task(caller.organization_id, task_id)
    comment = (
        Comment.objects.select_for_update(no_key=True)
        .filter(pk=comment_id, task=held.task, blocking=True)
        .first()
    )
    if comment is None:
        raise not_found()
    if comment.author_id == caller.principal_id:
        raise Refused(
            "FORBIDDEN", "The asker cannot answer its own question. Wait for a human or another agent."
        )
    if comment.answered_at is not None or comment.withdrawn_at is not None:
        state = "answered" if comment.answered_at else "withdrawn"
        raise Refused("CONFLICT", object="question", state=state, details={"state": state})
    comment.answer, comment.answered_by_id, comment.answered_at = body, caller.principal_id, held.at
    comment.round = held.task.round
    comment.save(update_fields=["answer", "answered_by", "answered_at", "round"])
    blockers.close_blockers(held, Blocker.objects.filter(kind=BlockerKind.QUESTION, subject_id=comment.pk))
    renew_human(held, caller.principal_id)
    blockers.record_blocked(
        held,
        Blocker(kind=BlockerKind.QUESTION, subject_id=comment.pk),
        actor_id=caller.principal_id,
        kind="comment.answered",
    )
    return comment
