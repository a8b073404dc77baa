"""The loop of an agent that does one task after the other."""

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any

from .errors import HandedOff, LeaseLost, NotFound, RateLimited, TitenError, not_of_the_work
from .keeping import log
from .lease_clock import LeaseState, now
from .run import Run

PAUSE = 1.0
"""Least seconds between two claims that brought nothing, and after a run that Titen stood in the way of."""
LONGEST_PAUSE = 60.0
"""Most seconds after such a run: they double with each in a row."""
ROOM_PAUSE = 1.0
"""Seconds between two looks at what a human has not decided yet."""


def work(
    claim: Callable[[], Run | None],
    fields: Mapping[str, Any] | None,
    handler: Callable[[Run], object],
    is_pending: Callable[[str], bool],
    *,
    stop: threading.Event,
    until_empty: bool,
) -> int:
    """See `Titen.work`. `claim` claims once; `fields` go with a claim in the end of a run, None: no claim does.
    `is_pending` says whether an approval is."""
    handled = troubles = 0
    current: Run | None = None
    try:
        while not stop.is_set():
            current = _following(current) or _claimed(claim, stop, until_empty=until_empty)
            if current is None:
                break
            if stop.is_set():
                _give_back(current)
                break
            current.claim_with_end = lambda: None if stop.is_set() else fields
            trouble = _handle(current, handler)
            handled += 1
            if current.inherited:
                break  # the loop is the parent's
            troubles = troubles + 1 if trouble is not None else 0
            if trouble is not None:
                _let_pass(trouble, min(PAUSE * 2 ** (troubles - 1), LONGEST_PAUSE), is_pending, stop)
    finally:
        if current is not None and current.next_run is not None:
            _give_back(current.next_run)
    return handled


def _following(run: Run | None) -> Run | None:
    """The run that came with the end of `run`, if it can still be begun."""
    following = run.next_run if run is not None else None
    if following is None or following.state is LeaseState.HELD:
        return following
    # The handler went on for long after it had ended its run: nothing renewed the next one.
    try:
        following.heartbeat()
    except TitenError as error:
        log.debug("%r could not be begun: %s", following, error)
        return None
    return following


def _claimed(claim: Callable[[], Run | None], stop: threading.Event, *, until_empty: bool) -> Run | None:
    """Claim until there is work, through any outage; None when stopped, or empty if that ends it."""
    while not stop.is_set():
        began = now()
        pause = PAUSE
        try:
            run = claim()
        except LeaseLost as error:
            log.debug("a claim was lost before it could be begun: %s", error)
        except TitenError as error:
            if not error.retryable:
                raise
            log.warning("claiming goes on after: %s", error)
            pause = max(PAUSE, error.retry_after or 0.0)
        else:
            if run is not None or until_empty:
                return run
        stop.wait(max(0.0, pause - (now() - began)))
    return None


def _handle(run: Run, handler: Callable[[Run], object]) -> TitenError | None:
    """Returns what of Titen's stood in the way of a run that was released for it."""
    try:
        with run:
            handler(run)
    except Exception as error:
        if run.inherited:
            raise  # in a child of a fork: nobody else would see it
        trouble = not_of_the_work(error)
        if isinstance(trouble, HandedOff):
            log.info("%r: %s", run, trouble)
        elif trouble is None:
            log.warning("%r: the handler failed", run, exc_info=True)
        else:
            log.warning("%r: %s", run, trouble)
            return trouble if run.outcome == "released" else None
    return None


def _let_pass(
    trouble: TitenError, pause: float, is_pending: Callable[[str], bool], stop: threading.Event
) -> None:
    """Wait before the next claim, which might bring the same task again."""
    pending = trouble.details.get("pending")
    if isinstance(trouble, RateLimited) and isinstance(pending, list) and pending:
        _wait_for_room(pending, is_pending, stop)
    else:
        stop.wait(max(pause, min(trouble.retry_after or 0.0, LONGEST_PAUSE)))


def _wait_for_room(pending: list[str], is_pending: Callable[[str], bool], stop: threading.Event) -> None:
    """Return when one of the approvals that make too many has ended: only then can another be asked for."""
    log.warning("%d approvals are pending. The next task is claimed when one has ended.", len(pending))
    for approval_id in itertools.cycle(pending):
        pause = ROOM_PAUSE
        try:
            if not is_pending(approval_id):
                return
        except NotFound:
            return
        except TitenError as error:
            if not error.retryable:
                stop.wait(LONGEST_PAUSE)  # it can't be looked at
                return
            pause = max(pause, error.retry_after or 0.0)
        if stop.wait(pause):
            return


def _give_back(run: Run) -> None:
    try:
        run.release("The worker is stopping.", claim_next=False)
    except TitenError as error:
        log.debug("%r could not be given back: %s", run, error)
