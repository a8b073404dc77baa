"""The SDK after `os.fork()`: the child has connections of its own, and holds nothing of what its parent holds."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from .acting import rule
from .cast import Agent, Company
from .following import write_events
from .hub import run_hub
from .leasing import history
from .servers import REPOSITORY, Server

pytestmark = pytest.mark.alone

BEGINNING = """
import atexit, json, os, signal, sys, threading, time, traceback
from titen.client import *

def child(work):
    "Do it in a child, which ends without unwinding what it inherited."
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a deadlock is a failure
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid

def say(value):
    os.write(1, (json.dumps(value) + chr(10)).encode())

def join(*pids):
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert not any(ended), ended

titen = Titen(sys.argv[1], sys.argv[2], retry_for=5)
atexit.register(titen.close)
"""


# That a process with threads is forked is what is tried here.
WARNINGS = ("-W", "error::ResourceWarning", "-W", "ignore:This process:DeprecationWarning")


def script(agent: Agent, code: str, *, url: str = "") -> list[Any]:
    """What `code` prints, a JSON value a line, in a process of its own that is the agent."""
    done = subprocess.run(
        [sys.executable, *WARNINGS, "-c", BEGINNING + code, url or agent.url, agent.secret],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_8_children_that_each_claim_and_complete_do_each_another_task(agent: Agent) -> None:
    tasks = {agent.create(f"Work {number}")["id"] for number in range(8 * 3)}
    done = script(
        agent,
        """
titen.principal()  # so that there is a connection to share

def work():
    run = titen.claim()
    with run:
        run.progress(50)
        run.complete("Done.")
    say([run.id, run.task["id"], run.outcome])

for _ in range(3):
    join(*[child(work) for _ in range(8)])
say(titen.principal()["name"])
""",
    )
    assert done.pop() == agent.get("/principal")["name"]
    assert {task for _, task, _ in done} == tasks
    assert len({run for run, _, _ in done}) == len(done) == len(tasks)
    assert {outcome for _, _, outcome in done} == {"completed"}
    assert {agent.get(f"/tasks/{task}")["status"] for task in tasks} == {"done"}


# How a child can leave the block that its parent is in.
WAYS_OUT = {
    "return": "return",
    "an exception": "raise ValueError('in the child')",
    "exit": "sys.exit(0)",
    "Ctrl-C": "raise KeyboardInterrupt",
    "the end of the block": "pass",
    "a lost connection": "raise Unreachable('in the child')",
}


@pytest.mark.parametrize("way_out", WAYS_OUT.values(), ids=WAYS_OUT)
def test_a_child_that_leaves_its_parents_blocks_ends_nothing(agent: Agent, way_out: str) -> None:
    task = agent.create()["id"]
    code = f"""
def block():
    with titen, titen.claim() as run, titen.lease("deploy", "checkout") as lease, \\
            titen.lease_all([("deploy", "red"), ("deploy", "blue")]) as leases:
        pid = os.fork()
        if pid == 0:
            {way_out}
        else:
            join(pid)
            run.heartbeat(); lease.renew(); leases.guard()
            run.complete("The parent did it.")
    return pid

mother = os.getpid()
try:
    pid = block()
except BaseException:
    assert os.getpid() != mother
if os.getpid() != mother:
    os._exit(0)
say("parent")
"""
    assert script(agent, code) == ["parent"]
    assert agent.get(f"/tasks/{task}")["status"] == "done"
    assert [history(agent, name) for name in ("checkout", "red", "blue")] == [[(1, "released")]] * 3


CALLS = {
    "run.heartbeat": "run.heartbeat()",
    "run.progress": "run.progress(50)",
    "run.guard": "run.guard()",
    "run.complete": "run.complete()",
    "run.fail": "run.fail('no')",
    "run.release": "run.release()",
    "run.comment": "run.comment('Hello.')",
    "run.checkpoint": "run.checkpoint({})",
    "run.ask": "run.ask('May I?', ['Yes', 'No'])",
    "run.ask_question": "run.ask_question('Where?')",
    "run.act": "run.act('deploy', {}, lambda effect: None, effect_key='2', question='May I?')",
    "run.authorize": "run.authorize('deploy', {}, effect_key='2')",
    "run.hand_off": "run.hand_off('somebody')",
    "run.sequencer": "run.sequencer()",
    "run.wait_while_paused": "run.wait_while_paused()",
    "run.stop": "run.stop()",
    "claimed.__enter__": "claimed.__enter__()",
    "lease.guard": "lease.guard()",
    "lease.renew": "lease.renew()",
    "lease.release": "lease.release()",
    "lease.authorize": "lease.authorize('read', {}, effect_key='2')",
    "lease.sequencer": "lease.sequencer()",
    "lease.stop": "lease.stop()",
    "leases.guard": "leases.guard()",
    "effect.report": "effect.report('failed')",
    "effect.succeeded": "effect.succeeded()",
}


def test_every_call_on_what_is_the_parents_raises_one_error_and_sends_nothing(
    agent: Agent, company: Company
) -> None:
    rule(company, "allow")
    for _ in range(2):
        agent.create()
    found = script(
        agent,
        f"""
