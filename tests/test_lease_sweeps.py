"""Leases that have run out are written down once each, many at a time."""

import time

import pytest

from coordination import leasing

from .cast import Agent
from .clockwork import sql
from .locking import together

pytestmark = pytest.mark.alone

MANY = """
WITH resources AS (
    INSERT INTO coordination_resource (organization_id, resource_type, resource_id, epoch)
    SELECT %s, 'bulk', n::text, 1 FROM generate_series(1, %s) n RETURNING id
)
INSERT INTO coordination_lease (organization_id, resource_id, principal_id, epoch, ttl_seconds, granted_because,
    granted_at, renewed_at, expires_at)
SELECT %s, id, %s, 1, 10, 'claim', clock_timestamp() - interval '20 s', clock_timestamp() - interval '20 s',
    clock_timestamp() - interval '10 s' FROM resources"""


def run_out(agent: Agent, count: int) -> None:
    """So many leases have run out, and nobody has written them down."""
    organization = agent.principal.organization_id
    sql(MANY, organization, count, organization, agent.principal.pk)


def expiries(agent: Agent) -> list[int]:
    """How many leases ended when their time was over, how many events say so, and of how many leases."""
    organization = agent.principal.organization_id
    return list(
        sql(
            "SELECT (SELECT count(*) FROM coordination_lease WHERE organization_id = %s"
            " AND end_reason = 'expired' AND ended_at = expires_at), count(*), count(DISTINCT lease_id)"
            " FROM coordination_event WHERE organization_id = %s AND kind = 'lease.expired'",
            organization,
            organization,
        )[0]
    )


def test_several_sweepers_at_once_write_each_expiry_once(agent: Agent) -> None:
    run_out(agent, 5000)
    together(*[leasing.sweep] * 3)
    # One may pass over what another still has, and stop; what is left is the next sweep's.
    leasing.sweep()
    assert expiries(agent) == [5000] * 3


def test_ten_thousand_expired_leases_are_written_down_in_one_sweep(agent: Agent) -> None:
    leasing.sweep()
    run_out(agent, 10_000)
    sql("ANALYZE coordination_lease, coordination_resource")
    began = time.monotonic()
    # And what of other tests has run out meanwhile.
    assert leasing.sweep() >= 10_000
    took = time.monotonic() - began
    print(f"10,000 expired leases: {took:.2f} s")
    assert took < 8
    assert expiries(agent) == [10_000] * 3
