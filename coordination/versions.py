"""Writing one version of a checkpoint: its row's lock, its number, its size."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import JSONNull, Max, Q

from titen.errors import Refused

from . import events
from .canonical import canonical, digest_of
from .locks import clock
from .models import Checkpoint, CheckpointVersion, Run
from .times import deadline

STATE_LIMIT_BYTES = 256 * 1024
# The kind of a checkpoint unless its author says otherwise.
WORK = "work"


def weigh(state: Any, *, field: str = "state") -> str:
    """The hash of a state. `PAYLOAD_TOO_LARGE`, naming the field, beyond 256 KiB of canonical JSON."""
    text = canonical(state)
    if len(text) > STATE_LIMIT_BYTES:
        problem = f"is larger than {STATE_LIMIT_BYTES} bytes of canonical JSON."
        raise Refused(
            "PAYLOAD_TOO_LARGE",
            f"The {field} {problem} Send less.",
            details={"limit": STATE_LIMIT_BYTES, "fields": {field: [problem]}},
        )
    return digest_of(text)


def add_version(
    organization_id: UUID,
    principal_id: UUID,
    *,
    subject_id: str,
    kind: str,
    state: Any,
    state_hash: str,
    run: Run | None = None,
    expected_version: int | None = None,
    expires_at: datetime | None = None,
    expires_in_seconds: int | None = None,
) -> CheckpointVersion:
    """Give a checkpoint its next version, and make the checkpoint if there is none.

    `run` is the open run whose holder speaks, locked and judged by the caller of this. What the holders
    of its task write about one subject is one line of versions: each goes on from the one before it,
    whoever wrote that, in a checkpoint of its own. One that has expired is as good as none for
    `expected_version`, but the numbers go on. `VERSION_MISMATCH` with the current version and its hash.
    """
    checkpoint = _hold(organization_id, principal_id, subject_id, kind)
    at = clock()
    line = Q(checkpoint=checkpoint)
    if run is not None:
        # The task is locked, so no other holder writes now.
        same = Checkpoint.objects.filter(organization_id=organization_id, subject_id=subject_id, kind=kind)
        line |= Q(checkpoint__in=same, run__task=run.task_id)
    unexpired = Q(checkpoint__expires_at=None) | Q(checkpoint__expires_at__gt=at)
    versions = CheckpointVersion.objects.filter(line)
    last = versions.aggregate(written=Max("version"), current=Max("version", filter=unexpired))
    current = last["current"] or 0
    if expected_version is not None and expected_version != current:
        newest = versions.filter(version=current).first()
        raise Refused(
            "VERSION_MISMATCH",
            current=current,
            details={"current_version": current, "state_hash": newest.state_hash if newest else None},
        )
    ends = None
    if expires_at is not None or expires_in_seconds is not None:
        ends = deadline(
            at,
            expires_at=expires_at,
            expires_in_seconds=expires_in_seconds,
            default_seconds=settings.CHECKPOINT_MAXIMUM_SECONDS,
            longest_seconds=settings.CHECKPOINT_MAXIMUM_SECONDS,
        )
    checkpoint.version = max(checkpoint.version, last["written"] or 0) + 1
    checkpoint.updated_at, checkpoint.expires_at = at, ends
    if run is not None:
        checkpoint.task_id = run.task_id
    checkpoint.save(update_fields=["version", "updated_at", "expires_at", "task"])
    version = CheckpointVersion.objects.create(
        checkpoint=checkpoint,
        version=checkpoint.version,
        state=JSONNull() if state is None else state,
        state_hash=state_hash,
        run=run,
        epoch=run.epoch if run else None,
        created_at=at,
    )
    version.state = state
    events.record(
        "checkpoint.written",
        organization_id=organization_id,
        actor_id=principal_id,
        task_id=run.task_id if run else None,
        run_id=run.pk if run else None,
        lease_id=run.lease_id if run else None,
        epoch=run.epoch if run else None,
        subject_id=checkpoint.pk,
        version=version.version,
        state_hash=state_hash,
    )
    return version


def _hold(organization_id: UUID, principal_id: UUID, subject_id: str, kind: str) -> Checkpoint:
    """The locked row of a checkpoint; a new one has version 0 until its first version is written.

    Whoever inserts at the same moment waits for the other's row and then finds it. The clean-up may
    delete one between the two statements: then it is made again.
    """
    key = {
        "organization_id": organization_id,
        "principal_id": principal_id,
        "subject_id": subject_id,
        "kind": kind,
    }
    mine = Checkpoint.objects.select_for_update(no_key=True, of=("self",)).select_related("principal")
    while (found := mine.filter(**key).first()) is None:
        Checkpoint.objects.bulk_create([Checkpoint(**key, version=0)], ignore_conflicts=True)
    return found
