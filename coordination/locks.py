"""Taking the locks of a move in the one order: who acts; task, lease, run; then the clock."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from titen.errors import Refused, not_found

from .callers import Caller
from .database import fetch, fetch_all
from .models import Lease, Resource, Role, Run, Task
from .sweeping import sweep_batch


@dataclass
class Held:
    """A locked task with its open run and lease, if any, and the moment after the last lock was taken."""

    task: Task
    run: Run | None
    lease: Lease | None
    at: datetime

    @property
    def lease_is_live(self) -> bool:
        """True while the open run's lease has not run out."""
        return self.lease is not None and self.lease.expires_at > self.at


def clock() -> datetime:
    """The database's clock, now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


_MEMBER = """
SELECT m.role FROM coordination_membership m JOIN coordination_user u ON u.id = m.user_id AND u.is_active
WHERE m.organization_id = %(organization)s AND m.user_id = %(user)s AND m.ended_at IS NULL FOR SHARE OF m"""


def hold_member(caller: Caller) -> None:
    """Let a person act with the role that the door has read: whoever changes it waits for our commit.

    `NOT_FOUND` when their membership has ended since the request began, `FORBIDDEN` when their role is lower by
    now. Taken before every other lock, as `identity.end_membership` does. An agent has no role.
    """
    if caller.user_id is None or caller.role is None:
        return
    row = fetch(_MEMBER, {"organization": caller.organization_id, "user": caller.user_id})
    if row is None:
        raise not_found()
    if not Role(row["role"]).includes(Role(caller.role)):
        raise Refused(
            "FORBIDDEN",
            f"Your role has just been changed to {row['role']}. Nothing was done.",
            details={"role": row["role"]},
        )


_HOLD = """
SELECT id FROM coordination_principal WHERE id = ANY (%(ids)s::uuid[]) AND disabled_at IS NULL
ORDER BY id FOR KEY SHARE"""

# Looked up after the lock: a membership that ended while this waited for it has ended.
_LEFT = """
SELECT p.id FROM coordination_principal p WHERE p.id = ANY (%(ids)s::uuid[]) AND p.kind = 'human'
    AND NOT EXISTS (SELECT FROM coordination_membership m
        WHERE m.organization_id = p.organization_id AND m.user_id = p.user_id AND m.ended_at IS NULL)"""


def hold_able(caller: Caller, *others: UUID) -> set[UUID]:
    """Who of these can act: the caller, or `UNAUTHENTICATED` (`NOT_FOUND` for a person), and the others.

    Whoever disables one of them, or ends their membership, waits for our commit and sees what we did. A
    foreign key takes this lock anyway, but only at the commit, when other locks are held.
    """
    hold_member(caller)
    params = {"ids": [caller.principal_id, *others]}
    able = {row["id"] for row in fetch_all(_HOLD, params)}
    able -= {row["id"] for row in fetch_all(_LEFT, params)}
    if caller.principal_id not in able:
        raise not_found() if caller.is_human else Refused("UNAUTHENTICATED")
    return able


def hold_task(organization_id: UUID, task_id: UUID, *, for_holder: bool = False) -> Held:
    """Lock a task, its live lease and its open run. `NOT_FOUND` when the organization has no such task.

    The lock is NO KEY UPDATE: a claim passes over it, but a foreign key to the task does not wait.
    What has run out is written down first, so that no move starts from a run that is over already;
    not `for_holder`, who is told so.
    """
    task = (
        Task.objects.select_for_update(no_key=True, of=("self",))
        .filter(organization_id=organization_id, pk=task_id)
        .first()
    )
    if task is None:
        raise not_found()
    lease = (
        Lease.objects.select_for_update(no_key=True)
        .filter(resource_id=task.resource_id, ended_at=None)
        .first()
    )
    run = (
        Run.objects.select_for_update(no_key=True).filter(task=task, ended_at=None).first() if lease else None
    )
    held = Held(task, run, lease, clock())
    if lease is not None and not held.lease_is_live and not for_holder:
        sweep_batch(task_id=task_id)
        held.task, held.run, held.lease = Task.objects.get(pk=task_id), None, None
    return held


def current_epoch(task: Task) -> int:
    """The epoch of the task's resource; 0 before the first claim."""
    return Resource.objects.values_list("epoch", flat=True).get(pk=task.resource_id)
