"""How a run ends: by its holder's word, or by leaving its block."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from .acting import Acting
from .errors import HandedOff, LeaseInJeopardy, TitenError, not_of_the_work
from .lease_clock import LeaseState, now
from .text import error_text, one_line
from .transport import INTERRUPTED_BUDGET, given, new_key

OUTCOMES = {"complete": "completed", "fail": "failed", "release": "released"}
CONFIRMATIONS = 3
"""Times that the server may call a completion uncertain before it is given up."""
REASON_LIMIT = 500


@dataclass(frozen=True)
class _End:
    """One request that ends a run, as it is repeated until it is answered."""

    action: str
    path: str
    body: dict[str, Any]
    key: str
    sent_at: float


class Ending(Acting):
    """The part of a `Run` that ends it."""

    claim_with_end: Callable[[], Mapping[str, Any] | None]
    """Fields of the claim that goes with the end of this run unless `claim_next` says otherwise;
    None: no claim goes with it. `Titen.work` sets it."""
    _outcome: str | None
    _one_end: threading.Lock
    _unanswered: _End | None

    def _go_on(self, answer: Mapping[str, Any], sent_at: float) -> None:
        """The server has taken the end; the answer may bring the next run."""
        raise NotImplementedError

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            with contextlib.suppress(HandedOff):
                self._end("release", {"reason": "The agent left without completing."}, None)
            return
        if not isinstance(error, Exception):
            self._without_work(error, "The agent was interrupted", budget=INTERRUPTED_BUDGET)
        elif not_of_the_work(error):
            self._finish(error)
        else:
            with self._noting(error):
                self._end("fail", {"error": error_text(error), "retryable": True}, None)

    def _finish(self, error: Exception) -> None:
        """Titen stood in the way, not the work. A completion that was not answered is sent once more: what is
        finished must not be done again. Else the task is released, and no attempt is counted."""
        end = self._unanswered
        if end is not None and end.action == "complete":
            with contextlib.suppress(TitenError, RuntimeError), self._one_end:
                self._require(certain=False)
                self._send(end, None)
                error.add_note(f"titen: the completion was repeated; {self._hold.run_id} is completed")
                return
        self._without_work(error, "The agent could not go on")

    def _without_work(self, error: BaseException, why: str, *, budget: float | None = None) -> None:
        with self._noting(error):
            reason = one_line(f"{why}: {error_text(error)}", REASON_LIMIT)
            self._end("release", {"reason": reason}, claim_next=False, budget=budget)

    @contextlib.contextmanager
    def _noting(self, error: BaseException) -> Iterator[None]:
        """What goes wrong at the end is noted on the error that led there."""
        try:
            yield
        except (TitenError, RuntimeError) as failure:
            error.add_note(f"titen: the server may not know that {self._hold.run_id} ended ({failure})")

    def _end(
        self,
        action: str,
        fields: Mapping[str, Any],
        claim_next: bool | None,
        *,
        certain: bool = False,
        budget: float | None = None,
    ) -> None:
        claim = self.claim_with_end()
        if claim_next is not None:
            claim = (claim or {}) if claim_next else None
        wish = {} if claim is None else {"claim_next": True, **claim}
        with self._one_end:
            self._require(certain=False)
            end = self._unanswered
            path, body = f"{self._hold.path}/{action}", given(epoch=self._hold.epoch, **fields, **wish)
            if end is None or (end.path, end.body) != (path, body):
                # An end that may have been done already is repeated as it was: a heartbeat would be refused.
                patience = self._budget() if budget is None else budget
                self._hold.tell(within=patience / 2)
                if certain and self._hold.clock.state is LeaseState.JEOPARDY:
                    self._hold.confirm(within=patience)
                end = _End(action, path, body, new_key(), now())
            self._send(end, budget)

    def _send(self, end: _End, budget: float | None) -> None:
        """Send it until it is answered. The caller has `_one_end`."""
        hold = self._hold
        until = now() + (self._budget() if budget is None else budget)
        self._unanswered = end
        for attempt in count(1):
            left = max(0.0, until - now())
            try:
                with hold.settling(), hold.refusing():
                    answer = self._transport.call(
                        "POST",
                        end.path,
                        end.body,
                        key=end.key,
                        budget=left,
                        outlast=budget is None,
                        before=lambda: hold.require(certain=False),
                    )
                    self._outcome = OUTCOMES[end.action]
                    hold.stop()
                break
            except LeaseInJeopardy:
                # It began while this was not answered, or the holder has declared it.
                if attempt == CONFIRMATIONS:
                    raise
                hold.confirm(within=left)
            except TitenError as error:
                if not error.retryable:
                    self._unanswered = None
                raise
        self._go_on(answer, end.sent_at)
