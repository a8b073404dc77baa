"""The claim: the one rule by which work gets a run, a lease and a new epoch."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from titen.errors import Refused, invalid

from . import statements
from .callers import Credential, by_principal
from .database import Row, fetch
from .models import Blocker, CapabilityProfile, Task, TaskDependency
from .sweeping import sweep_batch
from .times import stamp

NOT_ADMITTED = {
    "kind": "admission",
    "sentence": "The limit of concurrent runs is reached. Finish a run first.",
}


def check_ttl(ttl_seconds: int | None, field: str = "ttl_seconds") -> int | None:
    """Refuse a TTL out of the published range; it is never clamped."""
    low, high = settings.LEASE_TTL_MINIMUM, settings.LEASE_TTL_MAXIMUM
    if ttl_seconds is not None and not low <= ttl_seconds <= high:
        raise invalid(field, f"must be between {low} and {high} seconds.")
    return ttl_seconds


def claim(
    credential: Credential,
    *,
    capabilities: list[str] | None = None,
    task_id: UUID | None = None,
    ttl_seconds: int | None = None,
    patient: bool = True,
) -> Row | None:
    """Claim the best ready task, or `task_id`. None when nothing is ready.

    Not patient: nothing but locked tasks is nothing, too.
    Returns the row of `statements.claim`. Raises `Refused` for a task that cannot be claimed.
    A row without a caller (unknown key) is the door's to explain: then `LookupError` is raised.
    """
    params: dict[str, Any] = {
        **credential.params,
        "capabilities": capabilities,
        "ttl": check_ttl(ttl_seconds),
        "task": task_id,
    }
    by_id = task_id is not None
    row = _attempt(credential, params, by_id=by_id)
    if row["run_id"] is None and _write_down_expired(row, task_id):
        row = _attempt(credential, params, by_id=by_id)
    if row["run_id"] is None and not by_id and patient:
        # An empty look that passed over locked rows proves nothing: wait for the first of them. When that
        # one is lost, look anew, until a look finds no candidate at all.
        row = _attempt(credential, params, by_id=False, patient=True)
        while row["run_id"] is None and row["missed"]:
            row = _attempt(credential, params, by_id=False)
            if row["run_id"] is None:
                row = _attempt(credential, params, by_id=False, patient=True)
    if row["run_id"] is not None:
        return row
    if task_id is not None:
        raise why_not(row, task_id)
    return None


def _attempt(credential: Credential, params: dict[str, Any], *, by_id: bool, patient: bool = False) -> Row:
    sql = statements.claim(caller=credential.clause, by_id=by_id, patient=patient)
    row = fetch(sql, params)
    if row is None:
        raise LookupError("no caller")
    if not row["within"]:
        raise invalid("capabilities", "must be among the capabilities that this principal has.")
    if row["run_id"] is None and not row["unlimited"]:
        return claim_limited(credential, params, row, by_id=by_id)
    return row


def claim_limited(credential: Credential, params: dict[str, Any], row: Row, *, by_id: bool) -> Row:
    """Claim where admission is limited: first lock what limits, then count in a statement that sees it all."""
    sql = statements.claim(caller=credential.clause, by_id=by_id, patient=True, limited=True)
    with transaction.atomic():
        hold_limits(row["organization_id"], row["caller_id"])
        return fetch(sql, params) or row


def hold_limits(organization_id: UUID, principal_id: UUID) -> None:
    """Lock what limits a principal's runs, so that a count of open runs stays true."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM coordination_principal WHERE id = %s AND max_concurrent_runs IS NOT NULL FOR NO KEY UPDATE",
            [principal_id],
        )
        cursor.execute(
            "SELECT id FROM coordination_capabilitylimit WHERE organization_id = %s ORDER BY id FOR NO KEY UPDATE",
            [organization_id],
        )


_ADMITTED = f"""WITH {statements.CALLER_BY_PRINCIPAL}
SELECT {statements.ADMITTED} AND {statements.PROFILE_ADMITTED} AS admitted
FROM caller c JOIN coordination_task t ON t.id = %(task)s
JOIN coordination_capabilityprofile f ON f.id = t.profile_id"""


def admits(task: Task, principal_id: UUID) -> bool:
    """True while one more run of the task by this principal is within the limits. They are held by the caller."""
    params = {**by_principal(principal_id).params, "capabilities": None, "task": task.pk}
    row = fetch(_ADMITTED, params)
    return row is not None and bool(row["admitted"])


