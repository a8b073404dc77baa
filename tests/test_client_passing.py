"""The SDK passes work on, against a real server: handoffs as runs, a clean end for who hands off, messages."""

import logging
import threading
from collections.abc import Iterator

import pytest

from titen.client import (
    Conflict,
    HandedOff,
    LeaseState,
    LeaseSuperseded,
    NotClaimable,
    NotFound,
    Run,
    Titen,
    ValidationError,
)

from .cast import Agent, Company
from .locking import until
from .passing import accept, holder_of
from .proxy import Proxy
from .servers import Server

TTL = 2
"""Seconds of a lease here: heartbeats each 0.67 s."""


@pytest.fixture
def ada(agent: Agent) -> Iterator[Titen]:
    with Titen(agent.url, agent.secret, retry_for=5) as client:
        yield client


@pytest.fixture
def bert(other: Agent) -> Iterator[Titen]:
    with Titen(other.url, other.secret, retry_for=5) as client:
        yield client


@pytest.fixture
def proxy(web: Server) -> Iterator[Proxy]:
    with Proxy(web.port) as proxy:
        yield proxy


@pytest.fixture
def far_bert(other: Agent, proxy: Proxy) -> Iterator[Titen]:
    """`bert`, reaching the server through the proxy."""
    with Titen(proxy.url, other.secret, timeout=2, retry_for=5) as client:
        yield client


def working(titen: Titen, title: str = "Roll out") -> Run:
    """A run of a new task."""
    task = titen.create_task(title, payload={"build": 41})
    run = titen.claim(task_id=task["id"], ttl_seconds=TTL)
    assert run is not None
    return run


def accepted(titen: Titen) -> Run:
    """A run by the one handoff in the inbox."""
    (handoff,) = titen.handoffs()
    run = titen.accept(handoff, ttl_seconds=60)
    assert run is not None
    return run


# A task


def test_a_task_goes_to_another_agent_with_what_its_holder_knew(ada: Titen, bert: Titen) -> None:
    with working(ada) as run:
        offered = run.hand_off("bert", message="Smoke passed.", checkpoint={"step": "smoke"})
        assert (offered["status"], offered["task_id"]) == ("pending", run.task["id"])
        run.guard()  # it goes on until somebody accepts
        with accepted(bert) as theirs:
            assert theirs.epoch == run.epoch + 1
            assert theirs.task["payload"] == {"build": 41}
            assert theirs.context["handoff"]["message"] == "Smoke passed."
            assert theirs.context["checkpoint"]["state"] == {"step": "smoke"}
            until(lambda: run.state is LeaseState.ENDED, "the heartbeat that says so")
            theirs.complete("Rolled out.")
    assert theirs.outcome == "completed"
    assert ada.task(run.task["id"])["status"] == "done"


def test_who_handed_off_has_ended_well(ada: Titen, bert: Titen) -> None:
    with working(ada) as run:
        run.hand_off("bert")
        accepted(bert).complete()
        until(lambda: run.outcome == "handed_off", "the end")
        for call in (run.guard, run.complete, run.release, run.heartbeat, run.progress):
            with pytest.raises(HandedOff) as raised:
                call()
        assert isinstance(raised.value, LeaseSuperseded)
        assert raised.value.details["reason"] == "handed_off"
    # Leaving the block said nothing, and sent nothing that would be refused.
    assert (run.state, run.outcome) == (LeaseState.ENDED, "handed_off")


def test_leaving_before_a_heartbeat_has_told_it_is_a_good_end_too(ada: Titen, bert: Titen) -> None:
    task = ada.create_task("Roll out")
    with ada.claim(task_id=task["id"], ttl_seconds=300) as run:  # type: ignore[union-attr]
        run.hand_off("bert")
        accepted(bert).complete()
        assert run.outcome is None
    assert run.outcome == "handed_off"


def test_completing_after_it_was_accepted_is_told_as_what_it_is(ada: Titen, bert: Titen) -> None:
    task = ada.create_task("Roll out")
    with ada.claim(task_id=task["id"], ttl_seconds=300) as run:  # type: ignore[union-attr]
        run.hand_off("bert")
        theirs = accepted(bert)
        with pytest.raises(HandedOff):
            run.complete("Too late.")
    theirs.complete("Mine.")


