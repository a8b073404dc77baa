"""What a door does between parsing and serialising: the transaction, its retry, idempotency."""

import hashlib
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
from django.db import OperationalError, transaction

from coordination.database import fetch
from coordination.leases import answer_repeated
from coordination.runs import leave_trace
from titen.errors import Refused, invalid

from .grants import granted_leases

Answer = tuple[int, Any]


def attempt[T](work: Callable[[], T]) -> T:
    """Do one piece of work: a deadlock is retried once; a refusal leaves its trace and what is true all the same."""
    try:
        return _traced(work)
    except OperationalError as problem:
        if not isinstance(problem.__cause__, psycopg.errors.DeadlockDetected):
            raise
    return _traced(work)


def _traced[T](work: Callable[[], T]) -> T:
    try:
        return work()
    except Refused as refused:
        leave_trace(refused)
        if refused.afterwards is not None:
            with transaction.atomic():
                refused.afterwards()
        raise


def transact[T](work: Callable[[], T]) -> T:
    """`attempt` a rule in a transaction of its own."""

    def whole() -> T:
        with transaction.atomic(durable=True):
            return work()

    return attempt(whole)


def idempotent(principal_id: UUID, key: str | None, request: Any, work: Callable[[], Answer]) -> Answer:
    """Do `work` once per key: a repeat gets the first answer, a repeat in flight 409, another body 422.

    Lock, look-up, work and stored answer are one transaction, so a crash leaves the key free.
    Refusals and empty answers change nothing and are not stored.
    """
    if key is None:
        return work()
    if not 1 <= len(key) <= 200 or not key.isprintable():
        raise invalid("Idempotency-Key", "must be 1 to 200 printable characters.")
    # The query has no say: its only parameter is `wait`, and a repeat may wait less.
    content = [request.method, request.path, request.data]
    fingerprint = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return transact(lambda: _answer_once(principal_id, key, fingerprint, work))


def _answer_once(principal_id: UUID, key: str, fingerprint: bytes, work: Callable[[], Answer]) -> Answer:
    lock = fetch(
        "SELECT pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0)) AS mine",
        {"name": f"{principal_id.hex}{key}"},
    )
    if not lock or not lock["mine"]:
        raise Refused(
            "CONFLICT",
            "A request with this Idempotency-Key is being answered. Wait a moment, then repeat it.",
            details={"reason": "in_flight"},
            retry_after=1,
        )
    stored = fetch(
        "SELECT fingerprint, status, body FROM coordination_storedanswer WHERE principal_id = %(principal)s AND key = %(key)s"
        " AND created_at > clock_timestamp() - interval '24 hours'",
        {"principal": principal_id, "key": key},
    )
    if stored is not None:
        if bytes(stored["fingerprint"]) != fingerprint:
            raise Refused("IDEMPOTENCY_MISMATCH")
        if leases := granted_leases(stored["body"]):
            answer_repeated(leases)
        return stored["status"], stored["body"]
    status, body = work()
    if status in (200, 201):
        fetch(
            "INSERT INTO coordination_storedanswer (principal_id, key, fingerprint, status, body)"
            " VALUES (%(principal)s, %(key)s, %(fingerprint)s, %(status)s, %(body)s)"
            " ON CONFLICT (principal_id, key) DO UPDATE SET fingerprint = excluded.fingerprint,"
            " status = excluded.status, body = excluded.body, created_at = clock_timestamp() RETURNING id",
            {
                "principal": principal_id,
                "key": key,
                "fingerprint": fingerprint,
                "status": status,
                "body": json.dumps(body),
            },
        )
    return status, body
