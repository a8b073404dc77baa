"""Real HTTP receivers in threads, and what they got."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook as Verifier

from coordination import couriers, events

from .cast import Agent
from .clockwork import sql

# The one address of loopback that `tests.plugin` allows; the others are inner ground.
ALLOWED, INNER = "127.0.0.2", "127.0.0.1"
PATIENCE = 30.0


@dataclass(frozen=True)
class Request:
    """One that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        """The delivery's."""
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> Any:
        """The content, once the library has verified the signature over the raw bytes."""
        return Verifier(secret).verify(self.body, self.headers)


Step = int | Callable[["Handler"], None]


@dataclass
class Sink:
    """A receiver: the nth request gets the nth step of `script`, later ones the last."""

    server: ThreadingHTTPServer
    script: list[Step]
    scheme: str = "http"
    requests: list[Request] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    # How many bytes of its answers left it.
    written: int = 0

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server.server_address[1])

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self.scheme}://{self.server.server_address[0]!s}:{self.port}/events"

    def by_id(self) -> dict[str, list[Request]]:
        """The requests of each delivery, in order."""
        found: dict[str, list[Request]] = {}
        for request in list(self.requests):
            found.setdefault(request.id, []).append(request)
        return found


class Server(ThreadingHTTPServer):
    """Does not wait for those that hang, and says nothing of those that go."""

    daemon_threads = True
    request_queue_size = 128
    sink: Sink

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that hangs up is no fault."""


class Handler(BaseHTTPRequestHandler):
    """Notes the request, then does the script's step."""

    server: Server

    def do_POST(self) -> None:
        """A delivery."""
        sink = self.server.sink
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        number = len(sink.requests)
        sink.requests.append(Request(self.path, headers, body, time.time()))
        step = sink.script[min(number, len(sink.script) - 1)]
        if callable(step):
            step(self)
        else:
            self.answer(step)

    do_GET = do_POST

    def answer(self, status: int, content: bytes = b"thanks", **headers: str) -> None:
        """A whole answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Silence."""


def hang(handler: Handler) -> None:
    """Take the request and never answer."""
    handler.server.sink.closed.wait(PATIENCE)


def drip(handler: Handler) -> None:
    """Answer, one byte of a header at a time."""
    with suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 10_000:
            handler.wfile.write(bytes([byte]))
            if handler.server.sink.closed.wait(0.05):
                return


def flood(handler: Handler) -> None:
    """Send 50 MB back."""
    handler.send_response(200)
    handler.send_header("content-length", str(50_000_000))
    handler.end_headers()
    with suppress(OSError):
        for _ in range(50):
            handler.wfile.write(b"x" * 1_000_000)
            handler.server.sink.written += 1_000_000


def hang_up(handler: Handler) -> None:
    """Close without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def babble(handler: Handler) -> None:
    """Send what is no HTTP."""
    handler.wfile.write(b"\x00\xffwhat is this\r\n\r\n")


def redirect(status: int, to: str) -> Step:
    """Send the sender elsewhere."""
    return lambda handler: handler.answer(status, b"internal words", location=to)


def busy(status: int, retry_after: str) -> Step:
    """Ask for patience."""
    return lambda handler: handler.answer(status, retry_after=retry_after)


@contextmanager
def sink(*script: Step, host: str = ALLOWED, tls: ssl.SSLContext | None = None) -> Iterator[Sink]:
    """A receiver that answers 200, or as the script says."""
    server = Server((host, 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.sink = Sink(server, list(script) or [200], "http" if tls is None else "https")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.sink
    finally:
        # Another test's receiver may get the port: what is still owed to this one stays away from it.
        sql(
            "UPDATE coordination_webhook SET deleted_at = clock_timestamp()"
            " WHERE deleted_at IS NULL AND strpos(url, %s) > 0",
            f":{server.sink.port}",
        )
        server.sink.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


def forget_all() -> None:
    """Nobody is owed anything by what other tests have left."""
    events.number()
    sql("UPDATE coordination_webhook SET deleted_at = clock_timestamp() WHERE deleted_at IS NULL")


def hook(agent: Agent, receiver: Sink, **more: Any) -> Any:
    """A webhook of `agent` that leads to a receiver."""
    return agent.post("/webhooks", {"url": receiver.url, **more})


def deliver() -> int:
    """Number, and send all that is due now; how many attempts."""
    events.number()
    return couriers.deliver()


def deliveries(agent: Agent, webhook: Any, **query: Any) -> list[Any]:
    """A webhook's deliveries in the order of their events."""
    path = f"/webhooks/{webhook['webhook_id']}/deliveries"
    found: list[Any] = agent.get(path, params={"limit": 200, **query})["deliveries"]
    return found[::-1]
