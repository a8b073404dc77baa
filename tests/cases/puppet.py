"""Processes for the cases. `python -m tests.cases.puppet agent|sweeper`; orders are lines of JSON."""

import json
import os
import signal
import sys
import threading
from typing import Any


def say(what: Any) -> None:
    """Answer with a line of JSON."""
    print(json.dumps(what), flush=True)


def act_as_agent() -> None:
    """Sends what it is told to; `beat` heartbeats beside that, `claim_and_die` is the poison task's way."""
    import httpx

    client = httpx.Client(
        base_url=os.environ["PUPPET_URL"],
        headers={"Authorization": f"Bearer {os.environ['PUPPET_KEY']}"},
        timeout=30,
    )
    beats: list[int] = []
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        match order["do"]:
            case "send":
                answer = client.post(order["path"], json=order["body"])
                say({"status": answer.status_code, "content": answer.json() if answer.content else None})
            case "beat":

                def beat(order: Any = order) -> None:
                    while True:
                        beats.append(client.post(order["path"], json=order["body"]).status_code)
                        if beats[-1] != 200:
                            return
                        threading.Event().wait(order["every"])

                threading.Thread(target=beat, daemon=True).start()
            case "beats":
                say(beats)
            case "claim_and_die":
                answer = client.post("/v1/tasks/claim", json=order["body"])
                say({"status": answer.status_code, "content": answer.json() if answer.content else None})
                if answer.status_code == 200:
                    os.kill(os.getpid(), signal.SIGKILL)


def act_as_sweeper() -> None:
    """Sweeps again and again from the first order on, until its standard input ends."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "titen.settings")
    django.setup()
    from approvals.jobs import expire
    from coordination.jobs import sweep

    stopped = threading.Event()
    say("ready")
    for line in sys.stdin:
        every = json.loads(line)["every"]

        def work(every: float = every) -> None:
            while not stopped.is_set():
                sweep()
                expire()
                stopped.wait(every)

        threading.Thread(target=work, daemon=True).start()
    stopped.set()


if __name__ == "__main__":
    {"agent": act_as_agent, "sweeper": act_as_sweeper}[sys.argv[1]]()
