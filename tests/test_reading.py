"""Who may read what: every reader, and each thing that is not for everybody in the organization."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from coordination import identity, reading
from coordination.models import Checkpoint, ContextPack, Handoff, Task

from .cast import Agent, Company, found_company
from .clockwork import let_lease_run_out, pass_time, uuid_of
from .keeping import OVER, hand
from .servers import Server
from .sessions import Session

SECRET = "xylophone"
LIVE = ("pending", "accepted")
GONE = (*OVER, "run out")


@dataclass
class Things:
    """A task that `creator` made, `former` had and `holder` has, and what they keep about it."""

    company: Company
    creator: Agent
    former: Agent
    holder: Agent
    task: str
    run: str
    under_lease: Any
    alone: Any
    pack: Any


@pytest.fixture(scope="module")
def things(web: Server) -> Iterator[Things]:
    """Everything says SECRET where it is private."""
    company = found_company(web.url)
    creator, former, holder = (company.agent(name) for name in ("creator", "former", "holder"))
    task = creator.create("Private work", payload={"is": SECRET})["id"]
    lost = former.claim(task_id=task)
    run, epoch = lost["run"]["id"], lost["lease"]["epoch"]
    under_lease = former.post("/checkpoints", {"run_id": run, "epoch": epoch, "state": SECRET})
    former.post(f"/runs/{run}/fail", {"epoch": epoch, "error": SECRET})
    pass_time(task, "backoff_until")
    alone = holder.post("/checkpoints", {"subject_id": "customer-7", "state": SECRET})
    pins = [
        {"type": "checkpoint", "id": alone["checkpoint_id"]},
        {"type": "task", "id": task},
        {"type": "run", "id": run},
    ]
    assert holder.claim(task_id=task)
    pack = holder.post("/contexts", {"task_id": task, "note": SECRET, "items": pins})
    yield Things(company, creator, former, holder, task, run, under_lease, alone, pack)
    for agent in company.agents:
        agent.close()


@pytest.fixture
def offer(things: Things) -> Iterator[Callable[..., Any]]:
    """Make a handoff, which is gone after the test."""
    made: list[Handoff] = []
    yield lambda *people, **names: made.append(hand(*people, **names))
    for each in made:
        each.delete()


def sees(reader: Agent, things: Things) -> dict[str, bool]:
    """Which of the private things the reader is shown, through every door that might show it."""

    def private(path: str) -> bool:
        answer = reader.send("GET", path)
        assert answer.status_code in (200, 404), answer.text
        return SECRET in answer.text

    under_lease, alone = (each["checkpoint_id"] for each in (things.under_lease, things.alone))
    listed = {each["checkpoint_id"] for each in reader.get("/checkpoints")["checkpoints"]}
    seen = {
        "task": private(f"/tasks/{things.task}"),
        "context": private(f"/tasks/{things.task}/context"),
        "run": private(f"/runs/{things.run}"),
        "under lease": private(f"/checkpoints/{under_lease}"),
        "alone": private(f"/checkpoints/{alone}"),
        "pack": private(f"/contexts/{things.pack['context_id']}"),
    }
    for name, checkpoint in (("under lease", under_lease), ("alone", alone)):
        history = reader.send("GET", f"/checkpoints/{checkpoint}/history").status_code == 200
        assert seen[name] == history == (checkpoint in listed), name
    return seen


def only(*names: str) -> dict[str, bool]:
    """What `sees` finds when these are all."""
    known = ("task", "context", "run", "under lease", "alone", "pack")
    return {name: name in names for name in known}


OF_THE_TASK = ("task", "context", "run", "under lease", "pack")
READERS: dict[str, tuple[Callable[[Things], Agent], dict[str, bool]]] = {
    "the holder": (lambda things: things.holder, only(*OF_THE_TASK, "alone")),
    "the task's creator": (lambda things: things.creator, only(*OF_THE_TASK)),
    # What it wrote itself it may read for ever.
    "a former holder": (lambda things: things.former, only("run", "under lease")),
    "a stranger": (lambda things: things.company.agent(), only()),
}


@pytest.mark.parametrize("who", READERS)
def test_what_a_reader_sees(things: Things, who: str) -> None:
    reader, expected = READERS[who]
    assert sees(reader(things), things) == expected


def test_a_holder_whose_lease_has_run_out_is_a_former_one(company: Company) -> None:
    creator, holder = company.agent(), company.agent()
    task = creator.create(payload={"is": SECRET})["id"]
    claim = holder.claim(task_id=task)
    assert holder.get(f"/tasks/{task}/context")["payload"] == {"is": SECRET}
    let_lease_run_out(claim)
    holder.refused("NOT_FOUND", f"/tasks/{task}/context", method="GET")
    assert "payload" not in holder.get(f"/tasks/{task}")


NAMES: dict[str, tuple[Callable[[Things], dict[str, Any]], dict[str, bool]]] = {
    "the task": (lambda things: {"task": things.task}, only(*OF_THE_TASK)),
    "a checkpoint": (
        lambda things: {"checkpoint": things.alone["checkpoint_id"], "version": 1},
        only("alone"),
    ),
    "a pack": (lambda things: {"context": things.pack["context_id"]}, only("pack", "alone")),
    "a subject": (lambda things: {}, only()),
}


@pytest.mark.parametrize("status", [*LIVE, *GONE])
@pytest.mark.parametrize("what", NAMES)
def test_what_the_target_of_a_handoff_sees(things: Things, offer: Any, what: str, status: str) -> None:
    """From pending on; after rejection, withdrawal and expiry, swept or not, no longer."""
    target = things.company.agent()
    names, opened = NAMES[what]
    offer(target, things.holder, status=status, **names(things))
    assert sees(target, things) == (opened if status in LIVE else only())


def test_a_handoff_opens_the_version_that_it_names(things: Things, offer: Any) -> None:
    for step in (1, 2, 3):
        kept = things.holder.post("/checkpoints", {"subject_id": "customer-8", "state": step})
    target, path = things.company.agent(), f"/checkpoints/{kept['checkpoint_id']}"
    offer(target, things.holder, checkpoint=kept["checkpoint_id"], version=2)
    assert (target.get(path)["version"], target.get(path)["state"]) == (2, 2)
    assert [each["version"] for each in target.get(f"{path}/history")["versions"]] == [2]
    assert [each["version"] for each in target.get("/checkpoints")["checkpoints"]] == [2]
    for version in (1, 3):
        target.refused("NOT_FOUND", f"{path}?version={version}", method="GET")


def test_a_handoff_is_nobody_elses(things: Things, offer: Any) -> None:
    offer(things.company.agent(), things.holder, **NAMES["the task"][0](things))
    assert sees(things.company.agent(), things) == only()


def test_somebody_elses_pack_opens_nothing_that_its_sender_may_not_read(things: Things, offer: Any) -> None:
    """The creator may read the pack, but not the holder's own checkpoint in it; nor may whom it hands it to."""
    target = things.company.agent()
    offer(target, things.creator, **NAMES["a pack"][0](things))
    assert sees(target, things) == only("pack")


