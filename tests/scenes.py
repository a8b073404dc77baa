"""A task in each state that it can be in, made by the rules themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals import decisions, requests
from approvals.models import Approval
from coordination import runs, sweeping, takeovers, tasks
from coordination.callers import by_principal
from coordination.models import Principal, Run
from titen.api.doors import transact

from .acting import PUBLISH, deploy, effect, request, rule
from .cast import Agent, Company, Human, found_company
from .clockwork import let_lease_run_out, uuid_of


@dataclass
class Stage:
    """The people of a scene: who holds the work, another agent, and a human who may do everything."""

    company: Company
    holder: Agent
    other: Agent
    human: Human

    def __post_init__(self) -> None:
        """What scenes do to the world is allowed."""
        rule(self.company, "allow", PUBLISH["tool"])


def set_stage(url: str) -> Stage:
    """A company with its cast, for as many scenes as a module needs."""
    company = found_company(url)
    return Stage(company, company.agent("holder"), company.agent("other"), company.human("admin"))


@dataclass
class Scene:
    """One task, with the claim and the question that led to its state, if any."""

    stage: Stage
    task_id: str = ""
    claim: Any = None
    approval: Any = None
    # What the holder does to the world, where it may.
    action: Any = None
    effect: Any = None
    # Offer the task to the other agent as soon as it is held; the offer.
    offers: bool = False
    handoff: Any = None

    @property
    def task(self) -> UUID:
        return uuid_of(self.task_id)

    @property
    def shown(self) -> dict[str, Any]:
        """The task as the API shows it."""
        shown: dict[str, Any] = self.stage.holder.get(f"/tasks/{self.task_id}")
        return shown

    def create(self, **more: Any) -> "Scene":
        self.task_id = self.stage.holder.create("A scene", **more)["id"]
        return self

    def hold(self, agent: Agent | None = None) -> "Scene":
        self.claim = (agent or self.stage.holder).claim(task_id=self.task_id)
        if self.offers:
            self.handoff = self.stage.holder.post("/handoffs", offer(self.stage.other, self.claim))
        return self

    def send(self, verb: str, body: dict[str, Any] | None = None) -> Any:
        """The holder's verb on its run, which must succeed."""
        run, epoch = self.claim["run"]["id"], self.claim["lease"]["epoch"]
        return self.stage.holder.post(f"/runs/{run}/{verb}", {"epoch": epoch, **(body or {})})

    def ask(self) -> "Scene":
        self.approval = self.stage.holder.post("/approvals", question(self.claim))
        return self

    def ask_for(self, action: Any) -> "Scene":
        """Request an approval of exactly this."""
        self.action = action
        self.approval = self.stage.holder.post("/approvals", request(self.claim, action))
        return self

    def act(self, action: Any = None, **more: Any) -> "Scene":
        """Have an effect authorized; without an `action` one that policy allows, and that holds up completion."""
        self.effect = self.stage.holder.post("/effects", effect(self.claim, action or PUBLISH, **more))
        return self

    def report(self, outcome: str = "succeeded") -> Any:
        """Say what came of the last effect."""
        return self.stage.holder.post(f"/effects/{self.effect['id']}/outcome", {"outcome": outcome})

    def by_human(self, rule: Callable[..., Any], **more: Any) -> Any:
        """A human's rule on the task, in a transaction like at the door."""
        return transact(lambda: rule(self.stage.human.caller, self.task, **more))

    def decide(self, option: str = "Approve") -> Any:
        return transact(
            lambda: decisions.decide(
                self.stage.human.caller,
                uuid_of(self.approval["id"]),
                option=option,
                shown_digest=self.approval["digest"],
            )
        )

    def let_run_out(self) -> "Scene":
        let_lease_run_out(self.claim)
        return self

    def sweep(self) -> "Scene":
        sweeping.sweep_batch(task_id=self.task)
        return self


def question(claim: Any, **more: Any) -> dict[str, Any]:
    """The body of a request for an approval."""
    return {
        "run_id": claim["run"]["id"],
        "epoch": claim["lease"]["epoch"],
        "question": "Roll checkout-service back to build 41?",
        "options": ["Approve", "Deny"],
        **more,
    }


def offer(to: Agent, claim: Any, **more: Any) -> dict[str, Any]:
    """The body of an offer of a claimed task."""
    run = {"run_id": claim["run"]["id"], "epoch": claim["lease"]["epoch"]}
    return {"to_principal": to.principal.name, "message": "It is yours.", **run, **more}


def to_self(scene: Scene) -> dict[str, Any]:
    """How a human takes the task over to themselves, with what the page shows now."""
    me = Principal.objects.get(pk=scene.stage.human.caller.principal_id)
    return {"to": me, "reason": "I do it myself.", "epoch": scene.shown["epoch"]}


def _todo(s: Scene) -> None:
    s.create()


def _todo_with_dependency(s: Scene) -> None:
    other = s.stage.holder.create("Comes first")["id"]
    s.create(depends_on=[other])


def _todo_in_backoff(s: Scene) -> None:
    s.create().hold().send("fail", {"error": "no network"})


def _todo_released(s: Scene) -> None:
    s.create().hold().send("release")