@pytest.mark.parametrize(("answer", "status"), [("accept", "accepted"), ("reject", "rejected")])
def test_an_offer_can_wait_for_its_answer(
    ada: Titen, bert: Titen, other: Agent, answer: str, status: str
) -> None:
    def resolve() -> None:
        until(lambda: list(bert.handoffs()), "the offer")
        (handoff,) = bert.handoffs()
        if answer == "accept":
            accept(other, handoff, ttl_seconds=60)
        else:
            bert.reject(handoff, "Not today.")

    target = threading.Thread(target=resolve)
    target.start()
    with working(ada) as run:
        handoff = run.hand_off("bert", wait=20)
        target.join()
        assert handoff["status"] == status
        # It knows without another heartbeat's wait.
        assert run.outcome == ("handed_off" if status == "accepted" else None)
        if run.outcome is None:
            assert handoff["reason"] == "Not today."
            run.complete("Then I do it.")


def test_nobody_answers_in_time_and_the_offer_is_taken_back(ada: Titen, bert: Titen) -> None:
    with working(ada) as run:
        handoff = run.hand_off("bert", wait=1)
        assert handoff["status"] == "pending"
        assert ada.withdraw(handoff, "Nobody came.")["status"] == "withdrawn"
        run.complete("By myself.")
    with pytest.raises(NotFound) as raised:
        bert.accept(handoff)
    assert raised.value.details["state"] == "withdrawn"


def test_an_acceptance_whose_answer_was_lost_gives_the_same_run(
    ada: Titen, far_bert: Titen, proxy: Proxy, agent: Agent
) -> None:
    with working(ada) as run:
        run.hand_off("bert")
        proxy.cut_replies(path="/resolve")
        with accepted(far_bert) as theirs:
            assert proxy.cuts == 1
            assert sum("/resolve" in line for line in proxy.requests) == 2
            assert theirs.epoch == run.epoch + 1
            theirs.guard()
            runs = agent.get(f"/runs?task={run.task['id']}")["runs"]
            assert [each["id"] for each in runs] == [theirs.id, run.id]
            theirs.complete()
    assert run.outcome == "handed_off"


def test_an_accepted_task_that_failed_or_was_lost_comes_back_as_any_other(ada: Titen, bert: Titen) -> None:
    with working(ada) as run:
        run.hand_off("bert")
        with pytest.raises(ValueError, match="no"), accepted(bert):
            raise ValueError("no")
    task = ada.task(run.task["id"])
    assert (task["status"], task["attempt_count"]) == ("todo", 1)


# A subject


def test_a_subject_is_offered_read_and_resolved_once(ada: Titen, bert: Titen) -> None:
    kept = ada.checkpoint("build-41", {"passed": 12})
    pack = ada.context_pack([kept], subject_id="build-41")
    offered = ada.handoff(
        "bert",
        subject_id="build-41",
        message="Please promote it.",
        checkpoint_id=kept["checkpoint_id"],
        context_id=pack["context_id"],
        expires_in_seconds=60,
    )
    (handoff,) = bert.handoffs()
    assert (handoff["from_name"], handoff["message"]) == ("ada", "Please promote it.")
    assert bert.read_checkpoint(handoff["checkpoint_id"] or "", version=1)["state"] == {"passed": 12}
    assert bert.read_context(handoff["context_id"] or "")["items"][0]["content"]["state"] == {"passed": 12}
    assert bert.accept(handoff) is None
    assert list(bert.handoffs()) == []
    assert [each["status"] for each in ada.handoffs("sent")] == ["accepted"]
    assert ada.read_handoff(offered)["status"] == "accepted"
    with pytest.raises(NotFound):
        bert.reject(handoff, "After all.")
    with pytest.raises(ValidationError, match="Only the target"):
        ada.accept(ada.handoff("bert", subject_id="build-42"))


def test_a_list_goes_on_over_its_pages(ada: Titen, bert: Titen) -> None:
    for number in range(55):
        ada.handoff("bert", subject_id=f"build-{number}")
    assert [each["subject_id"] for each in bert.handoffs()] == [
        f"build-{number}" for number in reversed(range(55))
    ]


# The worker


