"""What the holder of a run does: heartbeat, complete, fail, release; and why it is refused."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.db import OperationalError, connection, transaction

from titen.api.ids import public_id
from titen.errors import Refused, invalid

from . import endings, events, news, participants, standing, statements
from .callers import Credential
from .claims import check_ttl, claim
from .database import Row, fetch, fetch_all
from .models import Run
from .versions import WORK, add_version, weigh

# A printed time is that much off at most.
PRINTED_WITHIN = timedelta(milliseconds=1)

_SATISFY = """
WITH freed AS (
    UPDATE coordination_taskdependency SET satisfied_at = clock_timestamp()
    WHERE depends_on_id = %(task)s AND satisfied_at IS NULL
    RETURNING task_id
), held AS (
    SELECT id FROM coordination_task WHERE id IN (SELECT task_id FROM freed) ORDER BY id FOR NO KEY UPDATE
)
UPDATE coordination_task t SET open_dependencies = t.open_dependencies - 1
FROM held WHERE t.id = held.id RETURNING t.id"""


def heartbeat(
    credential: Credential,
    run_id: UUID,
    *,
    epoch: int,
    progress: int | None = None,
    status: str | None = None,
    ttl_seconds: int | None = None,
    since: datetime | None = None,
) -> Row:
    """Renew the lease of a run and note its progress (0-100) and status line.

    Returns the renewed lease with `directives`, and the `resolved_approvals` and `answers` since the run's
    last heartbeat, or since an earlier moment: the one of the last answer that the caller has received.
    After the lease's expiry it is refused, even if nobody took over.
    """
    params = {
        **credential.params,
        "capabilities": None,
        "run": run_id,
        "epoch": epoch,
        "progress": progress,
        "status": status,
        "ttl": check_ttl(ttl_seconds),
    }
    row = fetch(statements.heartbeat(caller=credential.clause), params)
    if row is None:
        raise refusal(credential, run_id, epoch, "heartbeat")
    row["directives"] = ["pause"] if row["pause_requested_at"] else []
    row.update(resolved_approvals=[], answers=[], truncated=[], more={})
    if row["has_asked"]:
        # Whoever decides or answers holds the lease's row until the commit, as this does: what is not older
        # than the last renewal was not told then.
        told = row["previous_at"] if since is None else since - PRINTED_WITHIN
        row.update(news.since(row["task_id"], told, until=row["server_time"]))
    return row


def complete(
    credential: Credential,
    run_id: UUID,
    *,
    epoch: int,
    summary: str = "",
    result: Any = None,
    evidence: list[Any] | None = None,
    by_human: bool = False,
    **following: Any,
) -> Row:
    """End a run with success. Refused in jeopardy, and while an effect has no outcome."""
    return _end(
        "complete",
        credential,
        run_id,
        epoch,
        {
            "summary": summary,
            "result": None if result is None else json.dumps(result),
            "evidence": json.dumps(evidence or []),
            "certain": not by_human,
        },
        **following,
    )


def fail(
    credential: Credential, run_id: UUID, *, epoch: int, error: str, retryable: bool = True, **following: Any
) -> Row:
    """End a run without success: the task comes back after a pause, or is blocked."""
    return _end("fail", credential, run_id, epoch, {"error": error, "retryable": retryable}, **following)


def release(
    credential: Credential,
    run_id: UUID,
    *,
    epoch: int,
    reason: str = "",
    checkpoint: Any = None,
    **following: Any,
) -> Row:
    """Give the task back; it counts as no attempt. A checkpoint stays for the next run, as its next version."""
    if checkpoint is None:
        return _end("release", credential, run_id, epoch, {"reason": reason}, **following)
    claim_next = following.pop("claim_next", False)
    with transaction.atomic():
        row = _end("release", credential, run_id, epoch, {"reason": reason, "leaves": True}, **following)
        run = Run.objects.get(pk=run_id)
        add_version(
            run.organization_id,
            run.principal_id,
            subject_id=public_id("task", run.task_id),
            kind=WORK,
            state=checkpoint,
            state_hash=weigh(checkpoint, field="checkpoint"),
            run=run,
        )
    if claim_next:
        row["next"] = _claim_next(credential, **following)
    return row


def _end(
    verb: str,
    credential: Credential,
    run_id: UUID,
    epoch: int,
    extra: dict[str, Any],
    *,
    claim_next: bool = False,
    capabilities: list[str] | None = None,
    ttl_seconds: int | None = None,
) -> Row:
    """End a run; with `claim_next` the row's `next` is what the claim answers, or None."""
    params = {
        "leaves": False,
        **credential.params,
        "run": run_id,
        "epoch": epoch,
        "capabilities": capabilities,
        "ttl": check_ttl(ttl_seconds),
        "frees": False,
        "settles": False,
        **extra,
    }
    row = fetch(endings.end_run(verb, caller=credential.clause, claim_next=claim_next), params)
    if row is not None:
        if claim_next:
            row["next"] = (
                row
                if row["run_id"]
                else _claim_next(credential, capabilities=capabilities, ttl_seconds=ttl_seconds)
            )
        return row
    row = (_complete_and_free if verb == "complete" else _end_and_settle)(verb, credential, params)
    if row is not None:
        if claim_next:
            row["next"] = _claim_next(credential, capabilities=capabilities, ttl_seconds=ttl_seconds)
        return row
    raise refusal(
        credential,
        run_id,
        epoch,
        verb,
        capabilities=capabilities,
        certain=params.get("certain", True),
    )


