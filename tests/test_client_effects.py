"""The SDK acts on the world, against a real server: authorized right before, reported right after."""

from collections.abc import Iterator
from functools import partial

import pytest

from coordination.models import Task
from titen.client import (
    ApprovalRequired,
    Conflict,
    DoneAlready,
    EffectsUnreconciled,
    LeaseInJeopardy,
    LeaseLost,
    LeaseState,
    LeaseSuperseded,
    Run,
    Titen,
    Unreachable,
)
from titen.client.effects import Effect as Authorized

from .acting import listed, rule
from .cast import Agent, Company, Human
from .clockwork import uuid_of
from .deploying import DEPLOY, deployed, statuses, take_from, working
from .locking import until
from .proxy import Proxy
from .servers import Server

TTL = 2
"""Seconds of a lease here: heartbeats each 0.67 s, jeopardy at 1.33 s."""


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


@pytest.fixture
def allowed(company: Company) -> None:
    """Policy lets deployments happen; they are outward."""
    rule(company, "allow", "deploy")


# One effect


@pytest.mark.usefixtures("allowed")
def test_a_block_reports_that_it_succeeded(titen: Titen, agent: Agent) -> None:
    with working(titen) as run:
        with deployed(run) as effect:
            assert (effect.outcome, effect.kind) == (None, "outward")
            assert effect.record["action"] == {"tool": "deploy", "server": None, "arguments": DEPLOY}
            assert effect.record["verdict"]["decision"] == "allow"
            with pytest.raises(EffectsUnreconciled):
                run.complete()
        assert effect.outcome == "succeeded"
        run.complete()
    assert agent.get(f"/effects/{effect.id}")["status"] == "succeeded"


@pytest.mark.usefixtures("allowed")
def test_a_body_says_itself_that_it_came_to_nothing(titen: Titen) -> None:
    with working(titen) as run:
        with deployed(run) as effect:
            effect.failed("There is no build 41.")
        assert (effect.outcome, effect.record["note"]) == ("failed", "There is no build 41.")
        effect = deployed(run, effect_key="again")
        with pytest.raises(ZeroDivisionError), effect:
            raise ZeroDivisionError(effect.failed("There is no build 41."))
        assert effect.outcome == "failed"


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt, SystemExit])
def test_whatever_leaves_the_block_leaves_the_outcome_unknown_and_goes_on(
    titen: Titen, kind: type[BaseException]
) -> None:
    with working(titen) as run:
        with pytest.raises(kind), deployed(run) as effect:
            raise kind("cut \x00 off")
        assert (effect.outcome, effect.record["note"]) == ("unknown", f"{kind.__name__}: cut \ufffd off")
        effect.report("succeeded", note="I looked: it is there.")
        run.complete()
    assert statuses(run) == ["succeeded"]


@pytest.mark.usefixtures("allowed")
def test_what_was_told_is_told_once_and_can_be_undone(titen: Titen) -> None:
    with working(titen) as run:
        effect = deployed(run)
        effect.succeeded()
        assert effect.succeeded()["status"] == "succeeded"
        with pytest.raises(Conflict) as refused:
            effect.failed("No.")
        assert refused.value.details["state"] == "succeeded"
        assert effect.report("compensated", note="Rolled back.")["status"] == "compensated"


@pytest.mark.usefixtures("allowed")
def test_a_key_is_used_once_and_names_the_effect_that_used_it(titen: Titen) -> None:
    with working(titen) as run:
        effect = deployed(run)
        with pytest.raises(Conflict) as refused:
            deployed(run)
        assert refused.value.details == {"effect_id": effect.id, "state": "authorized"}
        effect.failed("No disk.")
        deployed(run, effect_key="second").succeeded()
        assert [each["effect_key"] for each in titen.effects(task=run.task["id"], status="succeeded")] == [
            "second"
        ]


@pytest.mark.usefixtures("allowed")
def test_an_outcome_is_told_after_the_lease_was_lost_too(titen: Titen, admin: Human) -> None:
    def lose() -> None:
        with working(titen) as run:
            effects.append(deployed(run))
            take_from(run, admin)
            until(lambda: run.state is LeaseState.LOST, "the loss")
            with pytest.raises(LeaseLost):
                deployed(run, effect_key="second")
            effects[0].succeeded("It had happened.")

    effects: list[Authorized] = []
    with pytest.raises(LeaseLost):
        lose()
    assert (effects[0].outcome, effects[0].record["late"]) == ("succeeded", True)


