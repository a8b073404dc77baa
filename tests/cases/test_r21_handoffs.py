"""R21: a handoff hands something over: its target can read it, take it, and holds nothing up by silence."""

from typing import Any

import pytest
from django.urls import reverse

from coordination import takeovers
from tests.auditing import log_in
from tests.cast import Agent, Human
from tests.clockwork import let_lease_run_out, uuid_of
from tests.passing import accept, hand_task, holder_of, let_offer_run_out, path
from titen.api.doors import transact

from .tools import events_of

STATE = {"step": 3, "of": 5}


@pytest.fixture
def held(agent: Agent) -> Any:
    """A's task with progress, a checkpoint, a comment and a payload."""
    agent.create("Roll out", payload={"service": "checkout"})
    claim = agent.claim()
    run, epoch = claim["run"]["id"], claim["lease"]["epoch"]
    agent.post(f"/runs/{run}/heartbeat", {"epoch": epoch, "progress": 60, "status": "Step 3 of 5"})
    agent.post(f"/tasks/{claim['task']['id']}/comments", {"body": "The second host is slow."})
    kept = agent.post("/checkpoints", {"run_id": run, "epoch": epoch, "state": STATE})
    own = agent.post("/checkpoints", {"subject_id": "runbook", "kind": "note", "state": "Drain first."})
    pack = agent.post("/contexts", {"items": [{"type": "checkpoint", "id": own["checkpoint_id"]}]})
    return {**claim, "checkpoint_id": kept["checkpoint_id"], "context_id": pack["context_id"]}


@pytest.fixture
def offered(agent: Agent, other: Agent, held: Any) -> Any:
    """All of it, offered to B."""
    names = {name: held[name] for name in ("checkpoint_id", "context_id")}
    return hand_task(held, agent, other, message="Step 4 is next.", **names)


def what_it_names(held: Any) -> list[str]:
    return [
        f"/tasks/{held['task']['id']}/context",
        f"/checkpoints/{held['checkpoint_id']}",
        f"/contexts/{held['context_id']}",
    ]


def test_the_target_reads_everything_it_names_from_pending_on(agent: Agent, other: Agent, held: Any) -> None:
    for place in what_it_names(held):
        other.refused("NOT_FOUND", place, method="GET")
    names = {name: held[name] for name in ("checkpoint_id", "context_id")}
    offered = hand_task(held, agent, other, message="Step 4 is next.", **names)

    (listed,) = other.get("/handoffs")["handoffs"]
    assert listed == offered
    for read_again in (False, True):
        if read_again:
            accept(other, offered)
        assert other.get(f"/tasks/{held['task']['id']}")["payload"] == {"service": "checkout"}
        assert other.get(f"/checkpoints/{held['checkpoint_id']}")["state"] == STATE
        pack = other.get(f"/contexts/{held['context_id']}")
        assert "Drain first." in str(pack)
        run = other.get(f"/runs/{held['run']['id']}")
        assert (run["progress"], run["status_line"]) == (60, "Step 3 of 5")
        (comment,) = other.get(f"/tasks/{held['task']['id']}/comments")["comments"]
        assert comment["body"] == "The second host is slow."
    context = other.get(f"/tasks/{held['task']['id']}/context")
    assert context["checkpoint"]["state"] == STATE
    assert context["handoff"]["message"] == "Step 4 is next."
    assert [one["body"] for one in context["comments"]] == ["The second host is slow."]


@pytest.mark.parametrize("end", ["rejected", "withdrawn", "expired"])
def test_what_came_to_nothing_opens_nothing_any_more(
    agent: Agent, other: Agent, held: Any, offered: Any, end: str
) -> None:
    if end == "rejected":
        other.post(path(offered, "resolve"), {"status": end})
    elif end == "withdrawn":
        agent.post(path(offered, "withdraw"), {})
    else:
        let_offer_run_out(offered)
    for place in what_it_names(held):
        other.refused("NOT_FOUND", place, method="GET")


