"""Hashing passwords, which is slow by intent: one at a time in each process, and never for a crowd.

A login is judged before its password is hashed. So anonymous logins take neither the processor nor more than
a few of the threads that everybody needs.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from django.contrib.auth.hashers import Argon2PasswordHasher

from titen.errors import Refused

# Of a process: who hashes, and who waits for that. One more is sent away.
ROOM = 3
# Wrong passwords from one address, for whichever names, before it has to pause.
FAILURES_A_MINUTE = 20
MINUTE = 60.0

_turn = threading.RLock()


class OneAtATimeHasher(Argon2PasswordHasher):
    """Django's Argon2, whoever asks for it."""

    def encode(self, password: str, salt: str) -> str:
        """Hash, when it is our turn."""
        with _turn:
            encoded: str = super().encode(password, salt)
            return encoded

    def verify(self, password: str, encoded: str) -> bool:
        """Compare, likewise."""
        with _turn:
            return bool(super().verify(password, encoded))


class Gate:
    """Lets few logins at a time through, and none from an address with many failures in this minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._failures = Counter[str]()
        self._minute = 0

    def attempt(self, address: str, authenticate: Callable[[], Any]) -> Any:
        """What `authenticate` finds, in its turn; None counts as a failure of the address.

        `RATE_LIMITED` or `OVERLOADED`, at once and without hashing, for one too many. `authenticate` judges the
        name's own throttle: it is called in turn, so that no crowd passes before its first failure counts.
        """
        self._enter(address)
        try:
            with _turn:
                found = authenticate()
        finally:
            with self._lock:
                self._inside -= 1
        if found is None:
            with self._lock:
                self._failures[address] += 1
        return found

    def _enter(self, address: str) -> None:
        with self._lock:
            minute = int(time.monotonic() // MINUTE)
            if minute != self._minute:
                self._minute = minute
                self._failures.clear()
            if self._failures[address] >= FAILURES_A_MINUTE:
                raise Refused(
                    "RATE_LIMITED",
                    "Too many wrong passwords came from your network. Wait a minute, then log in again.",
                    retry_after=60,
                )
            if self._inside >= ROOM:
                raise Refused("OVERLOADED", retry_after=2)
            self._inside += 1


gate = Gate()
