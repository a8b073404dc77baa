"""For whoever receives the effects of agents: refuses those of a holder that lost its lease.

The agent sends its *sequencer* along (`lease["sequencer"]` of its claim). The recipient checks it where
the effect is applied, in the transaction that applies it:

```python
guard = EpochGuard(
    "https://titen.example/.well-known/jwks.json", issuer="https://titen.example", organization="org_…"
)
with psycopg.connect(…) as connection:
    guard.check(sequencer, resource_type="task", resource_id=task_id, epochs=SqlEpochs(connection))
    connection.execute("UPDATE …")
```

Nothing is asked of Titen but its public keys, at most every five minutes. So there is something that
this cannot know: until the sequencer runs out, or a higher epoch is first used here, a holder whose lease
was taken away still looks right. `Titen.verify` asks, and knows at once.
"""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

try:
    import jwt
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError as missing:
    raise ImportError(
        "titen.client.fencing needs PyJWT with cryptography: install the extra, as in pip install 'titen[fencing]'."
    ) from missing

ALGORITHM = "EdDSA"
TYPE = "titen-sequencer+jwt"
HEADER = {"alg", "typ", "kid"}
CLAIMS = ["iss", "org", "resource_type", "resource_id", "epoch", "holder", "iat", "exp"]

KEPT_SECONDS = 300
"""How long the public keys are kept before they are fetched again."""
COOLDOWN_SECONDS = 5
"""However many sequencers name an unknown key, or cannot be checked: one fetch in so many seconds."""
FETCH_SECONDS = 5


class FencingError(Exception):
    """The effect must not be applied; the classes say why."""


class KeysUnavailable(FencingError):
    """Titen's public keys cannot be fetched, so nothing is known of the sequencer. Try again later."""


class InvalidSequencer(FencingError):
    """Not a sequencer of this issuer for this organization, or one that was tampered with."""


class ExpiredSequencer(FencingError):
    """The lease has run out, unless it was renewed: then a heartbeat gives a new sequencer."""


class WrongResource(FencingError):
    """A good sequencer, of another resource."""


class StaleEpoch(FencingError):
    """A higher epoch of the resource was used here: the lease has passed to somebody else."""


@dataclass(frozen=True)
class Sequencer:
    """What a sequencer says. `holder`: the principal's id, `agent_…`; `expires_at`: UTC."""

    organization: str
    resource_type: str
    resource_id: str
    epoch: int
    holder: str
    expires_at: datetime


class Epochs(Protocol):
    """Remembers the highest epoch that was used of each resource."""

    def use(self, organization: str, resource_type: str, resource_id: str, epoch: int) -> bool:
        """Remember the epoch; False, and nothing changed, when a higher one was used before."""


class MemoryEpochs:
    """For tests: forgets with the process, and does not roll back."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str, str], int] = {}
        self._lock = threading.Lock()

    def use(self, organization: str, resource_type: str, resource_id: str, epoch: int) -> bool:
        """As `Epochs` says."""
        name = (organization, resource_type, resource_id)
        with self._lock:
            if self._highest.get(name, epoch) > epoch:
                return False
            self._highest[name] = epoch
            return True


class SqlEpochs:
    """In the recipient's own database, by its own connection, and never committed here.

    Epoch and effect then stand or fall together, and a transaction with a lower epoch waits for one with
    a higher one. Give it the connection of the transaction that applies the effect, which must not be in
    autocommit mode. For psycopg 3 and sqlite3, and others with their paramstyles and `ON CONFLICT`.
    """

    _TABLE = """
        CREATE TABLE IF NOT EXISTS titen_epoch (
            organization text NOT NULL, resource_type text NOT NULL, resource_id text NOT NULL,
            epoch bigint NOT NULL, PRIMARY KEY (organization, resource_type, resource_id)
        )"""
    # Atomic: PostgreSQL waits for a row that is being written and judges what was committed.
    _USE = """
        INSERT INTO titen_epoch (organization, resource_type, resource_id, epoch) VALUES (?, ?, ?, ?)
        ON CONFLICT (organization, resource_type, resource_id) DO UPDATE SET epoch = excluded.epoch
        WHERE titen_epoch.epoch <= excluded.epoch RETURNING epoch"""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._use = self._USE.replace("?", _placeholder(connection))

    def create_table(self) -> None:
        """Make the table `titen_epoch` when it is missing; the caller commits."""
        self._connection.cursor().execute(self._TABLE)

    def use(self, organization: str, resource_type: str, resource_id: str, epoch: int) -> bool:
        """As `Epochs` says, within the connection's transaction."""
        cursor = self._connection.cursor()
        cursor.execute(self._use, (organization, resource_type, resource_id, epoch))
        used = cursor.fetchone() is not None
        cursor.close()
        return used


def _placeholder(connection: Any) -> str:
    """How the connection's module writes a parameter (PEP 249)."""
    for ancestor in type(connection).__mro__:
        module = sys.modules.get(ancestor.__module__.partition(".")[0])
        style = getattr(module, "paramstyle", None)
        if style == "qmark":
            return "?"
        if style in ("format", "pyformat"):
            return "%s"
    raise TypeError(f"{type(connection)!r} is no connection of psycopg 3, sqlite3 or the like")