def test_a_third_agent_neither_reads_nor_resolves(third: Agent, held: Any, offered: Any) -> None:
    for place in [*what_it_names(held), path(offered)]:
        third.refused("NOT_FOUND", place, method="GET")
    assert "payload" not in third.get(f"/tasks/{held['task']['id']}")
    for status in ("accepted", "rejected"):
        third.refused("NOT_FOUND", path(offered, "resolve"), {"status": status})
    third.refused("NOT_FOUND", path(offered, "withdraw"), {})


def test_the_senders_inbox_is_empty_and_it_finds_the_handoff_by_id(agent: Agent, offered: Any) -> None:
    assert agent.get("/handoffs")["handoffs"] == []
    assert agent.get(path(offered)) == offered
    assert agent.get("/handoffs?box=sent")["handoffs"] == [offered]


def test_acceptance_leaves_one_holder_with_a_higher_epoch(
    agent: Agent, other: Agent, held: Any, offered: Any
) -> None:
    claim = accept(other, offered)["claim"]
    assert claim["lease"]["epoch"] > held["lease"]["epoch"]
    assert holder_of(agent, held["task"]["id"]) == "bert"
    run, epoch = held["run"]["id"], held["lease"]["epoch"]
    for verb, more in (("heartbeat", {}), ("complete", {}), ("fail", {"error": "x"}), ("release", {})):
        agent.refused("LEASE_SUPERSEDED", f"/runs/{run}/{verb}", {"epoch": epoch, **more})
    agent.refused("LEASE_SUPERSEDED", "/checkpoints", {"run_id": run, "epoch": epoch, "state": 4})
    verify = {"resource_type": "task", "resource_id": held["task"]["id"]}
    assert agent.post("/fencing/verify", {**verify, "epoch": epoch})["valid"] is False
    assert other.post("/fencing/verify", {**verify, "epoch": claim["lease"]["epoch"]})["valid"] is True
    # Nothing of what A left is lost.
    assert other.get(f"/checkpoints/{held['checkpoint_id']}")["state"] == STATE
    lost = other.get(f"/runs/{run}")
    assert (lost["status"], lost["progress"]) == ("handed_off", 60)


def test_an_unanswered_offer_holds_the_task_no_longer_than_the_lease(
    agent: Agent, third: Agent, held: Any, offered: Any
) -> None:
    assert third.claim() is None
    let_lease_run_out(held)
    theirs = third.claim()
    assert theirs["task"]["id"] == held["task"]["id"]
    assert theirs["context"]["checkpoint"]["state"] == STATE
    let_offer_run_out(offered)
    assert agent.get(path(offered))["status"] == "expired"
    assert holder_of(agent, held["task"]["id"]) == "carl"


def test_a_human_sees_who_holds_until_when_and_takes_it_back_with_a_reason(
    agent: Agent, other: Agent, admin: Human, held: Any, offered: Any
) -> None:
    accept(other, offered)
    shown = agent.get(f"/tasks/{held['task']['id']}")
    assert (shown["standing"]["holder"], shown["standing"]["because"]) == ("bert", "handoff")
    browser = log_in(admin.user)
    page = browser.get(reverse("admin:coordination_handoff_changelist"))
    assert "bert" in page.content.decode()
    one = reverse("admin:coordination_handoff_change", args=[uuid_of(offered["handoff_id"])])
    assert "Step 4 is next." in browser.get(one).content.decode()
    task = uuid_of(held["task"]["id"])
    transact(
        lambda: takeovers.take_over(
            admin.caller, task, to=None, reason="Bert is on holiday.", epoch=shown["epoch"]
        )
    )
    assert holder_of(agent, held["task"]["id"]) is None
    comments = agent.get(f"/tasks/{held['task']['id']}/comments")["comments"]
    assert [one["body"] for one in comments] == ["The second host is slow.", "Bert is on holiday."]
    assert events_of(agent, kind="task.superseded", task_id=held["task"]["id"])
