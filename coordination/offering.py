"""Offering a subject, and maybe a task, to another principal."""

from datetime import datetime
from uuid import UUID

from django.conf import settings

from titen.api.ids import public_id
from titen.errors import Refused, invalid, not_found

from . import handoffs
from .addressing import hold_target
from .callers import Caller
from .comments import refuse_unless_holder
from .database import fetch_all
from .leases import renew_human
from .locks import clock, hold_task
from .models import Checkpoint, ContextPack, Handoff, HandoffStatus, Run
from .reading import UNEXPIRED, may_read_checkpoint, may_read_context
from .times import deadline


def offer(
    caller: Caller,
    *,
    to_principal: str,
    subject_id: str = "",
    context_id: UUID | None = None,
    checkpoint_id: UUID | None = None,
    message: str = "",
    task_id: UUID | None = None,
    run_id: UUID | None = None,
    epoch: int | None = None,
    expires_at: datetime | None = None,
    expires_in_seconds: int | None = None,
) -> Handoff:
    """Offer a subject to a principal of the organization, by id or name; with a task, its holder offers it.

    The checkpoint is pinned at its current version. The offer holds nothing: the task's lease stays as
    it is, and may end before the offer does. It ends after 24 hours unless something else is asked for.
    """
    if (run_id is None) != (epoch is None):
        missing = "epoch" if epoch is None else "run_id"
        raise invalid(missing, "is needed where a run speaks: send run_id and epoch, both or none.")
    if not subject_id and task_id is None and run_id is None:
        raise invalid("subject_id", "is needed unless a task is handed off.")
    target = hold_target(caller, to_principal)
    run, at = _hold_offered(caller, task_id, run_id, epoch)
    if context_id is not None:
        _check_context(caller, context_id)
    handoff = Handoff.objects.create(
        organization_id=caller.organization_id,
        from_principal_id=caller.principal_id,
        to_principal=target,
        to_address=to_principal,
        subject_id=subject_id or (public_id("task", run.task_id) if run else ""),
        task_id=run.task_id if run else None,
        run=run,
        epoch=run.epoch if run else None,
        context_id=context_id,
        checkpoint_id=checkpoint_id,
        checkpoint_version=None if checkpoint_id is None else _pin(caller, checkpoint_id),
        message=message,
        created_at=at,
        expires_at=deadline(
            at,
            expires_at=expires_at,
            expires_in_seconds=expires_in_seconds,
            default_seconds=settings.HANDOFF_DEFAULT_SECONDS,
            longest_seconds=settings.HANDOFF_MAXIMUM_SECONDS,
        ),
    )
    named = {"checkpoint_id": ("ckpt", checkpoint_id), "context_id": ("ctx", context_id)}
    ids = {name: public_id(prefix, pk) for name, (prefix, pk) in named.items() if pk is not None}
    handoffs.record("handoff.created", handoff, actor_id=caller.principal_id, **ids)
    return handoff


def _hold_offered(
    caller: Caller, task_id: UUID | None, run_id: UUID | None, epoch: int | None
) -> tuple[Run | None, datetime]:
    """The caller's run on the task that it offers, with its locks, and the moment after them."""
    if run_id is not None:
        speaking = Run.objects.filter(pk=run_id, organization_id=caller.organization_id).first()
        if speaking is None:
            raise not_found()
        if task_id is not None and task_id != speaking.task_id:
            raise invalid("run_id", "must be a run of the task in task_id.")
        task_id = speaking.task_id
    if task_id is None:
        return None, clock()
    held = hold_task(caller.organization_id, task_id, for_holder=True)
    if run_id is None or epoch is None:
        if held.run is None or held.run.principal_id != caller.principal_id:
            raise Refused("NOT_HOLDER", "You have no open run on this task. Claim it, then offer it.")
        run_id, epoch = held.run.pk, held.run.epoch
    run = refuse_unless_holder(held, caller, run_id, epoch, "hand_off")
    standing = (
        Handoff.objects.select_for_update(no_key=True)
        .filter(task_id=task_id, status=HandoffStatus.PENDING)
        .first()
    )
    if standing is not None:
        _clear(standing, run, held.at)
    renew_human(held, caller.principal_id)
    return run, held.at


def _clear(standing: Handoff, run: Run, at: datetime) -> None:
    """Write down that an earlier offer of the task has expired: by the clock, or with the run that made it.

    While another run holds the task the earlier offer is worth nothing; it does not stand in the way.
    """
    if standing.expires_at <= at:
        handoffs.expire(standing, at=standing.expires_at)
    elif standing.run_id != run.pk:
        handoffs.expire(standing, at=at)
    else:
        raise Refused(
            "CONFLICT",
            "The task is offered already. Withdraw that handoff first, or wait until it is resolved.",
            details={"handoff_id": public_id("hoff", standing.pk), "state": standing.status},
        )


def _pin(caller: Caller, checkpoint_id: UUID) -> int:
    """The current version of a checkpoint that the caller may read; it is kept while the offer lives."""
    # Who drops old versions locks the row FOR UPDATE: it sees this pin, or is through before we look.
    fetch_all("SELECT id FROM coordination_checkpoint WHERE id = %(id)s FOR KEY SHARE", {"id": checkpoint_id})
    found = Checkpoint.objects.filter(UNEXPIRED, pk=checkpoint_id, organization_id=caller.organization_id)
    checkpoint = found.first()
    if checkpoint is None or not may_read_checkpoint(caller, checkpoint, checkpoint.version):
        raise invalid("checkpoint_id", "must be a checkpoint that you may read.")
    return checkpoint.version


def _check_context(caller: Caller, context_id: UUID) -> None:
    pack = ContextPack.objects.filter(pk=context_id, organization_id=caller.organization_id).first()
    if pack is None or not may_read_context(caller, pack):
        raise invalid("context_id", "must be a context pack that you may read.")
