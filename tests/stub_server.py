"""A tiny server of the contract that the SDK needs, in memory, with faults on demand.

It keeps leases and epochs by its own clock and refuses who lost them, remembers answers by
`Idempotency-Key`, and lets a test decide approvals, answer questions and script single answers.
"""

import json
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "titen_sk_test"
ENDS = {"complete": "succeeded", "fail": "failed", "release": "released"}
REFUSALS = {
    "succeeded": "ALREADY_COMPLETED",
    "abandoned": "LEASE_EXPIRED",
    "parked": "LEASE_EXPIRED",
    "superseded": "LEASE_SUPERSEDED",
    "cancelled": "TASK_CANCELLED",
}


class Refused(Exception):
    def __init__(self, status: int, code: str, retry_after: int | None = None, **details: Any) -> None:
        super().__init__(code)
        self.status, self.code, self.retry_after, self.details = status, code, retry_after, details


@dataclass
class Seen:
    """One request as it arrived. `body` is its JSON, `status` what was answered."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]
    key: str | None
    at: float
    status: int = 0


@dataclass
class Task:
    id: str
    fields: dict[str, Any] = field(default_factory=dict)
    status: str = "todo"
    questions: set[str] = field(default_factory=set)


@dataclass
class Attempt:
    """A run and its lease."""

    id: str
    task: Task
    epoch: int
    ttl: float
    expires_at: float
    status: str = "running"
    progress: int | None = None
    status_line: str = ""
    body: dict[str, Any] = field(default_factory=dict)


class StubServer:
    """`with StubServer(ttl=1) as server:` then `server.url`, `server.seen`, `server.wait_for(…)`."""

    def __init__(self, *, ttl: float = 2) -> None:
        self.ttl = ttl
        self.seen: list[Seen] = []
        self.tasks: list[Task] = []
        self.runs: dict[str, Attempt] = {}
        self.approvals: dict[str, dict[str, Any]] = {}
        self.comments: dict[str, dict[str, Any]] = {}
        self.directives: list[str] = []
        self.grant_delay = 0.0
        self.ignores_wait = False
        self._scripts: dict[str, deque[Refused]] = defaultdict(deque)
        self._always: dict[str, Refused] = {}
        self._answers: dict[str, tuple[int, Any]] = {}
        self._epoch = 0
        self.changed = threading.Condition()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.port: int = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> "StubServer":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def add_task(self, **fields: Any) -> Task:
        with self.changed:
            task = Task(f"task_{len(self.tasks) + 1}", fields)
            self.tasks.append(task)
            self.changed.notify_all()
        return task

    def script(self, what: str, status: int, code: str, *, times: int = 1, **details: Any) -> None:
        """Answer the next `times` requests whose path ends in `what` with this error."""
        for _ in range(times):
            self._scripts[what].append(Refused(status, code, **details))

    def always(self, what: str, status: int, code: str, **details: Any) -> None:
        """Answer every request whose path ends in `what` with this error."""
        self._always[what] = Refused(status, code, **details)

    def no_longer(self, what: str) -> None:
        """End what `always` began."""
        with self.changed:
            del self._always[what]

    def sent(self, what: str = "") -> list[Seen]:
        """The requests whose path ends in `what`."""
        with self.changed:
            return [seen for seen in self.seen if seen.path.endswith(what)]

    def wait_for(self, condition: Any, timeout: float = 10) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout), "the server never saw it"

    def wait_for_requests(self, what: str, count: int = 1) -> None:
        self.wait_for(
            lambda: sum(seen.status > 0 and seen.path.endswith(what) for seen in self.seen) >= count
        )

    def wait_for_expiry(self, run_id: str) -> None:
        """Until the run's lease has run out here too."""
        with self.changed:
            while (left := self.runs[run_id].expires_at - time.monotonic()) > 0:
                self.changed.wait(left)
            self.sweep()

    def decide(self, approval_id: str, decision: str | None, status: str = "decided") -> None:
        with self.changed:
            self.approvals[approval_id] |= {"status": status, "decision": decision}
            self._unblock(approval_id)

    def answer(self, comment_id: str, body: str) -> None:
        with self.changed:
            self.comments[comment_id]["answer"] = {
                "body": body,
                "answered_by": "Ada",
            }
            self._unblock(comment_id)

    def withdraw(self, comment_id: str) -> None:
        with self.changed:
            self.comments[comment_id]["withdrawn"] = True
            self.changed.notify_all()

    def end(self, run_id: str, status: str, task_status: str) -> None:
        """A human moved the task: takeover (`superseded`), cancel (`cancelled`), …"""
        with self.changed:
            run = self.runs[run_id]
            run.status, run.task.status = status, task_status
            self.changed.notify_all()

    def sweep(self) -> None:
        """Write down what has run out."""
        for run in self.runs.values():
            if run.status in ("running", "waiting") and run.expires_at <= time.monotonic():
                run.status = "parked" if run.task.questions else "abandoned"
                run.task.status = "blocked" if run.task.questions else "todo"
                self.changed.notify_all()

    def _unblock(self, question: str) -> None:
        self.sweep()
        for task in self.tasks:
            if question in task.questions:
                task.questions.discard(question)
                if not task.questions:
                    waiting = [r for r in self.runs.values() if r.task is task and r.status == "waiting"]
                    task.status = "in_progress" if waiting else "todo"
                    for run in waiting:
                        run.status = "running"
        self.changed.notify_all()

    def handle(self, seen: Seen) -> tuple[int, Any]:
        for what, refusal in self._always.items():
            if seen.path.endswith(what):
                raise refusal
        for what, refusals in self._scripts.items():
            if seen.path.endswith(what) and refusals:
                raise refusals.popleft()
        if seen.key in self._answers and not seen.path.endswith("/heartbeat"):
            return self._answers[seen.key]
        self.sweep()
        status, data = self._route(seen)
        if seen.key is not None and seen.method == "POST" and status != 204:
            self._answers[seen.key] = (status, data)
        return status, data

    def _route(self, seen: Seen) -> tuple[int, Any]:
        body = seen.body
        match seen.method, seen.path.strip("/").split("/")[1:]:
            case "GET", ["principal"]:
                return 200, {"principal_id": "agent_1", "name": "tester", "kind": "agent"}
            case "GET", ["events"]:
                return 200, {"events": [], "query": seen.query}
            case "POST", ["tasks"]:
                self.tasks.append(task := Task(f"task_{len(self.tasks) + 1}", body))
                return 201, self._task(task)
            case "POST", ["tasks", "claim"]:
                return self._claim(body, self._wait(seen))
            case "GET", ["tasks", task_id]:
                return 200, self._task(self._find(task_id))
            case "POST", ["tasks", task_id, "comments"]:
                return self._comment(self._find(task_id), body)
            case "GET", ["tasks", _, "comments", comment_id]:
                comment = self.comments[comment_id]
                self._hold(seen, lambda: comment["answer"] is not None or comment["withdrawn"])
                return 200, comment
            case "POST", ["approvals"]:
                return self._approval(body)
            case "GET", ["approvals", approval_id]:
                approval = self.approvals[approval_id]
                self._hold(seen, lambda: approval["status"] != "pending")
                return 200, approval
            case "POST", ["runs", run_id, "heartbeat"]:
                return 200, self._heartbeat(self._held(run_id, body), body)
            case "POST", ["runs", run_id, "complete" | "fail" | "release" as action]:
                return 200, self._end(self._held(run_id, body), action, body)
        raise Refused(404, "NOT_FOUND")

    def _hold(self, seen: Seen, done: Any) -> None:
        self.changed.wait_for(done, self._wait(seen))

    def _wait(self, seen: Seen) -> float:
        return 0 if self.ignores_wait else float(seen.query.get("wait", 0))

    def _find(self, task_id: str) -> Task:
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise Refused(404, "NOT_FOUND")

    def _held(self, run_id: str, body: dict[str, Any]) -> Attempt:
        run = self.runs.get(run_id)
        if run is None:
            raise Refused(404, "NOT_FOUND")
        if run.status not in ("running", "waiting"):
            raise Refused(409, REFUSALS.get(run.status, "CONFLICT"))
        if body.get("epoch") != run.epoch:
            raise Refused(409, "STALE_EPOCH")
        return run

    def _claim(self, body: dict[str, Any], wait: float = 0) -> tuple[int, Any]:
        wanted = body.get("task_id")

        def ready() -> Task | None:
            self.sweep()
            tasks = [t for t in self.tasks if t.status == "todo" and wanted in (None, t.id)]
            return tasks[0] if tasks else None

        if not (task := ready()) and wait and not wanted:
            self.changed.wait_for(lambda: ready() is not None, wait)
            task = ready()
        if task is None:
            if wanted:
                raise Refused(409, "NOT_CLAIMABLE", waits_for=[])
            return 204, None
        self._epoch += 1
        ttl = float(body.get("ttl_seconds") or self.ttl)
        run = Attempt(f"run_{self._epoch}", task, self._epoch, ttl, time.monotonic() + ttl)
        self.runs[run.id] = run
        task.status = "in_progress"
        self.changed.notify_all()
        if self.grant_delay:
            self.changed.wait_for(lambda: False, self.grant_delay)
        return 200, {
            "task": self._task(task),
            "run": {"id": run.id, "epoch": run.epoch, "status": run.status},
            "lease": self._lease(run),
            "heartbeat_interval_seconds": ttl / 3,
            "server_time": "2026-01-01T00:00:00.000Z",
            "context": {"attempts": run.epoch - 1},
        }

    def _heartbeat(self, run: Attempt, body: dict[str, Any]) -> dict[str, Any]:
        run.ttl = body.get("ttl_seconds", run.ttl)
        run.expires_at = max(run.expires_at, time.monotonic() + run.ttl)
        run.progress = body.get("progress", run.progress)
        run.status_line = body.get("status", run.status_line)
        return {
            "lease": self._lease(run),
            "directives": list(self.directives),
            "resolved_approvals": [],
            "answers": [],
            "run": {"id": run.id, "status": run.status},
        }

    def _end(self, run: Attempt, action: str, body: dict[str, Any]) -> dict[str, Any]:
        run.status, run.body = ENDS[action], body
        run.task.status = "done" if action == "complete" else "todo"
        if action == "fail":
            run.task.status = "blocked"
        following = (
            self._claim({"ttl_seconds": body.get("ttl_seconds")})[1] if body.get("claim_next") else None
        )
        return {"task": self._task(run.task), "run": {"id": run.id, "status": run.status}, "next": following}

    def _approval(self, body: dict[str, Any]) -> tuple[int, Any]:
        run = self._held(body["run_id"], body)
        approval = {"id": f"appr_{len(self.approvals) + 1}", "status": "pending", "decision": None, **body}
        self.approvals[approval["id"]] = approval
        self._wait_in(run, approval["id"])
        return 201, approval

    def _comment(self, task: Task, body: dict[str, Any]) -> tuple[int, Any]:
        comment = {"id": f"cmt_{len(self.comments) + 1}", "answer": None, "withdrawn": False, **body}
        if body.get("run_id"):
            run = self._held(body["run_id"], body)
            if body.get("blocking"):
                self._wait_in(run, comment["id"])
        self.comments[comment["id"]] = comment
        self.changed.notify_all()
        return 201, comment

    def _wait_in(self, run: Attempt, question: str) -> None:
        run.status, run.task.status = "waiting", "blocked"
        run.task.questions.add(question)
        self.changed.notify_all()

    def _task(self, task: Task) -> dict[str, Any]:
        return {"title": task.id, "payload": None, **task.fields, "id": task.id, "status": task.status}

    def _lease(self, run: Attempt) -> dict[str, Any]:
        return {
            "lease_id": f"lease_{run.epoch}",
            "epoch": run.epoch,
            "ttl_seconds": run.ttl,
            "expires_at": "2026-01-01T00:00:00.000Z",
            "certainty": "held",
        }


def _handler(stub: StubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            url = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen = Seen(
                self.command,
                url.path,
                {name: values[0] for name, values in parse_qs(url.query).items()},
                json.loads(raw or b"{}"),
                self.headers.get("Idempotency-Key"),
                time.monotonic(),
            )
            headers = {}
            with stub.changed:
                stub.seen.append(seen)
                stub.changed.notify_all()
                try:
                    if self.headers.get("Authorization") != f"Bearer {KEY}":
                        raise Refused(401, "UNAUTHENTICATED")
                    status, data = stub.handle(seen)
                    content: dict[str, Any] = {"data": data}
                except Refused as refusal:
                    status = refusal.status
                    message = f"Refused as {refusal.code}."
                    content = {
                        "error": {"code": refusal.code, "message": message, "details": refusal.details}
                    }
                    if refusal.retry_after is not None:
                        headers["Retry-After"] = str(refusal.retry_after)
                seen.status = status
                content = json.loads(json.dumps(content | {"meta": {"request_id": f"req_{len(stub.seen)}"}}))
                stub.changed.notify_all()
            payload = b"" if status == 204 else json.dumps(content).encode()
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                if status != 204:
                    self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