calls = {CALLS!r}

def work():
    raised = dict()
    for name, call in calls.items():
        try:
            eval(call)
            raised[name] = None
        except TitenError as error:
            raised[name] = error.code
    with effect:
        pass
    say(raised)
    say([str(run.state), run.remaining_seconds, run.outcome, str(lease.state), lease.remaining_seconds])
    say([repr(run) != "", repr(lease) != ""])

claimed = titen.claim()
with titen.claim() as run, titen.lease("deploy", "checkout") as lease, titen.lease_all([("a", "b")]) as leases:
    effect = run.authorize("deploy", {{}}, effect_key="1")
    join(child(work))
    assert effect.outcome is None
    effect.succeeded()
    run.complete()
claimed.release()
""",
    )
    assert found[0] == dict.fromkeys(CALLS, "WRONG_PROCESS")
    assert found[1] == ["lost", 0.0, None, "lost", 0.0]


def test_a_child_of_a_process_with_busy_threads_does_not_wait_for_their_locks(agent: Agent) -> None:
    code = """
busy = True

def hammer():
    while busy:
        run.progress(1); run.remaining_seconds; lease.remaining_seconds; titen._remember(run)
        titen.principal()

with titen.claim() as run, titen.lease("deploy", "checkout") as lease:
    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads: thread.start()

    def work():
        assert titen.principal()["name"]
        assert str(run.state) == str(lease.state) == "lost"
        titen.close()

    for _ in range(15):
        join(child(work))
    busy = False
    for thread in threads: thread.join()
    run.complete()
"""
    agent.create()
    assert script(agent, code) == []


def test_a_child_of_a_handler_ends_its_copy_of_the_loop(agent: Agent) -> None:
    """The loop is the parent's: a child that comes back from the handler claims nothing."""
    for _ in range(3):
        agent.create()
    code = """
children = []

def handler(run):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        if len(children) == 1:
            raise ValueError("in the child")
        return
    children.append(pid)
    os.waitpid(pid, 0)
    run.complete()

mother = os.getpid()
try:
    handled = titen.work(handler, until_empty=True)
except ValueError:
    assert os.getpid() != mother
    os._exit(0)
if os.getpid() != mother:
    os._exit(0)
say([handled, len(children)])
"""
    assert script(agent, code) == [[3, 3]]
    assert {task["status"] for task in agent.get("/tasks")["tasks"]} == {"done"}
    assert {task["attempt_count"] for task in agent.get("/tasks")["tasks"]} == {0}


def test_a_closed_client_is_closed_in_a_child_too(agent: Agent) -> None:
    code = """
def work():
    try:
        titen.principal()
    except RuntimeError as error:
        say(str(error))

titen.principal()
titen.close()
join(child(work))
"""
    assert script(agent, code) == ["This Titen client is closed."]


@pytest.fixture(scope="module")
def hub(database: None) -> Iterator[Server]:
    with run_hub("tests.hub_quick:application") as server:
        yield server
        assert not server.trouble()


def test_a_stream_that_is_read_in_a_child_takes_nothing_from_its_parent(
    hub: Server, agent: Agent, company: Company
) -> None:
    write_events(company, 20)
    code = """
following = titen.events(after="0")
first = [next(following)["cursor"] for _ in range(3)]

def work():
    try:
        next(following)
    except WrongProcess:
        say("refused")
    say(next(titen.events(after="0"))["cursor"])

join(child(work))
say(first + [next(following)["cursor"] for _ in range(10)])
following.close()
"""
    found = script(agent, code, url=hub.url)
    assert found == ["refused", "1", [str(number) for number in range(1, 14)]]
