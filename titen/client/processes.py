"""What a fork leaves to its child: connections of its own, and nothing of what its parent holds."""

import os
import weakref
from typing import Protocol

from .errors import WrongProcess


class Handle:
    """A run, a lease or an effect. It belongs to the process that made it: in a child of a fork every call
    raises `WrongProcess`, and leaving its block says nothing to the server."""

    def __init__(self) -> None:
        self._owner = os.getpid()

    @property
    def inherited(self) -> bool:
        """This process is a child of the one that made the handle. Asked first, before any lock: in the
        child a lock may be held by a thread that exists only in the parent."""
        return os.getpid() != self._owner

    def _refuse_inherited(self) -> None:
        if self.inherited:
            raise WrongProcess(
                f"{type(self).__name__} belongs to process {self._owner}, which this process was forked from. "
                "Nothing was sent. The client can be used here: claim or lease in this process.",
            )


class Renewed(Protocol):
    """What can be used in a child of a fork, too."""

    def after_fork(self) -> None:
        """Leave to the parent what is the parent's. Called in the child, before anything else runs there."""


_renewed: "weakref.WeakSet[Renewed]" = weakref.WeakSet()


def renew_after_fork(one: Renewed) -> None:
    """Have `one.after_fork()` called in each child of a fork, as long as it lives."""
    _renewed.add(one)


def _after_fork() -> None:
    for one in list(_renewed):
        one.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)
