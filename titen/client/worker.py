"""The loop of an agent that does one task after the other."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from .errors import HandedOff, LeaseInJeopardy, LeaseLost, TitenError
from .keeping import log
from .lease_clock import LeaseState, now
from .run import Run

PAUSE = 1.0
"""Least seconds between two claims that brought nothing."""


def work(
    claim: Callable[[], Run | None],
    fields: Mapping[str, Any] | None,
    handler: Callable[[Run], object],
    *,
    stop: threading.Event,
    until_empty: bool,
) -> int:
    """See `Titen.work`. `claim` claims once; `fields` go with a claim in the end of a run, None: no claim does."""
    handled = 0
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
            _handle(current, handler)
            handled += 1
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


def _handle(run: Run, handler: Callable[[Run], object]) -> None:
    try:
        with run:
            handler(run)
    except HandedOff as error:
        log.info("%r: %s", run, error)
    except (LeaseLost, LeaseInJeopardy) as error:
        log.warning("%r: %s", run, error)
    except Exception:
        log.warning("%r: the handler failed", run, exc_info=True)


def _give_back(run: Run) -> None:
    try:
        run.release("The worker is stopping.", claim_next=False)
    except TitenError as error:
        log.debug("%r could not be given back: %s", run, error)
