"""What the recipient of effects is answered."""

from titen.api.answers import SHAPES, fields, flag, integer

SHAPES["Verification"] = fields(
    "Whether an epoch has standing.",
    {
        "valid": flag("True when the lease of that epoch is live now."),
        "current_epoch": integer("The last epoch given on the resource; 0 when it was never leased."),
    },
)
