"""Checkpoints: durable state of one agent about one subject, version by version."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from titen.api.ids import public_id, read_id
from titen.errors import Refused, invalid, not_found

from .callers import Caller
from .comments import refuse_unless_holder
from .database import fetch_all
from .fitting import json_bytes
from .leases import renew_human
from .locks import hold_task
from .models import Checkpoint, CheckpointVersion, Run, Task
from .reading import UNEXPIRED, readable_versions
from .versions import STATE_LIMIT_BYTES, WORK, add_version, weigh


def write(
    caller: Caller,
    *,
    state: Any,
    subject_id: str | None = None,
    kind: str = WORK,
    run_id: UUID | None = None,
    epoch: int | None = None,
    field: str = "state",
    **options: Any,
) -> CheckpointVersion:
    """Write the caller's next version about a subject. A state that equals the last one is a version too.

    With `run_id` and `epoch` it is the holder's word about the run's task, whose id is the subject unless
    another is named: one that has lost its lease is refused; one in jeopardy is not. Nobody else writes
    about a task: `NOT_HOLDER`. `options` are `expected_version`, `expires_at` and `expires_in_seconds`.
    `field` is what a refusal calls the state.
    """
    state_hash = weigh(state, field=field)
    run = None
    if run_id is not None and epoch is not None:
        known = Run.objects.filter(pk=run_id, organization_id=caller.organization_id).first()
        if known is None:
            raise not_found()
        held = hold_task(caller.organization_id, known.task_id, for_holder=True)
        run = refuse_unless_holder(held, caller, run_id, epoch, "checkpoint")
        renew_human(held, caller.principal_id)
        subject_id = subject_id or public_id("task", run.task_id)
    if subject_id is None:
        raise invalid("subject_id", "is needed, unless run_id and epoch say which task it is about.")
    _refuse_unheld_task(caller, subject_id, run)
    return add_version(
        caller.organization_id,
        caller.principal_id,
        subject_id=subject_id,
        kind=kind,
        state=state,
        state_hash=state_hash,
        run=run,
        **options,
    )


def _refuse_unheld_task(caller: Caller, subject_id: str, run: Run | None) -> None:
    """Refuse a subject that is a task of the organization, unless it is the one that the run holds."""
    named = read_id("task", subject_id)
    if named is None or (run is not None and run.task_id == named):
        return
    if Task.objects.filter(pk=named, organization_id=caller.organization_id).exists():
        raise Refused(
            "NOT_HOLDER",
            "A checkpoint about a task is its holder's. Send the run_id and epoch of your claim of this task, or"
            " name another subject_id.",
            details={"task_id": subject_id},
        )


def look_for(caller: Caller, checkpoint_id: UUID, version: int | None = None) -> CheckpointVersion | None:
    """This version of an unexpired checkpoint, else the newest one; None where the caller may not read it."""
    which = Q(checkpoint__in=Checkpoint.objects.filter(UNEXPIRED, pk=checkpoint_id))
    if version is not None:
        which &= Q(version=version)
    return (
        readable_versions(caller)
        .filter(which)
        .select_related("checkpoint__principal", "run")
        .order_by("-version")
        .first()
    )


def find(caller: Caller, checkpoint_id: UUID, version: int | None = None) -> CheckpointVersion:
    """The same; `NOT_FOUND` for none."""
    found = look_for(caller, checkpoint_id, version)
    if found is None:
        raise not_found()
    return found


def history(caller: Caller, checkpoint_id: UUID) -> QuerySet[CheckpointVersion]:
    """The versions that the caller may read, without their states. `NOT_FOUND` when there is none."""
    find(caller, checkpoint_id)
    return readable_versions(caller).filter(checkpoint=checkpoint_id).select_related("run").defer("state")


def keep(checkpoint_ids: Iterable[UUID]) -> None:
    """Hold off the clean-up from checkpoints until this transaction has pinned versions of them."""
    fetch_all(_KEEP, {"ids": list(checkpoint_ids)})


def left_by(runs: Iterable[UUID]) -> dict[UUID, Any]:
    """The state of the newest unexpired version that was written under each of these runs, if any."""
    return {run: version.state for run, version in _newest_of_each(_unexpired(), runs).items()}


def measured_of(runs: Iterable[UUID]) -> dict[UUID, CheckpointVersion]:
    """The same versions without their states; `bytes` is how long each is."""
    return _newest_of_each(_measured(), runs)


def newest_of_task(task_id: UUID) -> CheckpointVersion | None:
    """The newest unexpired version that a holder of the task wrote under its lease, measured."""
    written = _measured().filter(run__task=task_id).select_related("checkpoint__principal")
    return written.order_by("-created_at", "-version").first()


def _unexpired() -> QuerySet[CheckpointVersion]:
    return CheckpointVersion.objects.filter(checkpoint__in=Checkpoint.objects.filter(UNEXPIRED))


def _measured() -> QuerySet[CheckpointVersion]:
    size = json_bytes("state", F("state"), most=2 * STATE_LIMIT_BYTES)
    measured: QuerySet[CheckpointVersion] = _unexpired().defer("state").annotate(bytes=size)
    return measured


def _newest_of_each(
    found: QuerySet[CheckpointVersion], runs: Iterable[UUID]
) -> dict[UUID, CheckpointVersion]:
    written = found.filter(run__in=list(runs))
    newest = written.order_by("run_id", "-created_at", "-version").distinct("run_id")
    return {version.run_id: version for version in newest if version.run_id}


_KEEP = """
SELECT id FROM coordination_checkpoint WHERE id = ANY (%(ids)s::uuid[]) ORDER BY id FOR KEY SHARE"""

# How many checkpoints one transaction of the clean-up looks at.
BATCH = 500

# A version of `c` that so many newer ones of the same checkpoint follow. The numbers of a task's checkpoint
# have gaps where other holders wrote, so they are counted; the first condition only spares the count.
_OLD = """v.version <= c.version - %(kept)s::int AND %(kept)s::int <= (
    SELECT count(*) FROM coordination_checkpointversion w WHERE w.checkpoint_id = c.id AND w.version > v.version)"""

_TOO_MANY = f"""
SELECT c.id FROM coordination_checkpoint c
WHERE c.id > %(after)s AND (c.expires_at <= clock_timestamp() OR EXISTS (
    SELECT FROM coordination_checkpointversion v WHERE v.checkpoint_id = c.id AND {_OLD}))
