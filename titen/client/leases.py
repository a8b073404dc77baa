"""Leases on anything that has a name: held while a block runs, renewed by a thread, given back at its end."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, cast

from .effect_shapes import Kind
from .effects import Authorizer, Effect, as_action
from .errors import Conflict, LeaseLost, NotFound, TitenError
from .keeping import Keeping, confirmed, log
from .lease_clock import LeaseState
from .processes import Handle
from .shapes import GrantedLease, Lease
from .transport import INTERRUPTED_BUDGET, Transport, given, new_key
from .waiting import rounds

type Resource = tuple[str, str]


class _Grip(Keeping):
    """The renewals of one lease."""

    def __init__(self, transport: Transport, granted: GrantedLease, sent_at: float) -> None:
        super().__init__(transport, granted["lease_id"], granted["ttl_seconds"], sent_at)
        self.path = _path(granted)

    def renew(self, ttl_seconds: int | None = None, *, signed: bool = False) -> Lease:
        """One renewal now, one attempt."""

        def send(patience: float) -> tuple[Lease, float]:
            body = given(ttl_seconds=ttl_seconds, sequencer=signed or None)
            answer = cast(Lease, self._transport.once("PATCH", self.path, body, timeout=patience))
            return answer, answer["ttl_seconds"]

        return self._attempt(send)


class HeldLease(Handle):
    """A lease on one resource. Enter it: it is renewed from a thread at a third of its time, and released
    at the end of the block.

    While it is held everything is allowed; in jeopardy `renew` and `release`, but not what `guard`
    protects; when it is lost nothing is sent any more, it is never acquired again by itself, and leaving
    the block raises `LeaseLost`. If the server cannot be reached at the end, the lease runs out.

    A lease belongs to the process that acquired it. In a child of a fork calls raise `WrongProcess`, and
    leaving the block releases nothing.
    """

    def __init__(
        self,
        transport: Transport,
        granted: GrantedLease,
        sent_at: float,
        *,
        opened: Callable[["HeldLease"], None],
    ) -> None:
        super().__init__()
        self.lease_id = granted["lease_id"]
        self.resource_type = granted["resource_type"]
        self.resource_id = granted["resource_id"]
        self.epoch = granted["epoch"]
        self._transport = transport
        self._grip = confirmed(
            lambda moment: _Grip(transport, granted, moment), transport, granted["ttl_seconds"], sent_at
        )
        self._opened = opened
        self._entered = False
        self._released = False
        self._one_end = threading.Lock()
        self._authorizer = Authorizer(transport, self._require, self._budget)

    def __repr__(self) -> str:
        name = f"{self.resource_type}/{self.resource_id}"
        return f"<HeldLease {self.lease_id} on {name}, epoch {self.epoch}, {self.state}>"

    @property
    def state(self) -> LeaseState:
        """held, jeopardy or lost by the local clock; ended once it was released."""
        if self.inherited:
            return LeaseState.LOST
        return LeaseState.ENDED if self._released else self._grip.clock.state

    @property
    def remaining_seconds(self) -> float:
        """Seconds until it is lost if no renewal is acknowledged any more."""
        return 0.0 if self.inherited else self._grip.clock.remaining_seconds

    def guard(self) -> None:
        """Call right before each act on the world. Raises `LeaseInJeopardy` or `LeaseLost`."""
        self._require(certain=True)

    def renew(self, *, ttl_seconds: int | None = None) -> Lease:
        """Renew now, one attempt. Needed only outside of the block, or to change the ttl."""
        self._require(certain=False)
        return self._grip.renew(ttl_seconds)

    def sequencer(self) -> str:
        """A signed statement of this lease, to send along with effects (`titen.client.fencing`). It is good
        until the lease that one renewal, made now, renews runs out."""
        self._require(certain=False)
        return self._grip.renew(signed=True)["sequencer"]

    def authorize(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        effect_key: str,
        server: str | None = None,
        kind: Kind | None = None,
    ) -> Effect:
        """Have one act authorized under this lease, right before it happens: see `Run.authorize`.

        Only what policy allows by itself: approvals belong to tasks, so that what needs one raises
        `ApprovalRequired`. `effect_key` can be used once on this resource, as there.
        """
        with self._grip.refusing():
            return self._authorizer.authorize(
                {"lease_id": self.lease_id, "epoch": self.epoch},
                as_action(tool, arguments, server, kind),
                effect_key=effect_key,
            )

    def release(self) -> None:
        """Give the resource back before the end of the block. Repeated until it is answered."""
        self._release()

    def __enter__(self) -> Self:
        self._refuse_inherited()
        if self._entered or self._released:
            raise RuntimeError("A lease is entered once.")
        self._entered = True
        try:
            self._opened(self)
            self._grip.start()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.inherited:
            return  # the lease is the parent's
        try:
            if not self._released:
                self._leave(error)
        finally:
            self._grip.stop()
            self._grip.join(1.0)

    def stop(self) -> None:
        """Stop renewing and wait for the thread. Ends nothing on the server: the lease runs out."""
        self._refuse_inherited()
        self._grip.stop()
        self._grip.join(self._transport.timeout)

    def _budget(self) -> float:
        return min(self._transport.retry_for, self._grip.clock.ttl_seconds)

    def _leave(self, error: BaseException | None) -> None:
        interrupted = error is not None and not isinstance(error, Exception)
        try:
            if interrupted:
                self._release(INTERRUPTED_BUDGET)
            else:
                self.release()
        except (TitenError, RuntimeError) as failure:
            if error is not None:
                error.add_note(f"titen: the server may not know that {self.lease_id} ended ({failure})")
            elif isinstance(failure, LeaseLost):
                raise
            else:
                log.warning("%r was not released and runs out by itself: %s", self, failure)

    def _require(self, *, certain: bool) -> None:
        self._refuse_inherited()
        if self._released:
            raise LeaseLost("This lease was released already. Nothing more is sent.")
        self._grip.require(certain=certain)

    def _release(self, budget: float | None = None) -> None:
        self._refuse_inherited()
        grip = self._grip
        with self._one_end:
            self._require(certain=False)
            with grip.settling():
                try:
                    self._transport.call(
                        "DELETE",
                        grip.path,
                        budget=self._budget() if budget is None else budget,
                        outlast=budget is None,
                        before=lambda: grip.require(certain=False),
                    )
                except NotFound as error:
                    # Released: the answer to an earlier attempt was lost.
                    if error.details.get("reason") != "released":
                        grip.clock.refused(error)
                        raise grip.clock.loss() from error
                self._released = True
                grip.stop()


class HeldLeases(Sequence[HeldLease]):
    """Leases on several resources, granted together: entered, guarded and left together."""

    def __init__(self, leases: list[HeldLease]) -> None:
        self._leases = leases
        self._entered = False

    def __getitem__(self, place: Any) -> Any:
        return self._leases[place]

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[HeldLease]:
        return iter(self._leases)

    def guard(self) -> None:
        """Call right before each act on the world. Raises unless all of them are held for certain."""
        for lease in self._leases:
            lease.guard()

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("Leases are entered once.")
        self._entered = True
        try:
            for lease in self._leases:
                lease.__enter__()
        except BaseException as error:
            # All of them or none: what was granted and not entered yet is given back, too.
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with contextlib.ExitStack() as leaving:
            for lease in reversed(self._leases):
                leaving.callback(lease.__exit__, kind, error, trace)


def acquire(
    transport: Transport,
    path: str,
    body: dict[str, Any],
    *,
    wait: int,
    opened: Callable[[HeldLease], None],
) -> list[HeldLease]:
    """Acquire what `body` names, waiting while somebody else holds it; the leases, in its order."""
    key = new_key()
    refusal: Conflict | None = None
    for sent_at, seconds in rounds(transport, wait):
        try:
            granted = transport.call("POST", path, body, key=key, wait=seconds)
        except Conflict as error:
            if "expires_at" not in error.details:
                raise
            refusal = error
        else:
            return _held(transport, granted.get("leases", [granted]), sent_at, opened)
    assert refusal is not None
    raise refusal


def _held(
    transport: Transport,
    granted: list[GrantedLease],
    sent_at: float,
    opened: Callable[[HeldLease], None],
) -> list[HeldLease]:
    """The leases as they are held now; none of them is kept when one can't be."""
    try:
        return [HeldLease(transport, lease, sent_at, opened=opened) for lease in granted]
    except BaseException as error:
        for lease in granted:
            try:
                transport.call("DELETE", _path(lease), budget=INTERRUPTED_BUDGET)
            except NotFound:
                pass  # it is the one that was lost
            except (TitenError, RuntimeError) as failure:
                error.add_note(
                    f"titen: {lease['lease_id']} was not released and runs out by itself ({failure})"
                )
        raise


def _path(lease: GrantedLease) -> str:
    return f"/v1/leases/{lease['lease_id']}"