def test_a_key_needs_the_scope_of_the_door_as_well(things: Things) -> None:
    _, secret = identity.issue_key(things.holder.principal, scopes=["contexts:read"])
    narrow = Agent(things.holder.principal, secret, things.holder.url)
    things.company.agents.append(narrow)
    for path in ("/checkpoints", f"/checkpoints/{things.alone['checkpoint_id']}"):
        assert narrow.refused("FORBIDDEN", path, method="GET")["details"] == {"scope": "checkpoints:read"}
    pack = narrow.get(f"/contexts/{things.pack['context_id']}")
    assert [item["readable"] for item in pack["items"]] == [False, False, False]


def test_every_human_of_the_organization_may_read_it(things: Things, web: Server) -> None:
    admin, viewer = things.company.human("admin"), things.company.human("viewer")
    task = Task.objects.get(pk=uuid_of(things.task))
    pack = ContextPack.objects.get(pk=uuid_of(things.pack["context_id"]))
    kept = Checkpoint.objects.get(pk=uuid_of(things.alone["checkpoint_id"]))
    for human in (admin, viewer):
        assert reading.may_read_task(human.caller, task)
        assert reading.may_read_context(human.caller, pack)
        assert reading.may_read_checkpoint(human.caller, kept, 1)
        assert {found.pk for found in reading.readable_checkpoints(human.caller)} >= {kept.pk}
    with Session(admin, web.url) as session:
        page = session.client.get(f"/tasks/{things.task}")
        assert page.status_code == 200
        assert page.text.count(SECRET) >= 3
