"""What the doors of coordination answer; importing this puts the shapes among the components."""

from . import fencing, holding, identity, keeping, leases, passing, webhooks, work

__all__ = ["fencing", "holding", "identity", "keeping", "leases", "passing", "webhooks", "work"]
