"""Rounds of load: every kind of cycle in turn, so that what the machine does besides hits all alike."""

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict

from .load import KINDS, Job, Tally
from .site import Client

PROCESSES = 4


def run(kind: str, clients: list[Client], *, web: str, hub: str, seconds: float) -> Tally:
    """One round. RuntimeError with the first client's problem when one fails."""
    groups = [clients[at::PROCESSES] for at in range(PROCESSES)]
    processes = []
    for group in groups:
        if not group:
            continue
        job = Job(kind, web, hub, seconds, [[client.key, client.row] for client in group])
        process = subprocess.Popen(
            [sys.executable, "-m", "titen.bench.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        processes.append((process, json.dumps(asdict(job)).encode()))
    for process, job_text in processes:
        assert process.stdin
        process.stdin.write(job_text)
        process.stdin.close()
    tallies = []
    for process, _ in processes:
        assert process.stdout
        tallies.append(Tally(**json.loads(process.stdout.read())))
        process.wait()
    if errors := [error for tally in tallies for error in tally.errors]:
        raise RuntimeError(errors[0])
    whole = Tally(sum(tally.cycles for tally in tallies), cpu=sum(tally.cpu for tally in tallies))
    whole.seconds = statistics.mean(tally.seconds for tally in tallies)
    return whole


def compare(
    clients: list[Client],
    *,
    web: str,
    hub: str,
    seconds: float,
    rounds: int,
    before_round: Callable[[], None],
) -> dict[str, Tally]:
    """Every kind in `rounds` interleaved rounds; the sum of each. The first round only warms up."""
    sums: dict[str, Tally] = defaultdict(Tally)
    for number in range(rounds + 1):
        for kind in KINDS:
            before_round()
            tally = run(kind, clients, web=web, hub=hub, seconds=seconds if number else seconds / 4)
            if number:
                sums[kind].cycles += tally.cycles
                sums[kind].seconds += tally.seconds
                sums[kind].cpu += tally.cpu
    return dict(sums)