def _claim_next(credential: Credential, **wishes: Any) -> Row | None:
    """The next claim, behind the end of a run. That end stands whatever holds the next task: None while it is locked."""
    try:
        with transaction.atomic():
            return claim(credential, patient=False, **wishes)
    except OperationalError as problem:
        if not isinstance(problem.__cause__, psycopg.errors.LockNotAvailable):
            raise
    return None


def _end_and_settle(verb: str, credential: Credential, params: dict[str, Any]) -> Row | None:
    """End a run whose effects have no outcome yet: they become unknown with it."""
    with transaction.atomic():
        row = fetch(endings.end_run(verb, caller=credential.clause), {**params, "settles": True})
        if row is not None:
            participants.run_ended([row["ended_run_id"]])
    return row


def _complete_and_free(verb: str, credential: Credential, params: dict[str, Any]) -> Row | None:
    """Complete a task that others wait for, or that has grants which nobody used: those end with it.

    Whoever makes a dependent counts itself on this task's row. So that count is true once the row is
    locked, but the dependents may be younger than the snapshot that was taken before the wait for
    the lock: they are freed in a statement of their own.
    """
    with transaction.atomic():
        row = fetch(endings.end_run(verb, caller=credential.clause), {**params, "frees": True})
        if row is not None:
            fetch_all(_SATISFY, {"task": row["ended_task_id"]})
            participants.round_ended(
                row["ended_task_id"], because="completed", actor_id=row["ended_principal_id"]
            )
    return row


_STANDING = f"""WITH {{caller}}
SELECT c.principal_id AS caller_id, c.organization_id, c.within, r.id AS run_id, r.principal_id, r.status AS run_status,
    r.task_id, t.status AS task_status, t.open_effects, l.id AS lease_id, l.epoch, l.ended_at, l.end_reason,
    l.renewed_at, l.ttl_seconds, l.jeopardy_declared_at, k.at,
    l.expires_at <= k.at AS expired, {statements.JEOPARDY.format(at="k.at")} AS jeopardy
FROM caller c CROSS JOIN (SELECT clock_timestamp() AS at) k
LEFT JOIN coordination_run r ON r.id = %(run)s AND r.organization_id = c.organization_id
LEFT JOIN coordination_task t ON t.id = r.task_id LEFT JOIN coordination_lease l ON l.id = r.lease_id"""


def refusal(
    credential: Credential,
    run_id: UUID,
    epoch: int,
    verb: str,
    *,
    capabilities: list[str] | None = None,
    certain: bool = True,
) -> Refused:
    """Why a holder's verb was refused; it carries the trace to leave. The first that is true answers.

    `capabilities` is what it wished for the next claim; not `certain`: jeopardy was no obstacle.
    """
    row = fetch(
        _STANDING.format(caller=credential.clause),
        {**credential.params, "capabilities": capabilities, "run": run_id},
    )
    if row is None:
        raise LookupError("no caller")
    if not row["within"]:
        return invalid("capabilities", "must be among the capabilities that this principal has.")
    row["jeopardy"] = row["jeopardy"] and certain
    refused = standing.judge(row, epoch, verb)
    if row["run_id"] is not None:
        refused.trace = (row, verb)
    return refused


def leave_trace(refused: Refused) -> None:
    """Leave one event per run, code and minute, so that an audit sees the attempts of who has lost.

    Called by the door once the refused transaction is undone.
    """
    if refused.trace is None:
        return
    row, verb = refused.trace
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{row['run_id']}{refused.code}"]
            )
            cursor.execute(
                "SELECT EXISTS (SELECT FROM coordination_event WHERE run_id = %s AND kind = 'run.refused'"
                " AND data ->> 'code' = %s AND created_at >= date_trunc('minute', clock_timestamp()))",
                [row["run_id"], refused.code],
            )
            if cursor.fetchone()[0]:
                return
        events.record(
            "run.refused",
            organization_id=row["organization_id"],
            actor_id=row["caller_id"],
            task_id=row["task_id"],
            run_id=row["run_id"],
            lease_id=row["lease_id"],
            epoch=row["epoch"],
            code=refused.code,
            verb=verb,
        )
