"""Celery jobs of approvals."""

from celery import shared_task

from coordination.database import fetch_all

from .decisions import expire as expire_one

_DUE = """SELECT id, organization_id FROM approvals_approval
WHERE status = 'pending' AND expires_at <= clock_timestamp() ORDER BY id LIMIT 500"""


@shared_task(name="approvals.jobs.expire")
def expire() -> int:
    """Write down the approvals that have run out; how many. What uses one judges its time itself."""
    return sum(expire_one(row["id"], row["organization_id"]) for row in fetch_all(_DUE, {}))