ORDER BY c.id LIMIT {BATCH} FOR UPDATE OF c SKIP LOCKED"""

# A version stays while a pack or a live handoff pins it.
_DROP_VERSIONS = f"""
DELETE FROM coordination_checkpointversion v USING coordination_checkpoint c
WHERE c.id = ANY (%(ids)s::uuid[]) AND v.checkpoint_id = c.id
    AND (c.expires_at <= clock_timestamp() OR {_OLD})
    AND NOT EXISTS (SELECT FROM coordination_contextitem i WHERE i.target_id = c.id AND i.version = v.version)
    AND NOT EXISTS (SELECT FROM coordination_handoff h
        WHERE h.checkpoint_id = c.id AND h.checkpoint_version = v.version
            AND (h.status = 'accepted' OR h.status = 'pending' AND h.expires_at > clock_timestamp()))
RETURNING v.id"""

# A handoff that is over still says which checkpoint it was about.
_DROP_EXPIRED = """
DELETE FROM coordination_checkpoint c
WHERE c.id = ANY (%(ids)s::uuid[]) AND c.expires_at <= clock_timestamp()
    AND NOT EXISTS (SELECT FROM coordination_checkpointversion v WHERE v.checkpoint_id = c.id)
    AND NOT EXISTS (SELECT FROM coordination_handoff h WHERE h.checkpoint_id = c.id)
RETURNING c.id"""


def drop_old() -> int:
    """Forget the versions beyond the newest so many, and expired checkpoints; how many versions went.

    What a pack or a live handoff pins stays. The rows are locked in a statement of their own: whoever
    pins a version locks the checkpoint first, so a pin is seen here, or finds its version gone.
    """
    dropped, after = 0, UUID(int=0)
    while True:
        with transaction.atomic():
            params = {"after": after, "kept": settings.CHECKPOINT_VERSIONS_KEPT}
            ids = [row["id"] for row in fetch_all(_TOO_MANY, params)]
            if ids:
                params = {"ids": ids, "kept": settings.CHECKPOINT_VERSIONS_KEPT}
                dropped += len(fetch_all(_DROP_VERSIONS, params))
                fetch_all(_DROP_EXPIRED, {"ids": ids})
        if len(ids) < BATCH:
            return dropped
        after = ids[-1]
