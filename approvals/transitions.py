"""Every move of approvals and effects, as `name: sources -> target`. Tests and 409 answers are made from it."""

from titen.lifecycle import Machine

from .models import ApprovalStatus, EffectStatus

APPROVAL = Machine(
    "approval",
    ApprovalStatus.values,
    {
        "decide": (["pending"], "decided"),
        "expire": (["pending"], "expired"),
        "cancel": (["pending"], "cancelled"),
        # A grant is used once, by the effect that it was for. A human who withdraws it makes it void, and so do a
        # takeover and the end or reopening of its task.
        "consume": (["decided"], "consumed"),
        "void": (["decided"], "void"),
    },
)

# The moves are named by what is reported. Whoever knows better later says so; what succeeded can be undone.
EFFECT = Machine(
    "effect",
    EffectStatus.values,
    {
        "succeeded": (["authorized", "unknown"], "succeeded"),
        "failed": (["authorized", "unknown"], "failed"),
        "unknown": (["authorized"], "unknown"),
        "compensated": (["authorized", "unknown", "succeeded"], "compensated"),
    },
)
