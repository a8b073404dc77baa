"""A TCP proxy for HTTP/1.1 that misbehaves on demand, as networks and front ends do.

    with Proxy(port) as proxy:
        proxy.cut_replies(path="/claim")   # the server answers; nobody hears it
        proxy.refuse(times=1)              # 503, the server never sees it
        proxy.hang(path="/heartbeat")      # one request is swallowed and never answered
        proxy.delay(0.3)                   # every request waits
        proxy.drop(); ...; proxy.restore() # no packet passes, none is refused

Dropped bytes are kept and delivered after `restore()`, as TCP's retransmissions would be: a request
that its sender gave up on still arrives. Requests need a Content-Length or no body; answers may be
of any kind, streams too.
"""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Fault:
    """What happens to the next `times` requests whose first line contains `path`."""

    kind: str
    times: int
    path: str
    status: int = 503
    retry_after: int | None = None
    body: bytes = b""
    content_type: str = "text/html"


@dataclass
class Link:
    """One client's connection and its counterpart to the server."""

    client: socket.socket
    server: socket.socket
    cut: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class Proxy:
    """Listens on 127.0.0.1, `url` and `port`; forwards to `port` of 127.0.0.1.

    requests: the first line of every request that arrived here, in order.
    cuts: how many answers of the server were thrown away.
    """

    def __init__(self, target_port: int) -> None:
        self.requests: list[str] = []
        self.cuts = 0
        self._target = ("127.0.0.1", target_port)
        self._changed = threading.Condition()
        self._faults: list[Fault] = []
        self._delay = 0.0
        self._dropping = False
        self._closed = False
        self._links: list[Link] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True, name="proxy").start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            links = list(self._links)
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in links:
            link.close()

    def cut_replies(self, times: int = 1, path: str = "") -> None:
        """Let the server do the next matching requests, then close without passing its answer on."""
        self._plan(Fault("cut", times, path))

    def refuse(
        self,
        times: int = 1,
        path: str = "",
        *,
        status: int = 503,
        retry_after: int | None = None,
        body: bytes = b"<h1>no backend</h1>",
        content_type: str = "text/html",
    ) -> None:
        """Answer the next matching requests here, as a front end without a backend does."""
        self._plan(Fault("refuse", times, path, status, retry_after, body, content_type))

    def hang(self, times: int = 1, path: str = "") -> None:
        """Swallow the next matching requests; their connections stay open and silent."""
        self._plan(Fault("hang", times, path))

    def cut(self) -> None:
        """Close every connection that is open now, in the middle of whatever it says."""
        with self._changed:
            links = list(self._links)
        for link in links:
            link.close()

    def delay(self, seconds: float) -> None:
        """Hold every request back for so long; 0 ends it."""
        self._delay = seconds

    def drop(self) -> None:
        """No byte passes in either direction, and nothing is reset, until `restore()`."""
        with self._changed:
            self._dropping = True

    def restore(self) -> None:
        """End drop, delay and every planned fault."""
        with self._changed:
            self._dropping = False
            self._delay = 0.0
            self._faults.clear()
            self._changed.notify_all()

    def _plan(self, fault: Fault) -> None:
        with self._changed:
            self._faults.append(fault)

    def _fault_for(self, line: str) -> Fault | None:
        with self._changed:
            for fault in self._faults:
                if fault.path in line:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                    return fault
        return None

    def _pass(self) -> None:
        """Return when packets pass."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._dropping)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True, name="proxy").start()

    def _serve(self, client: socket.socket) -> None:
        self._pass()
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        link = Link(client, server)
        with self._changed:
            self._links.append(link)
            closed = self._closed
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = threading.Thread(target=self._answers, args=(link,), daemon=True, name="proxy")
        answers.start()
        with contextlib.suppress(OSError):
            while not closed and self._request(link):
                pass
        link.close()
        answers.join()
        with self._changed:
            self._links.remove(link)

    def _request(self, link: Link) -> bool:
        """Read one request and pass it on, or not; False when the connection is over."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = link.client.recv(65536)
            if not more:
                return False
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for header in head.split(b"\r\n")[1:]:
            name, _, value = header.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        while len(body) < length:
            more = link.client.recv(65536)
            if not more:
                return False
            body += more
        line = head.split(b"\r\n", 1)[0].decode("latin-1")
        with self._changed:
            self.requests.append(line)
        self._pass()
        if self._delay:
            time.sleep(self._delay)
        fault = self._fault_for(line)
        if fault is not None and fault.kind == "hang":
            return True
        if fault is not None and fault.kind == "refuse":
            link.client.sendall(_refusal(fault))
            return True
        if fault is not None:
            link.cut.set()
        link.server.sendall(head + b"\r\n\r\n" + body)
        return True

    def _answers(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(65536):
                self._pass()
                if link.cut.is_set():
                    with self._changed:
                        self.cuts += 1
                    break
                link.client.sendall(data)
        # Closing wakes the other thread, which waits for the next request.
        with contextlib.suppress(OSError):
            link.client.shutdown(socket.SHUT_RDWR)


def _refusal(fault: Fault) -> bytes:
    head = (
        f"HTTP/1.1 {fault.status} Refused\r\n"
        f"Content-Type: {fault.content_type}\r\nContent-Length: {len(fault.body)}\r\n"
    )
    if 300 <= fault.status < 400:
        head += "Location: https://login.example/\r\n"
    if fault.retry_after is not None:
        head += f"Retry-After: {fault.retry_after}\r\n"
    return head.encode() + b"\r\n" + fault.body
