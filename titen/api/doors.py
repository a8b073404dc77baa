"""What a door does between parsing and serialising: the transaction, its retry, idempotency."""

import hashlib
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
from django.db import OperationalError, transaction

from coordination.callers import Caller
from coordination.database import fetch
from coordination.keyring import open_sealed, seal
from coordination.leases import answer_repeated
from coordination.locks import hold_member
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


def transact[T](work: Callable[[], T], *, person: Caller | None = None) -> T:
    """`attempt` a rule in a transaction of its own; a person keeps the role in it that the door has read."""

    def whole() -> T:
        with transaction.atomic(durable=True):
            if person is not None:
                hold_member(person)
            return work()

    return attempt(whole)


def idempotent(
    principal_id: UUID,
    key: str | None,
    request: Any,
    work: Callable[[], Answer],
    *,
    secret_for: UUID | None = None,
) -> Answer:
    """Do `work` once per key: a repeat gets the first answer, a repeat in flight 409, another body 422.

    Lock, look-up, work and stored answer are one transaction, so a crash leaves the key free.
    Refusals and empty answers change nothing and are not stored. `secret_for` is the API key whose request
    is answered with a secret: the answer is stored sealed, and for another API key it is another request.
    """
    if key is None:
        return work()
    if not 1 <= len(key) <= 200 or not key.isprintable():
        raise invalid("Idempotency-Key", "must be 1 to 200 printable characters.")
    # The query has no say: its only parameter is `wait`, and a repeat may wait less.
    content = [request.method, request.path, request.data]
    if secret_for is not None:
        content.append(secret_for.hex)
    fingerprint = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    key_digest = hashlib.sha256(key.encode()).digest()
    sealed = secret_for is not None
    return transact(lambda: _answer_once(principal_id, key_digest, fingerprint, work, sealed=sealed))


def _answer_once(
    principal_id: UUID, key_digest: bytes, fingerprint: bytes, work: Callable[[], Answer], *, sealed: bool
) -> Answer:
    lock = fetch(
        "SELECT pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0)) AS mine",
        {"name": f"{principal_id.hex}{key_digest.hex()}"},
    )
    if not lock or not lock["mine"]:
        raise Refused(
            "CONFLICT",
            "A request with this Idempotency-Key is being answered. Wait a moment, then repeat it.",
            details={"reason": "in_flight"},
            retry_after=1,
        )
    stored = fetch(
        "SELECT fingerprint, status, body, sealed_body FROM coordination_storedanswer"
        " WHERE principal_id = %(principal)s AND key_digest = %(key)s"
        " AND created_at > clock_timestamp() - interval '24 hours'",
        {"principal": principal_id, "key": key_digest},
    )
    if stored is not None:
        if bytes(stored["fingerprint"]) != fingerprint:
            raise Refused("IDEMPOTENCY_MISMATCH")
        if stored["sealed_body"] is not None:
            return stored["status"], json.loads(open_sealed(bytes(stored["sealed_body"])))
        if leases := granted_leases(stored["body"]):
            answer_repeated(leases)
        return stored["status"], stored["body"]
    status, body = work()
    if status in (200, 201):
        text = json.dumps(body)
        fetch(
            "INSERT INTO coordination_storedanswer (principal_id, key_digest, fingerprint, status, body, sealed_body)"
            " VALUES (%(principal)s, %(key)s, %(fingerprint)s, %(status)s, %(body)s, %(sealed)s)"
            " ON CONFLICT (principal_id, key_digest) DO UPDATE SET fingerprint = excluded.fingerprint,"
            " status = excluded.status, body = excluded.body, sealed_body = excluded.sealed_body,"
            " created_at = clock_timestamp() RETURNING id",
            {
                "principal": principal_id,
                "key": key_digest,
                "fingerprint": fingerprint,
                "status": status,
                "body": None if sealed else text,
                "sealed": seal(text.encode()) if sealed else None,
            },
        )
    return status, body
