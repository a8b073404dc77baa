"""The way in: a server, a key, and what an agent asks of it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

from .checkpoints import CheckpointCalls
from .effects import EffectCalls
from .following import EventCalls
from .handoffs import HandoffCalls
from .hold import take
from .leases import HeldLease, HeldLeases, Resource, acquire
from .messages import MessageCalls
from .run import Run
from .shapes import Claim, Comment, Principal, Task, Verification
from .transport import given, new_key
from .waiting import LONGEST_WAIT, rounds
from .worker import work

INBOX_PAUSE = 3
"""Seconds that a worker claims for before it looks at its inbox again."""


class Titen(HandoffCalls, CheckpointCalls, MessageCalls, EventCalls, EffectCalls):
    """A connection to one Titen server under one API key. Safe for threads; close it when done.

    base_url: where the server is, without `/v1`: `http://127.0.0.1:8000`.
    key: the API key, `titen_sk_…`.
    timeout: seconds to wait for one answer (beyond what a call asks the server to wait).
    retry_for: seconds to repeat a call that got no answer, one that is not Titen's (a proxy's page), a 5xx
        or 429. Every write carries an `Idempotency-Key`, so that the server does a repeated one once. What
        is written under a lease waits for a server that is not ready as long as the lease lives.

    A child of a fork can use it: it gets connections of its own, and holds none of its parent's leases.

    All calls raise `TitenError` or one of its classes.
    """

    def claim(
        self,
        capabilities: Sequence[str] | None = None,
        *,
        task_id: str | None = None,
        ttl_seconds: int | None = None,
        wait: int = 0,
    ) -> Run | None:
        """Claim the most urgent ready task, or the one with `task_id`; None when there is none.

        capabilities: what to claim for, within the agent's own; all of them if not given.
        ttl_seconds: the lease's length; the task's, then the organization's, if not given.
        wait: seconds to wait for work, any number.

        Raises `NotClaimable` or `Reserved` for a `task_id` that can't be had now, and `LeaseLost` if
        the answer took so long that the lease was gone again.
        """
        body = given(capabilities=_listed(capabilities), task_id=task_id, ttl_seconds=ttl_seconds)
        key = new_key()
        for sent_at, seconds in rounds(self._transport, wait):
            claim: Claim | None = self._transport.call("POST", "/v1/tasks/claim", body, key=key, wait=seconds)
            if claim is not None:
                return Run(
                    self._transport, claim, take(self._transport, claim, sent_at), opened=self._remember
                )
        return None

    def work(
        self,
        handler: Callable[[Run], object],
        *,
        capabilities: Sequence[str] | None = None,
        ttl_seconds: int | None = None,
        wait: int = LONGEST_WAIT,
        stop: threading.Event | None = None,
        until_empty: bool = False,
        handoffs: bool = False,
    ) -> int:
        """Claim and handle tasks one by one until `stop` is set; returns how many were handled.

        `handler(run)` is called inside the run's block and ends it: `run.complete(...)`, `run.fail`
        or `run.release`, whose request also claims the next task. What it returns is not looked at;
        a run it leaves open is released, one it leaves by an exception fails, and the loop goes on.
        Outages are waited out, and answers of a proxy, too: what is no failure of the work (see `Run`)
        releases it, and the next claim waits. Where too many approvals are pending it waits until a human
        has ended one. A refused claim (`Unauthenticated`, `Forbidden`, …) ends the loop.

        wait: seconds that one claim waits for work, at most how long `stop` may take.
        until_empty: return when a claim finds nothing.
        handoffs: accept tasks that are offered to this agent, too, and before it claims others: the inbox
            is looked at after each task, and every few seconds. An offer need not be of `capabilities`;
            what this agent can't have stays offered.
        """
        names = _listed(capabilities)
        if handoffs:
            wait = min(wait, INBOX_PAUSE)

        def claim() -> Run | None:
            offered = self.accept_next(ttl_seconds=ttl_seconds) if handoffs else None
            return offered or self.claim(names, ttl_seconds=ttl_seconds, wait=0 if until_empty else wait)

        return work(
            claim,
            # A claim that came with the end of a run would be done before what is offered.
            None if handoffs else given(capabilities=names, ttl_seconds=ttl_seconds),
            handler,
            lambda approval_id: self.get(f"/v1/approvals/{approval_id}")["status"] == "pending",
            stop=stop or threading.Event(),
            until_empty=until_empty,
        )

    def lease(
        self,
        resource_type: str,
        resource_id: str,
        *,
        ttl_seconds: int | None = None,
        purpose: str = "",
        wait: int = 0,
    ) -> HeldLease:
        """Lease a resource, for a `with` block that renews it and gives it back.

        ttl_seconds: the organization's if not given. purpose: shown to its admins, not to whom it is in
        the way. wait: seconds to wait while another principal holds it, any number.

        Raises `Conflict` when it is not to be had in that time; `details["expires_at"]` says until when
        it is leased. Acquiring again what this agent holds ends its earlier lease, also another process's.
        """
        body = given(
            resource_type=resource_type, resource_id=resource_id, ttl_seconds=ttl_seconds, purpose=purpose
        )
        (held,) = acquire(self._transport, "/v1/leases", body, wait=wait, opened=self._remember)
        return held

    def lease_all(
        self,
        resources: Sequence[Resource],
        *,
        ttl_seconds: int | None = None,
        purpose: str = "",
        wait: int = 0,
    ) -> HeldLeases:
        """Lease several resources, each a (type, id), or none of them: see `lease`."""
        named = [{"resource_type": kind, "resource_id": name} for kind, name in resources]
        body = given(resources=named, ttl_seconds=ttl_seconds, purpose=purpose)
        return HeldLeases(
            acquire(self._transport, "/v1/leases/batch", body, wait=wait, opened=self._remember)
        )

    def create_task(self, title: str, **fields: Any) -> Task:
        """Create a task. Fields: description, priority, required_capabilities, payload, secret_refs,
        depends_on, not_before, max_attempts, lease_ttl_seconds."""
        return cast(Task, self.post("/v1/tasks", {"title": title, **fields}))

    def task(self, task_id: str) -> Task:
        """A task as it stands, with `standing` (who holds it, until when) and `waits_for`."""
        return cast(Task, self.get(f"/v1/tasks/{task_id}"))

    def comment(self, task_id: str, body: str) -> Comment:
        """Say something on a task's page. Blocks nothing."""
        return cast(Comment, self.post(f"/v1/tasks/{task_id}/comments", {"body": body}))

    def principal(self) -> Principal:
        """Who this key belongs to, and what it may do."""
        return cast(Principal, self.get("/v1/principal"))

    def verify(self, resource_type: str, resource_id: str, epoch: int) -> Verification:
        """Whether the lease of this epoch is live now: what a recipient of effects asks, with a key that
        has the scope `fencing:verify`. A task is the resource `task` with its id. See `titen.client.fencing`
        for a check without a request."""
        body = {"resource_type": resource_type, "resource_id": resource_id, "epoch": epoch}
        return cast(Verification, self.post("/v1/fencing/verify", body))


def _listed(names: Sequence[str] | None) -> list[str] | None:
    # A lone string is a sequence of strings too, and would ask for one capability per letter.
    if isinstance(names, str):
        raise TypeError("capabilities is a list of names")
    return None if names is None else list(names)