def _todo_for_another(s: Scene) -> None:
    s.create()
    s.by_human(takeovers.take_over, to=s.stage.other.principal, reason="Yours.", epoch=0)


def _held(s: Scene) -> None:
    s.create().hold()


def _held_but_run_out(s: Scene) -> None:
    s.create().hold().let_run_out()


def _held_after_takeover(s: Scene) -> None:
    s.create().hold()
    s.by_human(takeovers.take_over, **to_self(s))


def _handed_off(s: Scene) -> None:
    s.offers = True
    s.create().hold()
    s.stage.other.post(f"/handoffs/{s.handoff['handoff_id']}/resolve", {"status": "accepted"})


def _awaiting_approval(s: Scene) -> None:
    s.create().hold().ask()


def _awaiting_approval_but_run_out(s: Scene) -> None:
    s.create().hold().ask().let_run_out()


def _approved(s: Scene) -> None:
    s.create().hold().ask_for(deploy()).decide("approve")


def _denied(s: Scene) -> None:
    s.create().hold().ask_for(deploy()).decide("deny")


def _authorized(s: Scene) -> None:
    s.create().hold().act()


def _parked(s: Scene) -> None:
    s.create().hold().ask().let_run_out().sweep()


def _blocked_by_hand(s: Scene) -> None:
    s.create()
    s.by_human(tasks.block, sentence="Wait for the freeze to end.")


def _held_and_blocked_by_hand(s: Scene) -> None:
    s.create().hold()
    s.by_human(tasks.block, sentence="Wait for the freeze to end.")


def _out_of_attempts(s: Scene) -> None:
    s.create(max_attempts=1).hold().send("fail", {"error": "no network"})


def _after_a_cancelled_dependency(s: Scene) -> None:
    other = s.stage.holder.create("Comes first")["id"]
    s.create(depends_on=[other])
    s.stage.holder.post(f"/tasks/{other}/cancel")


def _done(s: Scene) -> None:
    s.create().hold().send("complete", {"summary": "All done."})


def _cancelled(s: Scene) -> None:
    s.create().hold()
    s.stage.holder.post(f"/tasks/{s.task_id}/cancel")


# name -> (the task's status, the open run's status, how the scene is made)
STATES: dict[str, tuple[str, str | None, Callable[[Scene], None]]] = {
    "todo": ("todo", None, _todo),
    "todo_with_dependency": ("todo", None, _todo_with_dependency),
    "todo_in_backoff": ("todo", None, _todo_in_backoff),
    "todo_released": ("todo", None, _todo_released),
    "todo_for_another": ("todo", None, _todo_for_another),
    "held": ("in_progress", "running", _held),
    "held_but_run_out": ("in_progress", "running", _held_but_run_out),
    "held_after_takeover": ("in_progress", "running", _held_after_takeover),
    "handed_off": ("in_progress", "running", _handed_off),
    "awaiting_approval": ("blocked", "waiting", _awaiting_approval),
    "awaiting_approval_but_run_out": ("blocked", "waiting", _awaiting_approval_but_run_out),
    "approved": ("in_progress", "running", _approved),
    "denied": ("in_progress", "running", _denied),
    "authorized": ("in_progress", "running", _authorized),
    "parked": ("blocked", None, _parked),
    "blocked_by_hand": ("blocked", None, _blocked_by_hand),
    "held_and_blocked_by_hand": ("blocked", "waiting", _held_and_blocked_by_hand),
    "out_of_attempts": ("blocked", None, _out_of_attempts),
    "after_a_cancelled_dependency": ("blocked", None, _after_a_cancelled_dependency),
    "done": ("done", None, _done),
    "cancelled": ("cancelled", None, _cancelled),
}


def make_room(stage: Stage) -> None:
    """Nobody may ask 20 things at once: the holder takes back what it asked in scenes long ago."""
    asked = Approval.objects.filter(requested_by=stage.holder.principal, status="pending").order_by("-pk")
    if asked.count() < 15:
        return
    holder, other = stage.holder.caller, stage.other.caller
    handed = set(
        Run.objects.filter(principal=stage.other.principal, ended_at=None).values_list("task_id", flat=True)
    )
    for approval in asked[5:]:
        caller = other if approval.task_id in handed else holder
        transact(lambda caller=caller, approval=approval: requests.cancel(caller, approval.pk))  # type: ignore[misc]


def make_scene(stage: Stage, state: str, *, offers: bool = False) -> Scene:
    """A new task in one of STATES; with `offers` its holder, if there was one, had offered it to the other."""
    make_room(stage)
    scene = Scene(stage, offers=offers)
    status, _, make = STATES[state]
    make(scene)
    assert scene.shown["status"] == status
    return scene


def human_ends(human: Human, verb: str, run_id: UUID, epoch: int, **more: Any) -> Any:
    """A human completes, fails or releases a run of their own, as the task page does."""
    credential = by_principal(human.caller.principal_id)
    rules: dict[str, Callable[..., Any]] = {
        "complete": runs.complete,
        "fail": runs.fail,
        "release": runs.release,
    }
    if verb == "complete":
        more["by_human"] = True
    return transact(lambda: rules[verb](credential, run_id, epoch=epoch, **more))
