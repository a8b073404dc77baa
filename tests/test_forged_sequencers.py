"""A recipient takes only what the server said, by keys that it fetches seldom and gives up in time."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coordination import sequencers, signing
from coordination.locks import clock
from titen.api.doors import transact
from titen.client import fencing
from titen.client.fencing import InvalidSequencer, KeysUnavailable, MemoryEpochs

from .cast import Company
from .recipients import guard_of, issue, published


def claims_of(company: Company, **other: Any) -> dict[str, Any]:
    """What a good sequencer says, with something changed; None leaves it out."""
    said = jwt.decode(issue(company, 3), options={"verify_signature": False})
    return {name: value for name, value in {**said, **other}.items() if value is not None}


def signed(claims: dict[str, Any], *, key: Any = None, algorithm: str = "EdDSA", **header: Any) -> str:
    """By the server's own key unless another is named."""
    signer = signing.signer()
    head = {"kid": signer.kid, "typ": sequencers.TYPE, **header}
    return jwt.encode(claims, signer.key if key is None else key, algorithm=algorithm, headers=head)


def swapped(token: str, **other: Any) -> str:
    """Another content under the same signature."""
    head, _, signature = token.split(".")
    content = jwt.decode(token, options={"verify_signature": False}) | other
    return ".".join([head, jwt.utils.base64url_encode(json.dumps(content).encode()).decode(), signature])


FORGED: dict[str, Callable[[Company], str]] = {
    "a higher epoch under the same signature": lambda c: swapped(issue(c, 3), epoch=4),
    "no signature": lambda c: issue(c, 3).rpartition(".")[0] + ".",
    "half of it": lambda c: issue(c, 3)[:80],
    "nothing": lambda c: "",
    "not a token": lambda c: "a.b.c",
    "alg none": lambda c: jwt.encode(
        claims_of(c),
        "",
        algorithm="none",
        headers={"kid": signing.signer().kid, "typ": sequencers.TYPE},
    ),
    "HS256 with the public key": lambda c: signed(
        claims_of(c), key=signing.signer().key.public_key().public_bytes_raw(), algorithm="HS256"
    ),
    "another key under a known kid": lambda c: signed(claims_of(c), key=Ed25519PrivateKey.generate()),
    "an unknown kid": lambda c: signed(claims_of(c), kid="0" * 32),
    "another typ": lambda c: signed(claims_of(c), typ="JWT"),
    "a header that brings its own key": lambda c: signed(claims_of(c), jku="https://evil.example/jwks.json"),
    "another issuer": lambda c: signed(claims_of(c, iss="https://evil.example")),
    "another organization": lambda c: signed(claims_of(c, org=f"org_{'0' * 32}")),
    "no organization": lambda c: signed(claims_of(c, org=None)),
    "no expiry": lambda c: signed(claims_of(c, exp=None)),
    "no epoch": lambda c: signed(claims_of(c, epoch=None)),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_what_the_server_did_not_say_is_refused(company: Company, forgery: str) -> None:
    guard = guard_of(company, epochs=MemoryEpochs())
    guard.check(signed(claims_of(company)), resource_type="deploy", resource_id="r")
    with pytest.raises(InvalidSequencer):
        guard.check(FORGED[forgery](company), resource_type="deploy", resource_id="r")


def test_one_that_comes_from_the_future_is_good(company: Company) -> None:
    """A recipient's clock may be behind: then `iat` lies ahead, and nothing is wrong."""
    ahead = signed(claims_of(company, iat=int(datetime.now(UTC).timestamp()) + 30))
    guard_of(company, epochs=MemoryEpochs()).check(ahead, resource_type="deploy", resource_id="r")


class KeySet:
    """The key set at an address, and how often it was fetched. None: it answers 503."""

    def __init__(self) -> None:
        self.content: dict[str, Any] | None = published()
        self.fetches = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.fetches += 1
                self.send_response(200 if outer.content else 503)
                self.end_headers()
                self.wfile.write(json.dumps(outer.content).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks.json"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()


@pytest.fixture
def key_set() -> Iterator[KeySet]:
    """The server's keys, with their fetches counted."""
    made = KeySet()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_flood_of_unknown_keys_makes_few_fetches(company: Company, key_set: KeySet) -> None:
    guard = guard_of(company, key_set.url, epochs=MemoryEpochs())
    for number in range(50):
        with pytest.raises(InvalidSequencer):
            guard.read(signed(claims_of(company), kid=f"{number:032x}"))
        guard.read(issue(company, 1))
    assert key_set.fetches == 1


def test_without_keys_nothing_is_let_through_and_nobody_is_besieged(
    company: Company, key_set: KeySet
) -> None:
    key_set.content = None
    guard = guard_of(company, key_set.url)
    for _ in range(20):
        with pytest.raises(KeysUnavailable):
            guard.read(issue(company, 1))
    assert key_set.fetches == 1


def test_a_new_key_is_known_before_it_signs(company: Company, key_set: KeySet, own_keys: None) -> None:
    """Rotation with an overlap: nobody fetches anew, nothing is refused."""
    old = issue(company, 1)
    made = transact(signing.rotate)
    key_set.content = published()
    guard = guard_of(company, key_set.url)
    guard.read(issue(company, 1))
    type(made).objects.filter(pk=made.pk).update(signs_from=clock())
    signing.forget()
    new = issue(company, 1)
    assert jwt.get_unverified_header(new)["kid"] == str(made) != jwt.get_unverified_header(old)["kid"]
    guard.read(new)
    guard.read(old)
    assert key_set.fetches == 1
    guard_of(company).read(old)


def test_after_a_leak_what_the_old_key_signed_is_refused(
    company: Company, key_set: KeySet, own_keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "COOLDOWN_SECONDS", 0)
    guard = guard_of(company, key_set.url)
    old = issue(company, 1)
    guard.read(old)
    transact(lambda: signing.rotate(at_once=True))
    key_set.content = published()
    # Its keys are kept for five minutes, or until somebody shows a key that it does not know.
    guard.read(old)
    guard.read(issue(company, 1))
    with pytest.raises(InvalidSequencer):
        guard.read(old)
