"""Handoffs: offering a subject to another principal, and taking what is offered."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal, cast

from .connection import Connection, id_of
from .errors import Conflict, NotClaimable, NotFound, Reserved
from .hold import take
from .keeping import log
from .lease_clock import now
from .run import Run
from .shapes import Handoff
from .transport import given


class HandoffCalls(Connection):
    """What an agent asks of a server about handoffs. A run offers its own task: `Run.hand_off`."""

    def handoff(
        self,
        to: str,
        *,
        subject_id: str,
        message: str = "",
        checkpoint_id: str | None = None,
        context_id: str | None = None,
        expires_at: datetime | None = None,
        expires_in_seconds: int | None = None,
    ) -> Handoff:
        """Offer a subject to a principal, by name or id, for a day unless its end is given. The checkpoint is
        pinned in the version it has now; the target may read it, and the pack, from now on."""
        if expires_at is not None and expires_at.utcoffset() is None:
            raise ValueError("expires_at needs a time zone")
        body = given(
            to_principal=to,
            subject_id=subject_id,
            message=message,
            checkpoint_id=checkpoint_id,
            context_id=context_id,
            expires_at=expires_at.isoformat() if expires_at else None,
            expires_in_seconds=expires_in_seconds,
        )
        return cast(Handoff, self.post("/v1/handoffs", body))

    def handoffs(
        self, box: Literal["inbox", "sent"] = "inbox", *, status: str | None = None
    ) -> Iterator[Handoff]:
        """The pending ones that are addressed to this agent, or all that it has sent; the newest first."""
        return self._each("/v1/handoffs", "handoffs", box=box, status=status)

    def read_handoff(self, handoff: Handoff | str) -> Handoff:
        """One as it stands now, for its sender and its target."""
        return cast(Handoff, self.get(_path(handoff)))

    def accept(self, handoff: Handoff | str, *, ttl_seconds: int | None = None) -> Run | None:
        """Take what is offered: a run of the task, as a claim gives it, or None where none is offered.

        Raises `Conflict` when somebody else has the task by now or it is over, `NotClaimable` or
        `Reserved` when this agent can't have it now, `NotFound` when the handoff has ended already, and
        `LeaseLost` if the answer took so long that the lease was gone again.
        """
        body = given(status="accepted", ttl_seconds=ttl_seconds)
        sent_at = now()
        claim = self.post(f"{_path(handoff)}/resolve", body)["claim"]
        if claim is None:
            return None
        return Run(self._transport, claim, take(self._transport, claim, sent_at), opened=self._remember)

    def accept_next(self, *, ttl_seconds: int | None = None) -> Run | None:
        """Accept the task that has been offered longest of those that this agent can have now, if any."""
        for handoff in reversed(list(self.handoffs())):
            if handoff["task_id"] is not None:
                try:
                    return self.accept(handoff, ttl_seconds=ttl_seconds)
                except (NotClaimable, Reserved, Conflict, NotFound) as error:
                    log.debug("%s is not to be had now: %s", handoff["handoff_id"], error)
        return None

    def reject(self, handoff: Handoff | str, reason: str = "") -> Handoff:
        """Say no, once. A task stays with whoever has it."""
        body = {"status": "rejected", "reason": reason}
        return cast(Handoff, self.post(f"{_path(handoff)}/resolve", body))

    def withdraw(self, handoff: Handoff | str, reason: str = "") -> Handoff:
        """Take one's own offer back. Raises `NotFound` when it has ended; `details["state"]` says how."""
        return cast(Handoff, self.post(f"{_path(handoff)}/withdraw", {"reason": reason}))


def _path(handoff: Handoff | str) -> str:
    return f"/v1/handoffs/{id_of(handoff, 'handoff_id')}"
