"""The keys that sign sequencers: one for the whole server, replaced without a gap.

A new key is published before it signs, so that recipients who keep the key set know it by then; an old
one stays published until what it signed has run out. Every move holds one advisory lock.
"""

import base64
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.db import connection, transaction

from .database import Row, fetch_all
from .keyring import open_sealed, seal
from .locks import clock
from .models import SigningKey

logger = logging.getLogger("titen.signing")

# Longer than a recipient keeps the key set (its max-age is 5 minutes).
PUBLISH_AHEAD = timedelta(minutes=10)
# So long a process signs with the key that it knows, also when a newer one or none should by now.
REMEMBERED_SECONDS = 30.0
# A door that is about to move something looks this early, so that the key lasts until it has moved.
AHEAD_SECONDS = 20.0

# The oldest first, and which of them signs now: the last one with `signs_from` in the past.
_PUBLISHED = """
SELECT k.id, k.public, k.private, k.signs_from, k.at, k.signs_from <= k.at AS signs FROM (
    SELECT s.*, c.at, lead(s.signs_from) OVER (ORDER BY s.signs_from, s.id) AS succeeded_at
    FROM coordination_signingkey s CROSS JOIN (SELECT clock_timestamp() AS at) c
    WHERE s.withdrawn_at IS NULL
) k
WHERE k.succeeded_at IS NULL OR k.succeeded_at + %(kept)s * interval '1 s' > k.at
ORDER BY k.signs_from, k.id"""


@dataclass(frozen=True)
class Signer:
    """The key that signs, opened, and the database's clock when it was looked up."""

    key_id: UUID
    key: Ed25519PrivateKey
    at: datetime
    looked_up: float

    @property
    def age(self) -> float:
        """Seconds since it was looked up."""
        return time.monotonic() - self.looked_up

    @property
    def kid(self) -> str:
        """How tokens and the key set name it."""
        return self.key_id.hex

    @property
    def now(self) -> datetime:
        """The database's clock by now, carried on by this process's monotonic one."""
        return self.at + timedelta(seconds=self.age)


# One reference, replaced whole, so threads need no lock: two that look at once do it twice.
_remembered: Signer | None = None


def published() -> list[Row]:
    """The keys by which a recipient may meet a live sequencer, the oldest first."""
    longest = max(settings.LEASE_TTL_MAXIMUM, settings.HUMAN_LEASE_TTL_SECONDS)
    return fetch_all(_PUBLISHED, {"kept": longest + REMEMBERED_SECONDS})


def signer(*, remembered: float = REMEMBERED_SECONDS) -> Signer:
    """The key that signs now, looked up again when the one at hand is older than `remembered` seconds.

    The first use of a server makes the first key. `NOT_READY` when the keyring does not open it.
    """
    global _remembered
    known = _remembered
    if known is not None and known.age < remembered:
        return known
    known = _look_up()
    if known is None:
        with transaction.atomic():
            make_key()
        # Not remembered: the transaction around this may still be undone, and the key with it.
        known = _look_up()
        assert known is not None
        return known
    _remembered = known
    return known


def check() -> None:
    """`NOT_READY` when there is a key that should sign, and the keyring does not open it."""
    _look_up()


def forget() -> None:
    """Have the next use look the key up."""
    global _remembered
    _remembered = None


def _look_up() -> Signer | None:
    looked_up = time.monotonic()
    signing = [row for row in published() if row["signs"]]
    if not signing:
        return None
    row = signing[-1]
    key = Ed25519PrivateKey.from_private_bytes(open_sealed(bytes(row["private"])))
    return Signer(row["id"], key, row["at"], looked_up)


def make_key() -> SigningKey | None:
    """Make the first key, which signs at once. None when one signs already. In a transaction."""
    _lock()
    if any(row["signs"] for row in published()):
        return None
    return _make(clock())


def rotate(*, at_once: bool = False) -> SigningKey:
    """A new key: published now, it signs after `PUBLISH_AHEAD`. In a transaction.

    `at_once`, after a leak, it signs now and every other key is withdrawn. Other processes may sign with
    theirs for `REMEMBERED_SECONDS` more, and recipients may accept that until they fetch the keys again.
    """
    _lock()
    at = clock()
    replaces = any(row["signs"] for row in published())
    made = _make(at + PUBLISH_AHEAD if replaces and not at_once else at)
    if at_once:
        others = SigningKey.objects.filter(withdrawn_at=None).exclude(pk=made.pk)
        count = others.update(withdrawn_at=at)
        transaction.on_commit(lambda: logger.info("%s signing keys were withdrawn", count))
    return made


def _lock() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('titen signing keys', 0))")


def _make(signs_from: datetime) -> SigningKey:
    key = Ed25519PrivateKey.generate()
    public = base64.urlsafe_b64encode(key.public_key().public_bytes_raw()).rstrip(b"=").decode()
    private = seal(key.private_bytes_raw())
    made = SigningKey.objects.create(public=public, private=private, signs_from=signs_from)

    def say() -> None:
        forget()
        logger.info("made the signing key %s; it signs from %s", made, f"{signs_from:%Y-%m-%d %H:%M:%S} UTC")

    transaction.on_commit(say)
    return made
