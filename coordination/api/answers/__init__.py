"""What the doors of coordination answer; importing this puts the shapes among the components."""

from . import holding, identity, work

__all__ = ["holding", "identity", "work"]
