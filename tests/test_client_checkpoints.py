"""The SDK keeps checkpoints and packs on a real server: versions, the holder's word, lost answers."""

from collections.abc import Iterator
from typing import Any

import pytest

from titen.client import LeaseLost, LeaseState, Run, Titen, VersionMismatch

from .cast import Agent
from .locking import until
from .proxy import Proxy
from .servers import Server

STATE = {"step": "smoke", "passed": 12}


@pytest.fixture
def titen(agent: Agent) -> Iterator[Titen]:
    with Titen(agent.url, agent.secret, retry_for=5) as client:
        yield client


@pytest.fixture
def proxy(web: Server) -> Iterator[Proxy]:
    with Proxy(web.port) as proxy:
        yield proxy


@pytest.fixture
def far(agent: Agent, proxy: Proxy) -> Iterator[Titen]:
    """`agent`, reaching the server through the proxy."""
    with Titen(proxy.url, agent.secret, timeout=2, retry_for=5) as client:
        yield client


def working(titen: Titen, ttl_seconds: int = 60) -> Run:
    run = titen.claim(task_id=titen.create_task("Roll out")["id"], ttl_seconds=ttl_seconds)
    assert run is not None
    return run


def test_a_checkpoint_has_versions_and_each_can_be_read(titen: Titen) -> None:
    first = titen.checkpoint("build-41", STATE)
    second = titen.checkpoint("build-41", None, expected_version=1)
    assert (first["version"], second["version"]) == (1, 2)
    assert titen.read_checkpoint(first)["state"] is None
    assert titen.read_checkpoint(first, version=1)["state"] == STATE
    history = [(each["version"], each["state_hash"]) for each in titen.checkpoint_history(first)]
    assert history == [(2, second["state_hash"]), (1, first["state_hash"])]


def test_checkpoints_are_found_by_what_they_are_about(titen: Titen) -> None:
    with working(titen) as run:
        of_task = run.checkpoint(STATE)
        run.complete()
    of_build = titen.checkpoint("build-41", STATE, kind="notes")
    me = titen.principal()["principal_id"]
    for wish, found in (
        ({}, [of_build, of_task]),
        ({"subject_id": "build-41"}, [of_build]),
        ({"kind": "work"}, [of_task]),
        ({"task": run.task["id"]}, [of_task]),
        ({"agent": me, "kind": "notes"}, [of_build]),
    ):
        ids = [each["checkpoint_id"] for each in titen.checkpoints(**wish)]
        assert ids == [each["checkpoint_id"] for each in found], wish


@pytest.mark.parametrize("kept", [True, False])
def test_another_version_is_told_with_the_one_that_stands(titen: Titen, kept: bool) -> None:
    standing = titen.checkpoint("build-41", STATE) if kept else None
    with pytest.raises(VersionMismatch) as raised:
        titen.checkpoint("build-41", {}, expected_version=7)
    assert raised.value.details == {
        "current_version": 1 if kept else 0,
        "state_hash": standing["state_hash"] if standing else None,
    }


def test_the_next_run_finds_what_the_last_one_kept(titen: Titen) -> None:
    with working(titen) as run:
        kept = run.checkpoint(STATE, expected_version=0)
        assert (kept["subject_id"], kept["task_id"]) == (run.task["id"], run.task["id"])
        assert (kept["run_id"], kept["epoch"], kept["kind"]) == (run.id, run.epoch, "work")
        run.checkpoint(None, kind="nothing yet")
        run.checkpoint({**STATE, "passed": 13}, expected_version=1)
    again = titen.claim(task_id=run.task["id"])
    assert again is not None
    with again:
        assert again.context["checkpoint"]["state"] == {**STATE, "passed": 13}
        again.complete()


def test_who_has_lost_its_lease_keeps_nothing_about_the_task(titen: Titen, other: Agent) -> None:
    run = working(titen, ttl_seconds=1)
    until(lambda: run.state is LeaseState.LOST, "the loss")
    with pytest.raises(LeaseLost) as raised:
        run.checkpoint(STATE)
    assert raised.value.status is None, "nothing was sent"
    assert list(titen.checkpoints()) == []


def test_in_jeopardy_a_run_can_still_keep_what_it_knows(titen: Titen) -> None:
    run = working(titen, ttl_seconds=4)
    until(lambda: run.state is LeaseState.JEOPARDY, "jeopardy")
    assert run.checkpoint(STATE)["version"] == 1
    run.release()


@pytest.mark.parametrize("by_run", [True, False])
def test_a_checkpoint_whose_answer_was_lost_is_written_once(far: Titen, proxy: Proxy, by_run: bool) -> None:
    with working(far) as run:
        proxy.cut_replies(times=2, path="/v1/checkpoints")
        kept: Any = run.checkpoint(STATE) if by_run else far.checkpoint("build-41", STATE, expected_version=0)
        assert proxy.cuts == 2
        assert kept["version"] == 1
        assert far.read_checkpoint(kept)["version"] == 1
        run.complete()


def test_a_pack_pins_what_others_read_under_their_own_rights(titen: Titen, other: Agent) -> None:
    task = titen.create_task("Roll out", payload={"build": 41})
    comment = titen.comment(task["id"], "Smoke passed.")
    first = titen.checkpoint("build-41", STATE)
    titen.checkpoint("build-41", {})
    pack = titen.context_pack(
        [task["id"], comment["id"], first, first["checkpoint_id"]],
        subject_id="build-41",
        note="Read the first version.",
        task_id=task["id"],
    )
    assert [(item["type"], item["version"]) for item in pack["items"]] == [
        ("task", None),
        ("comment", None),
        ("checkpoint", 1),
        ("checkpoint", 2),
    ]
    read = titen.read_context(pack)
    assert [item["content"]["state"] for item in read["items"][2:]] == [STATE, {}]
    titen.handoff("bert", subject_id="build-41", context_id=pack["context_id"])
    with Titen(other.url, other.secret) as theirs:
        theirs_read = theirs.read_context(pack["context_id"])
    assert "payload" not in theirs_read["items"][0]["content"]
    assert theirs_read["note"] == "Read the first version."


def test_a_pack_names_only_what_can_be_pinned(titen: Titen) -> None:
    with pytest.raises(ValueError, match="not 'lease_0'"):
        titen.context_pack(["lease_0"])
