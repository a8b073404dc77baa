"""Celery jobs of approvals."""

import logging
from uuid import UUID

from celery import shared_task
from django.db import OperationalError
from psycopg.errors import DeadlockDetected, LockNotAvailable

from coordination.database import fetch_all

from .decisions import expire as expire_one

logger = logging.getLogger("titen.approvals")

# In order of their ids, and on from the last one: what can't be expired now holds up nothing behind it.
_DUE = """SELECT id, organization_id FROM approvals_approval
WHERE status = 'pending' AND expires_at <= clock_timestamp() AND id > %(after)s ORDER BY id LIMIT 500"""


@shared_task(name="approvals.jobs.expire")
def expire() -> int:
    """Record the approvals that have run out; how many. What uses an approval judges its time itself."""
    count, after = 0, UUID(int=0)
    while due := fetch_all(_DUE, {"after": after}):
        count += sum(_expire(row["id"], row["organization_id"]) for row in due)
        after = due[-1]["id"]
    return count


def _expire(approval_id: UUID, organization_id: UUID) -> bool:
    try:
        return expire_one(approval_id, organization_id)
    except OperationalError as problem:
        # Somebody holds its task. Anything else is the database's trouble, and every row's.
        if not isinstance(problem.__cause__, LockNotAvailable | DeadlockDetected):
            raise
    except Exception:
        logger.exception("approval %s could not be expired; the next sweep tries again", approval_id)
    return False