@pytest.mark.usefixtures("allowed")
def test_the_next_attempt_finds_what_is_unknown_and_tells_what_it_found(titen: Titen) -> None:
    with pytest.raises(OSError, match="cut off"), working(titen) as run, deployed(run):
        raise OSError("cut off")
    Task.objects.filter(pk=uuid_of(run.task["id"])).update(backoff_until=None)
    with titen.claim(task_id=run.task["id"]) as again:  # type: ignore[union-attr]
        (left,) = again.context["effects"]
        assert left["status"] == "unknown"
        with pytest.raises(EffectsUnreconciled):
            again.complete()
        assert titen.report_effect(left, "succeeded", note="It is there.")["late"] is True
        assert titen.read_effect(left)["status"] == "succeeded"
        again.complete()


# Lost answers


@pytest.mark.usefixtures("allowed")
def test_a_lost_answer_is_repeated_and_gives_the_same_effect(far: Titen, proxy: Proxy) -> None:
    with working(far) as run:
        proxy.cut_replies(path="POST /v1/effects ")
        with deployed(run) as effect:
            proxy.cut_replies(path="/outcome")
        assert proxy.cuts == 2
        assert effect.outcome == "succeeded"
    assert statuses(run) == ["succeeded"]


@pytest.mark.usefixtures("allowed")
def test_the_same_call_after_no_answer_is_the_same_request(agent: Agent, proxy: Proxy) -> None:
    with Titen(proxy.url, agent.secret, retry_for=0) as client, working(client) as run:
        proxy.cut_replies(path="/effects")
        with pytest.raises(Unreachable):
            deployed(run)
        deployed(run).succeeded()
        # That one was answered: from now on it is done already.
        assert isinstance(deployed(run), DoneAlready)
    assert statuses(run)[0] == "succeeded"


@pytest.mark.usefixtures("allowed")
def test_an_outcome_that_cannot_be_told_replaces_no_exception(agent: Agent, proxy: Proxy) -> None:
    with Titen(proxy.url, agent.secret, retry_for=0) as client:
        run = working(client)
        effect = deployed(run)
        proxy.refuse(times=9, path="/outcome")
        with pytest.raises(OSError, match="cut off") as left, effect:
            raise OSError("cut off")
        assert effect.id in "".join(left.value.__notes__)
        proxy.restore()
        run.release()
    # The end of the run has said so.
    assert statuses(run) == ["unknown"]


# Certainty


def _is(run: Run, state: LeaseState) -> bool:
    return run.state is state


@pytest.mark.usefixtures("allowed")
def test_without_certainty_nothing_is_sent(far: Titen, proxy: Proxy) -> None:
    def cut_off() -> None:
        with working(far, TTL) as run:
            proxy.drop()
            for state, error in ((LeaseState.JEOPARDY, LeaseInJeopardy), (LeaseState.LOST, LeaseLost)):
                until(partial(_is, run, state), state)
                with pytest.raises(error) as refused:
                    deployed(run)
                assert refused.value.status is None
            proxy.restore()

    with pytest.raises(LeaseLost):
        cut_off()
    assert not [line for line in proxy.requests if "/effects" in line]


@pytest.mark.usefixtures("allowed")
def test_an_answer_that_comes_too_late_to_act_on_lets_nothing_happen(
    titen: Titen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(titen) as run:
        asked = iter([None, LeaseInJeopardy("It took long.")])

        def standing(*, certain: bool) -> None:
            assert certain
            problem = next(asked)
            if problem is not None:
                raise problem

        monkeypatch.setattr(run._authorizer, "_standing", standing)
        with pytest.raises(LeaseInJeopardy):
            deployed(run)
        (effect,) = titen.effects(task=run.task["id"])
        assert effect["status"] == "failed"
        assert effect["note"].startswith("Nothing was done")


@pytest.mark.usefixtures("allowed")
def test_a_lease_on_anything_else_authorizes_what_policy_allows(
    titen: Titen, company: Company, other: Agent
) -> None:
    listed(company, "echo", "other")

    def revoked() -> None:
        with titen.lease("deploy", "checkout", ttl_seconds=TTL) as lease:
            with lease.authorize("deploy", DEPLOY, effect_key="1") as effect:
                assert effect.record["lease_id"] == lease.lease_id
            assert (effect.outcome, effect.record["task_id"]) == ("succeeded", None)
            lease.authorize("echo", effect_key="2", kind="other").succeeded()
            with pytest.raises(ApprovalRequired, match="belong to tasks"):
                lease.authorize("delete", effect_key="3", kind="destructive")
            other.post(f"/leases/{lease.lease_id}/revoke", {"reason": "Enough."})
            with pytest.raises(LeaseSuperseded):
                lease.authorize("deploy", DEPLOY, effect_key="4")
            assert lease.state is LeaseState.LOST

    with pytest.raises(LeaseLost):
        revoked()