def test_a_worker_takes_what_is_offered_before_what_is_queued(
    ada: Titen, bert: Titen, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[str] = []

    def handler(run: Run) -> None:
        begun.append(run.task["title"])
        run.complete()

    with working(ada, "Offered") as run:
        ada.handoff("bert", subject_id="a subject is left alone")
        run.hand_off("bert")
        ada.create_task("Queued", priority=100)
        assert bert.work(handler, handoffs=True, until_empty=True) == 2
    assert begun == ["Offered", "Queued"]
    assert run.outcome == "handed_off"
    assert [each["subject_id"] for each in bert.handoffs()] == ["a subject is left alone"]


def test_a_worker_leaves_offers_alone_unless_it_was_told(ada: Titen, bert: Titen) -> None:
    with working(ada) as run:
        run.hand_off("bert")
        assert bert.work(lambda run: run.complete(), until_empty=True) == 0
        run.complete()


def test_a_worker_takes_by_handoff_what_it_does_not_claim(company: Company, ada: Titen) -> None:
    able = company.agent("able", capabilities=["docs", "python"])
    ada.create_task("Queued", required_capabilities=["python"])
    task = ada.create_task("Offered", required_capabilities=["python"])
    maker = company.agent("maker", capabilities=["python"])
    done: list[str] = []

    def handler(run: Run) -> None:
        done.append(run.task["title"])
        run.complete()

    with Titen(maker.url, maker.secret) as offering, Titen(able.url, able.secret) as taking:
        run = offering.claim(task_id=task["id"])
        assert run is not None
        with run:
            run.hand_off("able")
            assert taking.work(handler, capabilities=["docs"], handoffs=True, until_empty=True) == 1
    assert done == ["Offered"]


def test_an_offer_that_a_worker_cannot_have_stays_and_stops_nobody(company: Company, ada: Titen) -> None:
    unable = company.agent("unable")
    maker = company.agent("maker", capabilities=["python"])
    task = ada.create_task("Offered", required_capabilities=["python"])
    ada.create_task("Queued")
    with Titen(maker.url, maker.secret) as offering, Titen(unable.url, unable.secret) as taking:
        run = offering.claim(task_id=task["id"])
        assert run is not None
        with run:
            handoff = run.hand_off("unable")
            with pytest.raises(NotClaimable):
                taking.accept(handoff)
            assert taking.work(lambda run: run.complete(), handoffs=True, until_empty=True) == 1
            assert offering.read_handoff(handoff)["status"] == "pending"
            run.complete()


def test_a_worker_that_hands_off_goes_on_and_warns_nobody(
    ada: Titen, other: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    for title in ("First", "Second"):
        ada.create_task(title)
    ends: list[str | None] = []

    def handler(run: Run) -> None:
        if not ends:
            accept(other, run.hand_off("bert"))
            ends.append(None)
            run.heartbeat()
        ends.append(run.outcome)
        run.complete()

    with caplog.at_level(logging.INFO, "titen"):
        assert ada.work(handler, until_empty=True) == 2
    assert ends == [None, None]
    (said,) = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert said.levelno == logging.INFO
    assert "LEASE_SUPERSEDED" in said.getMessage()


# Messages


def test_the_holder_of_a_resource_is_asked_without_being_named(ada: Titen, bert: Titen) -> None:
    with pytest.raises(Conflict):
        ada.send("How long?", resource=("deploy", "checkout"))
    with bert.lease("deploy", "checkout"):
        sent = ada.send("How long?", resource=("deploy", "checkout"))
    assert (sent["to_name"], sent["resource"]) == (
        None,
        {"resource_type": "deploy", "resource_id": "checkout"},
    )
    (message,) = bert.messages(unread=True)
    assert (message["from_name"], message["body"]) == ("ada", "How long?")
    assert bert.mark_read(message)["read_at"] is not None
    assert list(bert.messages(unread=True)) == []
    assert [each["message_id"] for each in bert.messages(unread=False)] == [sent["message_id"]]
    bert.send("Done.", to=message["from_principal"])
    assert [each["body"] for each in ada.messages()] == ["Done."]
    assert [each["body"] for each in ada.messages("sent")] == ["How long?"]


@pytest.mark.parametrize("address", [{}, {"to": "bert", "resource": ("deploy", "checkout")}])
def test_a_message_goes_to_one_address(ada: Titen, address: dict[str, str]) -> None:
    with pytest.raises(TypeError):
        ada.send("Hello", **address)  # type: ignore[arg-type]


def test_the_holder_of_a_task_is_asked_like_any_other(ada: Titen, bert: Titen, agent: Agent) -> None:
    with working(bert) as run:
        assert holder_of(agent, run.task["id"]) == "bert"
        ada.send("May I?", resource=("task", run.task["id"]))
        assert [each["body"] for each in bert.messages(unread=True)] == ["May I?"]
        run.complete()