class _FetchedKeys(jwt.PyJWKClient):
    """The key set at a URL. A fetch that failed is not tried again at once: others wait behind it."""

    def __init__(self, url: str) -> None:
        super().__init__(
            url, lifespan=KEPT_SECONDS, timeout=FETCH_SECONDS, cooldown_duration=COOLDOWN_SECONDS
        )
        self._failed_at = -float(COOLDOWN_SECONDS)

    def fetch_data(self) -> Any:
        """The key set as JSON."""
        if time.monotonic() - self._failed_at < COOLDOWN_SECONDS:
            raise jwt.PyJWKClientConnectionError("the last try failed a moment ago")
        try:
            return super().fetch_data()
        except Exception as problem:
            self._failed_at = time.monotonic()
            # What is no key set, a proxy's page for example, says nothing about a sequencer.
            raise jwt.PyJWKClientConnectionError(str(problem)) from problem


class EpochGuard:
    """Checks sequencers of one organization. Make one and keep it: it keeps the keys. Safe for threads.

    keys: the URL of Titen's key set (`…/.well-known/jwks.json`), or the set itself as JSON has it.
    issuer: the server's `TITEN_PUBLIC_URL`.
    organization: whose holders may act here, `org_…`.
    epochs: where the epochs are remembered, unless each check names it.
    leeway: seconds that this machine's clock may be ahead of Titen's. Each lets a holder act that much
        longer after its lease has run out.
    """

    def __init__(
        self,
        keys: str | Mapping[str, Any],
        *,
        issuer: str,
        organization: str,
        epochs: Epochs | None = None,
        leeway: float = 0,
    ) -> None:
        self._fetched = _FetchedKeys(keys) if isinstance(keys, str) else None
        self._given = None if isinstance(keys, str) else jwt.PyJWKSet.from_dict(dict(keys))
        self._issuer = issuer.rstrip("/")
        self._organization = organization
        self._epochs = epochs
        self._leeway = leeway

    def check(
        self, sequencer: str, *, resource_type: str, resource_id: str, epochs: Epochs | None = None
    ) -> Sequencer:
        """What the sequencer says, when its holder may act on this resource now; its epoch is remembered.

        Raises a `FencingError`: then apply nothing. The same sequencer is good for any number of effects.
        """
        remembered = epochs or self._epochs
        if remembered is None:
            raise TypeError("name epochs here or for the guard: without them a stale holder is not noticed")
        found = self.read(sequencer)
        if (found.resource_type, found.resource_id) != (resource_type, resource_id):
            raise WrongResource(
                f"The sequencer is for {found.resource_type} {found.resource_id}, "
                f"not for {resource_type} {resource_id}."
            )
        if not remembered.use(found.organization, resource_type, resource_id, found.epoch):
            raise StaleEpoch(
                f"Epoch {found.epoch} of {resource_type} {resource_id} is over: a higher one was used here."
            )
        return found

    def read(self, sequencer: str) -> Sequencer:
        """What a genuine sequencer says that has not run out. Nothing is remembered."""
        try:
            header = jwt.get_unverified_header(sequencer)
            if header.keys() != HEADER or (header["alg"], header["typ"]) != (ALGORITHM, TYPE):
                raise InvalidSequencer("It is no sequencer: its header says something else.")
            claims = jwt.decode(
                sequencer,
                self._key(header["kid"]),
                algorithms=[ALGORITHM],
                issuer=self._issuer,
                leeway=self._leeway,
                # `iat` is for people: by a clock that is behind, a new sequencer comes from the future.
                options={"require": CLAIMS, "verify_iat": False},
            )
        except jwt.ExpiredSignatureError:
            raise ExpiredSequencer("The sequencer has run out. Ask the holder for a new one.") from None
        except jwt.PyJWTError as problem:
            raise InvalidSequencer(f"The sequencer is not valid: {problem}.") from None
        if claims["org"] != self._organization:
            raise InvalidSequencer("The sequencer is of another organization.")
        return Sequencer(
            organization=claims["org"],
            resource_type=claims["resource_type"],
            resource_id=claims["resource_id"],
            epoch=claims["epoch"],
            holder=claims["holder"],
            expires_at=datetime.fromtimestamp(claims["exp"], UTC),
        )

    def _key(self, kid: str) -> Ed25519PublicKey:
        try:
            found = self._fetched.get_signing_key(kid) if self._fetched else self._given_key(kid)
        except (jwt.PyJWKClientConnectionError, jwt.PyJWKSetError, ValueError) as problem:
            raise KeysUnavailable(f"The public keys cannot be fetched: {problem}. Try again later.") from None
        if found is None or not isinstance(found.key, Ed25519PublicKey):
            raise InvalidSequencer("The sequencer names a key that is not known.")
        return found.key

    def _given_key(self, kid: str) -> jwt.PyJWK | None:
        return next((key for key in self._given.keys if key.key_id == kid), None) if self._given else None
