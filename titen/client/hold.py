"""One claim, held: heartbeats that renew its lease and carry progress, and what may be done under it."""

from collections.abc import Callable
from typing import Any, cast

from .errors import HandedOff, TitenError, ValidationError
from .keeping import Keeping, confirmed
from .lease_clock import now
from .shapes import Claim, Heartbeat
from .text import one_line
from .transport import Pauses, Transport

STATUS_LIMIT = 200
PROGRESS_INTERVAL = 1.0
"""Seconds between two heartbeats that only report progress."""
LEAST_PATIENCE = 1.0
"""Seconds that one last heartbeat may take, however little patience is left, if the lease lasts longer."""

NEWS = ("resolved_approvals", "answers")
"""What a heartbeat tells once."""

NEWS_KEPT = 50
"""Of each, for whoever heartbeats explicitly."""


class Hold(Keeping):
    """Standing under one claim: run, epoch, clock and heartbeats. Safe for threads."""

    def __init__(self, transport: Transport, claim: Claim, sent_at: float) -> None:
        super().__init__(transport, claim["run"]["id"], claim["lease"]["ttl_seconds"], sent_at)
        self.run_id = claim["run"]["id"]
        self.epoch = claim["lease"]["epoch"]
        self.lease = claim["lease"]
        self.paused = False
        self._notes: dict[str, Any] = {}
        self._notes_version = 0
        self._notes_accepted = 0
        self._told: dict[str, dict[str, Any]] = {name: {} for name in NEWS}

    @property
    def _noted(self) -> bool:
        return self._notes_version != self._notes_accepted

    @property
    def path(self) -> str:
        return f"/v1/runs/{self.run_id}"

    @property
    def handed_off(self) -> bool:
        """Somebody accepted the task: it has ended well."""
        return isinstance(self.clock.refusal, HandedOff)

    def note(self, percent: int | None, status: str | None) -> None:
        """Report with the next heartbeat, which is brought forward."""
        notes: dict[str, Any] = {}
        if percent is not None:
            if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= 100:
                raise ValueError(f"percent is a whole number from 0 to 100, not {percent!r}")
            notes["progress"] = percent
        if status is not None:
            notes["status"] = one_line(status, STATUS_LIMIT)
        with self._changed:
            self._notes |= notes
            self._notes_version += 1
            self._changed.notify_all()

    def tell(self, *, within: float) -> None:
        """Send what was noted last, before the run ends. Given up after so many seconds, at most half of what
        is left of the lease: the rest is for the end."""
        if self._noted:
            self._after_what_is_under_way()
            self._beat_while(lambda: self._noted, within)

    def confirm(self, *, within: float) -> None:
        """Be certain of the lease by a heartbeat sent from now on. Raises `LeaseLost`, or `LeaseInJeopardy`
        when none was answered in so many seconds, at most half of what is left: the rest is for a release."""
        began = now()
        self._beat_while(lambda: self.clock.age_seconds > now() - began, within)
        self.require(certain=True)

    def _beat_while(self, due: Callable[[], bool], within: float) -> None:
        within = min(within, self.clock.remaining_seconds / 2)
        pauses = Pauses(within, self._transport.closed, longest=self.clock.ttl_seconds / 12)
        while due():
            noted = self._noted
            least = min(LEAST_PATIENCE, self.clock.remaining_seconds / 2)
            try:
                self.beat(within=max(pauses.left, least))
            except TitenError as error:
                refused_notes = noted and isinstance(error, ValidationError)
                if not refused_notes and not (error.retryable and pauses.wait(error)):
                    return

    def renew(self) -> Heartbeat:
        """A heartbeat."""
        return self.beat()

    def beat(
        self, ttl_seconds: int | None = None, *, signed: bool = False, within: float | None = None
    ) -> Heartbeat:
        """One heartbeat now, one attempt. Raises `LeaseLost` when lost, else what went wrong."""
        return self._attempt(lambda patience: self._send(patience, ttl_seconds, signed=signed), within=within)

    def _send(self, patience: float, ttl_seconds: int | None, *, signed: bool) -> tuple[Heartbeat, float]:
        with self._changed:
            version = self._notes_version
            notes = dict(self._notes) if self._noted else {}
        body = {"epoch": self.epoch, **notes, **({"sequencer": True} if signed else {})}
        if ttl_seconds is not None:
            body["ttl_seconds"] = ttl_seconds
        try:
            answer = cast(
                Heartbeat,
                self._transport.once("POST", f"{self.path}/heartbeat", body, timeout=patience),
            )
        except ValidationError:
            # A status line that the server does not like must not cost the lease.
            with self._changed:
                self._notes_accepted = max(self._notes_accepted, version)
            raise
        with self._changed:
            self.lease = answer["lease"]
            self.paused = "pause" in answer.get("directives", ())
            self._notes_accepted = max(self._notes_accepted, version)
            for name, told in self._told.items():
                told.update((item["id"], item) for item in cast(dict[str, Any], answer).get(name, ()))
                for oldest in list(told)[:-NEWS_KEPT]:
                    del told[oldest]
        return answer, self.lease["ttl_seconds"]

    def told(self, answer: Heartbeat) -> Heartbeat:
        """An answer with what was told since the last call of this, in other heartbeats too."""
        with self._changed:
            found = {name: list(told.values()) for name, told in self._told.items()}
            for told in self._told.values():
                told.clear()
        return cast(Heartbeat, {**answer, **found})

    def _next_due(self) -> float:
        if self._noted and not self._failures and not self._ending:
            return min(self._due_at, self._sent_at + PROGRESS_INTERVAL)
        return self._due_at


def take(transport: Transport, claim: Claim, sent_at: float) -> Hold:
    """The hold on a claim that was answered just now and first asked for at `sent_at`: see `confirmed`."""
    ttl = claim["lease"]["ttl_seconds"]
    return confirmed(lambda moment: Hold(transport, claim, moment), transport, ttl, sent_at)
