"""The clients of the bench: a few processes of threads, each with one keep-alive connection.

Run as `python -m titen.bench.load`, with a `Job` as JSON on standard input; prints a `Tally` as JSON. It
imports nothing of Django, sends requests that were put together beforehand, and reads of an answer only
what the next request needs: what it costs is the same for every kind of cycle.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

BEAT = b'{"epoch":%d,"progress":50,"status":"half-way"}'
DONE = b'{"epoch":%d,"summary":"done"}'
DONE_NEXT = b'{"epoch":%d,"summary":"done","claim_next":true}'


@dataclass
class Job:
    """What one process does: `kind` of cycle for `seconds`, a thread for each (key, floor row)."""

    kind: str
    web: str
    hub: str
    seconds: float
    clients: list[list[str]]


@dataclass
class Tally:
    """Cycles that ended in time, the seconds they took, and CPU seconds of this process."""

    cycles: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    errors: list[str] = field(default_factory=list)


class Door:
    """One keep-alive connection to one server."""

    def __init__(self, url: str, key: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "", address.port or 80))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            f" HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    def post(self, path: bytes, body: bytes = b"{}") -> bytes:
        """The answer's body. RuntimeError when it is not a success."""
        self._socket.sendall(b"POST " + path + self._head + b"%d\r\n\r\n" % len(body) + body)
        answer = self._socket.recv(65536)
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self._socket.recv(65536)
        head = answer[:end].lower()
        content = answer[end + 4 :]
        if b"transfer-encoding: chunked" in head:
            while not content.endswith(b"0\r\n\r\n"):
                content += self._socket.recv(65536)
        else:
            at = head.find(b"content-length: ")
            length = 0 if at < 0 else int(head[at + 16 :].split(b"\r\n", 1)[0])
            while len(content) < length:
                content += self._socket.recv(65536)
        if not head.startswith((b"http/1.1 200", b"http/1.1 204")):
            raise RuntimeError(f"{path!r}: {answer[:300]!r}")
        return content


def run_and_epoch(claim: bytes) -> tuple[bytes, int]:
    """Of a claim's answer: the run's path and its epoch."""
    at = claim.index(b'"run_') + 1
    epoch = claim.index(b'"epoch":', at) + 8
    return b"/v1/runs/" + claim[at : at + 36], int(claim[epoch : claim.index(b",", epoch)])


def floor(job: Job, key: str, row: str) -> Callable[[], None]:
    """Three requests to the floor."""
    door, path = Door(job.web, key), b"/v1/bench/floor/" + row.encode()

    def cycle() -> None:
        for _ in range(3):
            door.post(path, BEAT % 1)

    return cycle


def plain(job: Job, key: str, row: str) -> Callable[[], None]:
    """Claim, heartbeat, complete."""
    door = Door(job.web, key)

    def cycle() -> None:
        run, epoch = run_and_epoch(door.post(b"/v1/tasks/claim"))
        door.post(run + b"/heartbeat", BEAT % epoch)
        door.post(run + b"/complete", DONE % epoch)

    return cycle


def waiting(job: Job, key: str, row: str) -> Callable[[], None]:
    """The same, with the claim asked from the hub."""
    door, hub = Door(job.web, key), Door(job.hub, key)

    def cycle() -> None:
        run, epoch = run_and_epoch(hub.post(b"/v1/tasks/claim?wait=5"))
        door.post(run + b"/heartbeat", BEAT % epoch)
        door.post(run + b"/complete", DONE % epoch)

    return cycle


def claim_next(job: Job, key: str, row: str) -> Callable[[], None]:
    """Heartbeat, then complete and claim the next in one request."""
    door = Door(job.web, key)
    held = door.post(b"/v1/tasks/claim")

    def cycle() -> None:
        nonlocal held
        run, epoch = run_and_epoch(held)
        door.post(run + b"/heartbeat", BEAT % epoch)
        answer = door.post(run + b"/complete", DONE_NEXT % epoch)
        held = answer[answer.index(b'"next":') :]

    return cycle


KINDS = {"floor": floor, "plain": plain, "wait": waiting, "claim_next": claim_next}


def work(job: Job) -> Tally:
    """Do the job; all threads begin together."""
    tally, lock = Tally(), threading.Lock()
    start = threading.Barrier(len(job.clients))

    def client(key: str, row: str) -> None:
        done = 0
        try:
            cycle = KINDS[job.kind](job, key, row)
            start.wait()
            began = time.perf_counter()
            end = began + job.seconds
            while time.perf_counter() < end:
                cycle()
                done += 1
            took = time.perf_counter() - began
            with lock:
                tally.cycles += done
                tally.seconds += took / len(job.clients)
        except Exception as problem:
            start.abort()
            with lock:
                tally.errors.append(f"{type(problem).__name__}: {problem}")

    threads = [threading.Thread(target=client, args=(key, row)) for key, row in job.clients]
    began = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tally.cpu = time.process_time() - began
    return tally


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(work(Job(**json.load(sys.stdin))))))
