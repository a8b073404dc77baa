"""Constraint names -> what they mean to the caller. A promise of the database becomes an answer here."""

from typing import Any

from django.db import IntegrityError

from titen.errors import Refused

# name of the constraint -> (code, message)
MEANINGS: dict[str, tuple[str, str]] = {
    "one_live_lease_per_resource": ("CONFLICT", "Somebody else took it at the same moment. Claim again."),
    "one_open_run_per_task": ("CONFLICT", "Somebody else took it at the same moment. Claim again."),
    "epoch_is_unique_per_resource": ("CONFLICT", "Somebody else took it at the same moment. Claim again."),
    "one_pending_handoff_per_task": (
        "CONFLICT",
        "The task is offered already. Withdraw that handoff first, or wait until it is resolved.",
    ),
    "effect_key_is_used_once": (
        "CONFLICT",
        "This effect_key was used at the same moment. Read that effect; another attempt needs a key of its own.",
    ),
    "a_tool_is_listed_once_per_rank": (
        "CONFLICT",
        "The tool list has a line with these patterns and this rank already. Change that one.",
    ),
    "principal_name_is_unique": (
        "CONFLICT",
        "A principal with this name exists already. Choose another name.",
    ),
    "one_open_blocker_per_reason": ("CONFLICT", "The task is blocked for this reason already."),
    "a_dependency_is_named_once": ("VALIDATION_ERROR", "depends_on: names a task twice. Name each once."),
    "priority_is_between_minus_100_and_100": ("VALIDATION_ERROR", "priority: must be between -100 and 100."),
}


def refusal_for(problem: IntegrityError) -> Refused | None:
    """The refusal for a violated constraint, or None for one that no input should reach."""
    cause: Any = problem.__cause__
    name = getattr(getattr(cause, "diag", None), "constraint_name", None)
    if name not in MEANINGS:
        return None
    code, message = MEANINGS[name]
    return Refused(code, message, details={"constraint": name})