def _write_down_expired(row: Row, task_id: UUID | None) -> int:
    """What a claim that found nothing does for the sweeper: the work of the dead may be ready."""
    return sweep_batch(task_id=task_id, organization_id=row["organization_id"])


def why_not(row: Row, task_id: UUID) -> Refused:
    """Why `task_id` could not be claimed: the refusal, with what it waits for."""
    task = (
        Task.objects.filter(pk=task_id, organization_id=row["organization_id"])
        .select_related("profile")
        .first()
    )
    if task is None:
        return Refused("NOT_FOUND")
    if task.status in ("done", "cancelled", "in_progress"):
        return Refused(
            "NOT_CLAIMABLE",
            why=f"it is {task.status.replace('_', ' ')}.",
            details={"state": task.status, "waits_for": []},
        )
    now = _clock()
    if (
        task.status == "todo"
        and task.reserved_until
        and task.reserved_until > now
        and task.reserved_for_id != row["caller_id"]
    ):
        return Refused(
            "RESERVED", until=stamp(task.reserved_until), details={"until": stamp(task.reserved_until)}
        )
    waits = waits_for(task, now=now, principal_id=row["caller_id"])
    waits += lacking(task, _capabilities(row))
    if not waits and row["unlimited"]:
        # It became free after we had looked.
        waits.append({"kind": "moment", "sentence": "Somebody held it a moment ago. Try again."})
    elif not waits:
        waits.append(NOT_ADMITTED)
    return Refused(
        "NOT_CLAIMABLE", why=waits[0]["sentence"], details={"state": task.status, "waits_for": waits}
    )


def lacking(task: Task, capabilities: Iterable[str]) -> list[dict[str, Any]]:
    """What the task waits for in somebody with these capabilities: nothing, or the ones that are missing."""
    missing = sorted(set(task.profile.capabilities) - set(capabilities))
    if not missing:
        return []
    sentence = f"It needs the capabilities {', '.join(missing)}."
    return [{"kind": "capabilities", "sentence": sentence, "missing": missing}]


def _capabilities(row: Row) -> list[str]:
    from .models import Principal

    return list(Principal.objects.values_list("capabilities", flat=True).get(pk=row["caller_id"]))


def _clock() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def waits_for(task: Task, *, now: Any = None, principal_id: UUID | None = None) -> list[dict[str, Any]]:
    """What has to happen before the task can be claimed: kind, a sentence and what it names."""
    now = now or _clock()
    waits: list[dict[str, Any]] = []
    for blocker in Blocker.objects.filter(task=task, closed_at=None):
        waits.append({"kind": blocker.kind, "sentence": blocker.sentence, "since": stamp(blocker.opened_at)})
    if task.status in ("todo", "blocked") and task.open_dependencies:
        names = ("depends_on__title", "depends_on__status")
        open_ones = TaskDependency.objects.filter(task=task, satisfied_at=None)
        for dependency in open_ones.select_related("depends_on").only(*names):
            other = dependency.depends_on
            waits.append(
                {
                    "kind": "dependency",
                    "sentence": f"It waits until “{other.title}” is done (now {other.status.replace('_', ' ')}).",
                    "task_id": f"task_{other.pk.hex}",
                }
            )
    for kind, until, sentence in (
        ("not_before", task.not_before, "It may not start before {until}."),
        ("backoff", task.backoff_until, "The last attempt failed; it pauses until {until}."),
        (
            "reservation",
            task.reserved_until if task.reserved_for_id != principal_id else None,
            "It is kept for somebody until {until}.",
        ),
        (
            "avoidance",
            task.avoided_until if task.avoided_id == principal_id else None,
            "A human took it back; it is not offered to you until {until}.",
        ),
    ):
        if task.status == "todo" and until is not None and until > now:
            waits.append(
                {"kind": kind, "sentence": sentence.format(until=stamp(until)), "until": stamp(until)}
            )
    return waits


def profile_for(organization_id: UUID, capabilities: list[str]) -> CapabilityProfile:
    """The profile row of a set of capabilities, made when it is new."""
    profile, _ = CapabilityProfile.objects.get_or_create(
        organization_id=organization_id, capabilities=sorted(set(capabilities))
    )
    return profile
