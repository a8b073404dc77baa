"""Celery jobs of approvals."""

from uuid import UUID

import psycopg
from celery import shared_task
from django.db import OperationalError

from coordination.database import fetch_all

from .decisions import expire as expire_one

_DUE = """SELECT id, organization_id FROM approvals_approval
WHERE status = 'pending' AND expires_at <= clock_timestamp() ORDER BY id LIMIT 500"""


@shared_task(name="approvals.jobs.expire")
def expire() -> int:
    """Record the approvals that have run out; how many. What uses one judges its time itself.

    One whose task stays locked is left to the next run, and holds up no other.
    """
    return sum(_expire(row["id"], row["organization_id"]) for row in fetch_all(_DUE, {}))


def _expire(approval_id: UUID, organization_id: UUID) -> bool:
    try:
        return expire_one(approval_id, organization_id)
    except OperationalError as problem:
        if not isinstance(problem.__cause__, psycopg.errors.LockNotAvailable):
            raise
    return False
