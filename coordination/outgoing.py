"""The one sender of all outgoing HTTP calls: where it may go is judged by address, at every call.

A name is resolved here, each address that it has is checked, and the connection goes to the address that
was checked, so no other answer of the name server can lead it elsewhere. Redirects are not followed, the
environment's proxies are not used, and time and size are limited.
"""

import asyncio
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import SOCK_STREAM, gaierror, getaddrinfo

import certifi
import httpx
from django.conf import settings

CONNECT_SECONDS = 3.0
RESOLVE_SECONDS = 5.0
# What is read of an answer; nobody is shown it.
ANSWER_LIMIT = 65_536
URL_LIMIT = 2000

Address = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# A name server that hangs keeps a thread; those of other receivers are not kept up by it.
_resolvers = ThreadPoolExecutor(64, thread_name_prefix="resolver")


class NotAllowedError(Exception):
    """The URL leads where nothing may be sent, or nowhere. `code` for the log, `sentence` for its author."""

    def __init__(self, code: str, sentence: str) -> None:
        self.code = code
        self.sentence = sentence
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call: `status` is None when no answer came, and `problem` says why (a code of ours).

    `retry_after` is that header as it was sent. Nothing else of the answer is kept.
    """

    status: int | None
    problem: str
    milliseconds: int
    retry_after: str | None = None

    @property
    def good(self) -> bool:
        """True for 2xx."""
        return self.status is not None and 200 <= self.status < 300


def check(url: str) -> None:
    """Raise `NotAllowedError` unless `url` may be sent to, as its name resolves now. Blocks a few seconds at most."""
    parsed = _parse(url)
    found = _resolvers.submit(_resolve, parsed.raw_host.decode())
    try:
        _judge(parsed, found.result(RESOLVE_SECONDS))
    except TimeoutError:
        raise _unresolved() from None


async def post(url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """POST `body` as it is. Never raises: what went wrong is in the answer."""
    began = time.monotonic()

    def answer(status: int | None, problem: str, retry_after: str | None = None) -> Answer:
        return Answer(status, problem, round((time.monotonic() - began) * 1000), retry_after)

    try:
        async with asyncio.timeout(settings.WEBHOOK_TIMEOUT_SECONDS):
            response = await _send(url, body, headers)
    except NotAllowedError as problem:
        return answer(None, problem.code)
    except (TimeoutError, httpx.TimeoutException):
        return answer(None, "timeout")
    except httpx.ConnectError as problem:
        return answer(None, "tls_failed" if _is_tls(problem) else "connection_failed")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return answer(None, "bad_answer")
    status = response.status_code
    code = "" if 200 <= status < 300 else "redirect" if 300 <= status < 400 else "bad_status"
    return answer(status, code, response.headers.get("retry-after"))


async def _send(url: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    parsed = _parse(url)
    host = parsed.raw_host.decode()
    loop = asyncio.get_running_loop()
    try:
        found = await asyncio.wait_for(loop.run_in_executor(_resolvers, _resolve, host), RESOLVE_SECONDS)
    except TimeoutError:
        raise _unresolved() from None
    _judge(parsed, found)
    # A client of its own: a connection that is kept would be one for the address, whatever the name was.
    async with httpx.AsyncClient(
        verify=_trust(),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(settings.WEBHOOK_TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
    ) as client:
        for number, address in enumerate(found, 1):
            request = client.build_request(
                "POST",
                parsed.copy_with(host=str(address)),
                content=body,
                headers={**headers, "host": parsed.netloc.decode(), "accept-encoding": "identity"},
                extensions={"sni_hostname": host},
            )
            try:
                response = await client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number == len(found):
                    raise
                continue
            await _read(response)
            return response
    raise _unresolved()


async def _read(response: httpx.Response) -> None:
    """Take in a short answer; the status stands, whatever comes of the rest."""
    size = 0
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > ANSWER_LIMIT:
                    break
    await response.aclose()


def _parse(url: str) -> httpx.URL:
    if len(url) > URL_LIMIT:
        raise NotAllowedError("bad_url", f"may be at most {URL_LIMIT} characters long.")
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host
    except (httpx.InvalidURL, ValueError):
        raise NotAllowedError("bad_url", "is not a URL such as https://hooks.example.org/titen.") from None
    if parsed.scheme not in ("https", "http") or not host:
        raise NotAllowedError("bad_url", "must be an address such as https://hooks.example.org/titen.")
    if parsed.port is not None and not 1 <= parsed.port <= 65_535:
        raise NotAllowedError("bad_url", "names a port that does not exist.")
    if parsed.userinfo or "@" in url.partition("//")[2].partition("/")[0]:
        raise NotAllowedError("bad_url", "may not hold a user or a password.")
    return parsed


def _resolve(host: str) -> list[Address]:
    """All addresses of a name, or of a number in whatever form the system's resolver takes."""
    try:
        found = getaddrinfo(host, None, type=SOCK_STREAM)
    except (gaierror, UnicodeError, OSError):
        raise _unresolved() from None
    # Without the scope of a link-local address, which is refused anyway.
    return list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))


def _unresolved() -> NotAllowedError:
    return NotAllowedError("name_not_resolved", "names a host that cannot be resolved.")


def _judge(url: httpx.URL, addresses: list[Address]) -> None:
    """`NotAllowedError` unless every address is public or listed, and the scheme fits."""
    host = url.raw_host.decode().rstrip(".").lower()
    named = host in settings.WEBHOOK_ALLOWED
    inner = [address for address in addresses if not _listed(address)]
    if not named and not all(is_public(address) for address in inner):
        raise NotAllowedError(
            "address_not_allowed", "leads to an address that is not public. Ask the operator to list it."
        )
    if url.scheme == "http" and not settings.WEBHOOK_ALLOW_HTTP and not named and inner:
        raise NotAllowedError("https_needed", "must begin with https://.")


def is_public(address: Address) -> bool:
    """True for a global unicast address; one that carries an IPv4 address is judged by that."""
    if isinstance(address, IPv6Address):
        carried = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            carried = IPv4Address(int(address) & 0xFFFF_FFFF)
        if carried is not None:
            return is_public(carried)
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _listed(address: Address) -> bool:
    """True when the operator's list holds the address or its network."""
    return any(address in network for network in map(_network, settings.WEBHOOK_ALLOWED) if network)


@lru_cache(maxsize=256)
def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    """The usual authorities, and those that the system (or `SSL_CERT_FILE`) adds."""
    trust = ssl.create_default_context(cafile=certifi.where())
    trust.load_default_certs()
    return trust


def _is_tls(problem: BaseException | None) -> bool:
    while problem is not None:
        if isinstance(problem, ssl.SSLError):
            return True
        problem = problem.__cause__ or problem.__context__
    return False
