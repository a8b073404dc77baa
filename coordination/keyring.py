"""Secrets that the database keeps (signing keys, webhook secrets), sealed under `TITEN_SECRET_KEYS`.

The first secret of the ring seals, all of them open: a new one is put in front, and the old one is
dropped when nothing that it sealed is needed any more.
"""

import base64
import logging
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from titen.errors import Refused

logger = logging.getLogger("titen.keyring")

SHORTEST_SECRET = 32
RETRY_SECONDS = 10


def seal(content: bytes) -> bytes:
    """`content` as the database may keep it. `NOT_READY` when the ring is empty."""
    return _ring().encrypt(content)


def open_sealed(sealed: bytes) -> bytes:
    """What was sealed. `NOT_READY`, and a line for the operator, when no secret of the ring opens it."""
    try:
        return _ring().decrypt(sealed)
    except InvalidToken:
        logger.error(
            "No secret of TITEN_SECRET_KEYS opens a sealed value of the database. Put the secret that sealed"
            " it back into the list (behind the first), then restart."
        )
        raise _not_ready() from None


def _ring() -> MultiFernet:
    if not settings.SECRET_KEYS:
        logger.error("TITEN_SECRET_KEYS is not set: nothing can be sealed or opened. Set it, then restart.")
        raise _not_ready()
    return _made(tuple(settings.SECRET_KEYS))


def _not_ready() -> Refused:
    return Refused("NOT_READY", retry_after=RETRY_SECONDS)


@lru_cache(maxsize=4)
def _made(secrets: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(_key(secret)) for secret in secrets])


def _key(secret: str) -> bytes:
    """A Fernet key from a secret of any form."""
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"titen keyring").derive(secret.encode())
    return base64.urlsafe_b64encode(derived)
