"""Admission: how many runs may be open at once, per principal and per capability."""

import re
from collections.abc import Iterable
from uuid import UUID

from titen.errors import invalid, not_found

from . import events
from .models import CapabilityLimit, Organization

CAPABILITY = re.compile(r"[a-z0-9][a-z0-9._:/-]{0,79}")
CONCURRENCY_MAX = 100_000


def check_capabilities(capabilities: Iterable[str], field: str = "capabilities") -> None:
    """Refuse what no task could ask for."""
    for capability in capabilities:
        if not CAPABILITY.fullmatch(capability):
            raise invalid(field, "must be lower-case letters, digits and . _ : / - (at most 80).")


def check_concurrency(max_concurrent_runs: int | None) -> None:
    """Refuse a number of runs out of range; None is no limit."""
    if max_concurrent_runs is not None and not 0 <= max_concurrent_runs <= CONCURRENCY_MAX:
        raise invalid("max_concurrent_runs", f"must be between 0 and {CONCURRENCY_MAX}.")


def limit_capability(
    organization: Organization,
    capability: str,
    max_concurrent_runs: int | None,
    *,
    actor_id: UUID | None = None,
    user_id: UUID | None = None,
) -> CapabilityLimit | None:
    """Let at most so many open runs need a capability (0: none); None lifts the limit, which must exist.

    What is open already goes on; only claims are held back.
    """
    check_capabilities([capability], "capability")
    check_concurrency(max_concurrent_runs)
    held = (
        CapabilityLimit.objects.select_for_update(no_key=True)
        .filter(organization=organization, capability=capability)
        .first()
    )
    was = held.max_concurrent_runs if held else None
    limit = None
    if max_concurrent_runs is not None:
        limit, _ = CapabilityLimit.objects.update_or_create(
            organization=organization,
            capability=capability,
            defaults={"max_concurrent_runs": max_concurrent_runs},
        )
    elif held is not None:
        held.delete()
    else:
        raise not_found()
    events.record(
        "limit.set",
        organization_id=organization.pk,
        actor_id=actor_id,
        user_id=user_id,
        capability=capability,
        was=was,
        now=max_concurrent_runs,
    )
    return limit
