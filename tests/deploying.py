"""What tests of the SDK's effects share: a run that deploys, and humans that let it or not."""

from collections.abc import Callable
from typing import Any

import pytest

from approvals.decisions import decide as decide_by_rule
from approvals.models import Approval, Effect
from coordination import takeovers
from titen.api.doors import transact
from titen.client import LeaseSuperseded, Run, Titen
from titen.client.effects import Effect as Authorized

from .cast import Human
from .clockwork import uuid_of
from .locking import until

DEPLOY: dict[str, Any] = {"service": "checkout", "build": 41}


def working(titen: Titen, ttl_seconds: int = 60) -> Run:
    """A run of a new task."""
    task = titen.create_task("Roll out")
    run = titen.claim(task_id=task["id"], ttl_seconds=ttl_seconds)
    assert run is not None
    return run


def deployed(run: Run, **more: Any) -> Authorized:
    return run.authorize("deploy", DEPLOY, **{"effect_key": "deploy 41", **more})


def statuses(run: Run) -> list[str]:
    """Of the effects of the run's task, oldest first."""
    found = Effect.objects.filter(task_id=uuid_of(run.task["id"])).order_by("pk")
    return list(found.values_list("status", flat=True))


def pending(run: Run) -> Approval:
    """Wait for the question of a run."""
    asked = Approval.objects.filter(task_id=uuid_of(run.task["id"]), status="pending")
    until(asked.exists, "a question")
    return asked.get()


def decide(human: Human, approval: Approval, option: str, reason: str = "") -> None:
    transact(
        lambda: decide_by_rule(
            human.caller, approval.pk, option=option, shown_digest=approval.digest, reason=reason
        )
    )


def deploying(run: Run, done: list[str], **more: Any) -> Callable[[], Any]:
    """`run.act` on a deployment."""

    def do(effect: Authorized) -> str:
        done.append(effect.id)
        return "done"

    return lambda: run.act("deploy", DEPLOY, do, effect_key="deploy 41", question="Deploy 41?", **more)


def take_from(run: Run, admin: Human) -> None:
    """Take the run's task back into the queue; its holder notices at once."""
    task = uuid_of(run.task["id"])
    transact(lambda: takeovers.take_over(admin.caller, task, to=None, reason="It hangs.", epoch=run.epoch))
    with pytest.raises(LeaseSuperseded):
        run.heartbeat()
