"""The guarded sender: what counts as public, the pinned address, and receivers that misbehave."""

import asyncio
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coordination import outgoing

from . import sinks
from .servers import free_port
from .sinks import ALLOWED, INNER, sink

pytestmark = pytest.mark.alone

PUBLIC = "93.184.215.14"


def post(url: str, body: bytes = b"{}") -> outgoing.Answer:
    return asyncio.run(outgoing.post(url, body, {"webhook-id": "dlv_1", "content-type": "application/json"}))


@pytest.fixture
def brisk(settings: Any) -> None:
    """An attempt takes a second at most."""
    settings.WEBHOOK_TIMEOUT_SECONDS = 1.0


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Names that a test makes up, with their addresses; others are asked of the system."""
    made_up: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def look_up(host: str, *arguments: Any, **options: Any) -> Any:
        if host not in made_up:
            return real(host, *arguments, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in made_up[host]]

    monkeypatch.setattr(outgoing, "getaddrinfo", look_up)
    return made_up


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses(address: str) -> None:
    assert outgoing.is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.2.1"),
        *("192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2002:a00:1::1", "2001::1", "2001:db8::1", "fc00::1", "fd00::1", "fe80::1"),
        *("fec0::1", "ff02::1", "100::1", "4000::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not outgoing.is_public(ip_address(address))


def test_every_address_of_a_name_is_judged(names: dict[str, list[str]]) -> None:
    names["both.test"] = [PUBLIC, INNER]
    with pytest.raises(outgoing.NotAllowedError) as refused:
        outgoing.check("https://both.test/x")
    assert refused.value.code == "address_not_allowed"
    names["both.test"] = [PUBLIC, ALLOWED]
    outgoing.check("https://both.test/x")


def test_a_name_that_changes_its_mind_is_judged_again_at_each_call(names: dict[str, list[str]]) -> None:
    with sink(host=INNER) as inner:
        url = f"https://rebound.test:{inner.port}/x"
        names["rebound.test"] = [PUBLIC]
        outgoing.check(url)
        names["rebound.test"] = [INNER]
        assert post(url).problem == "address_not_allowed"
        assert inner.requests == []


def test_the_connection_goes_to_the_address_that_was_judged(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is asked once; the receiver sees it in `Host`."""
    names["hooks.test"] = [ALLOWED]
    asked: list[str] = []
    look_up: Any = vars(outgoing)["getaddrinfo"]

    def once(host: str, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(outgoing, "getaddrinfo", once)
    with sink() as receiver:
        body = '{"snow": "\N{SNOWMAN}"}'.encode()
        assert post(f"http://hooks.test:{receiver.port}/a?b=c", body).status == 200
        (request,) = receiver.requests
    assert (request.path, request.body) == ("/a?b=c", body)
    assert request.headers["host"] == f"hooks.test:{receiver.port}"
    assert asked == ["hooks.test"]


def test_the_next_address_is_tried_when_one_does_not_answer(
    names: dict[str, list[str]], settings: Any
) -> None:
    settings.WEBHOOK_ALLOWED = ["127.0.0.0/8"]
    names["two.test"] = ["127.0.0.3", ALLOWED]
    with sink() as receiver:
        assert post(f"http://two.test:{receiver.port}/").status == 200


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with sink() as receiver, sink() as proxy:
        for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://{ALLOWED}:{proxy.port}")
        assert post(receiver.url).status == 200
        assert (len(receiver.requests), proxy.requests) == (1, [])


@pytest.mark.parametrize(
    ("step", "status", "problem"),
    [
        (204, 204, ""),
        (404, 404, "bad_status"),
        (500, 500, "bad_status"),
        (sinks.redirect(307, "http://127.0.0.2:9/"), 307, "redirect"),
        (sinks.hang, None, "timeout"),
        (sinks.drip, None, "timeout"),
        (sinks.hang_up, None, "bad_answer"),
        (sinks.babble, None, "bad_answer"),
    ],
)
def test_what_a_receiver_does_is_told_in_a_code(
    brisk: None, step: Any, status: int | None, problem: str
) -> None:
    with sink(step) as receiver:
        answer = post(receiver.url)
        assert len(receiver.requests) == 1
    assert (answer.status, answer.problem) == (status, problem)
    assert answer.milliseconds < 2000


def test_fifty_megabytes_are_cut_off() -> None:
    with sink(sinks.flood) as receiver:
        answer = post(receiver.url)
        assert answer.good
        assert answer.milliseconds < 3000
        assert receiver.written < 20_000_000


def test_a_port_where_nobody_listens() -> None:
    assert post(f"http://{ALLOWED}:{free_port()}/").problem == "connection_failed"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://93.184.215.14/", "https_needed"),
        ("https://no-such-name.invalid/", "name_not_resolved"),
        ("https://user@93.184.215.14/", "bad_url"),
        ("https://@93.184.215.14/", "bad_url"),
        ("https:///nowhere", "bad_url"),
        ("https://[::1", "bad_url"),
        ("https://a b/", "name_not_resolved"),
        ("https://93.184.215.14:99999/", "bad_url"),
        ("https://93.184.215.14:0/", "bad_url"),
        ("hooks.example.org", "bad_url"),
        (f"https://{'a' * 70}.test/", "name_not_resolved"),
        (f"https://hooks.test/{'a' * 2000}", "bad_url"),
    ],
)
def test_where_nothing_is_sent(url: str, code: str) -> None:
    with pytest.raises(outgoing.NotAllowedError) as refused:
        outgoing.check(url)
    assert refused.value.code == code
    assert post(url).problem == code


def test_plain_http_to_public_addresses_is_a_setting(settings: Any) -> None:
    settings.WEBHOOK_ALLOW_HTTP = True
    outgoing.check(f"http://{PUBLIC}/")


def test_the_list_takes_names_addresses_and_networks(names: dict[str, list[str]], settings: Any) -> None:
    names["inner.test"] = names["inner.test."] = names["other.test"] = ["10.1.2.3"]
    settings.WEBHOOK_ALLOWED = ["inner.test", "192.168.7.0/24", "fd00::/8"]
    for url in ("http://inner.test/", "http://INNER.test./", "http://192.168.7.9/", "http://[fd00::1]/"):
        outgoing.check(url)
    for url in ("https://other.test/", "https://192.168.8.9/", "https://10.1.2.3/"):
        with pytest.raises(outgoing.NotAllowedError):
            outgoing.check(url)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate for a name, and the certificate's file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "public.pem", folder / "private.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return context, public


def test_the_certificate_is_for_the_name_and_not_for_the_address(
    names: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, authority = certificate(tmp_path, "hooks.test")
    names["hooks.test"] = names["other.test"] = [ALLOWED]
    with sink(tls=server) as receiver:
        assert post(f"https://hooks.test:{receiver.port}/").problem == "tls_failed"
        trust = ssl.create_default_context(cafile=str(authority))
        monkeypatch.setattr(outgoing, "_trust", lambda: trust)
        assert post(f"https://hooks.test:{receiver.port}/").status == 200
        assert post(f"https://other.test:{receiver.port}/").problem == "tls_failed"
        assert len(receiver.requests) == 1
