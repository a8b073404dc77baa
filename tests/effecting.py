"""The life of an effect in tests: an agent asks, a human decides, it is authorized, and its outcome is told."""

import secrets
from dataclasses import dataclass
from typing import Any

from approvals import decisions, outcomes
from approvals.models import EffectStatus, Kind
from coordination import identity, takeovers, tasks
from coordination.models import Organization, Principal, Role, User
from titen.api.doors import transact

from . import acting
from .cast import Agent, Company, Human, make_user
from .clockwork import pass_time, sql, uuid_of

# As `list_tools` has it: one needs no approval and holds nothing up, the other destroys.
READ: dict[str, Any] = {"tool": "read_file", "server": "disk", "arguments": {"path": "/etc/hosts"}}
WIPE: dict[str, Any] = {"tool": "wipe_volume", "server": "disk", "arguments": {"volume": 7}}


def list_tools(company: Company) -> None:
    """The company's tool list: `READ` is other, `WIPE` is destructive."""
    acting.listed(company, READ["tool"], Kind.OTHER)
    acting.listed(company, WIPE["tool"], Kind.DESTRUCTIVE)


def new_person() -> User:
    """A user without a seat anywhere. Hashing a password takes long, so tests of a module share one."""
    return make_user(f"person-{secrets.token_hex(4)}@example.org")


def seat(company: Company, person: User, role: Role | str = Role.APPROVER) -> Human:
    """That user as a member of the company."""
    identity.add_member(company.organization, person, Role(role))
    return Human(person, company.organization, Role(role))


def flag(company: Company, **flags: bool) -> None:
    """Set flags of the organization."""
    Organization.objects.filter(pk=company.organization.pk).update(**flags)


def hold(agent: Agent) -> Any:
    """A claim of a new task."""
    return agent.claim(task_id=agent.create("One of many")["id"])


def ask(agent: Agent, claim: Any, action: Any = None, **more: Any) -> Any:
    """A pending approval of an action."""
    return agent.post("/approvals", acting.request(claim, action, **more))


def decide(human: Human, approval: Any, option: str = "approve", reason: str = "") -> Any:
    """A human decides what the approval shows."""
    key, digest = uuid_of(approval["id"]), approval["digest"]
    return transact(
        lambda: decisions.decide(human.caller, key, option=option, shown_digest=digest, reason=reason)
    )


def grant(agent: Agent, human: Human, claim: Any, action: Any = None, **more: Any) -> Any:
    """An approval that was asked for and granted."""
    approval = ask(agent, claim, action, **more)
    decide(human, approval)
    return approval


def deny(agent: Agent, human: Human, claim: Any, action: Any = None, reason: str = "Too risky.") -> Any:
    """An approval that was asked for and denied."""
    approval = ask(agent, claim, action)
    decide(human, approval, "deny", reason)
    return approval


def lift(human: Human, approval: Any) -> Any:
    """A human takes a denial back."""
    return transact(lambda: decisions.lift_denial(human.caller, uuid_of(approval["id"])))


def withdraw(human: Human, approval: Any, reason: str = "The freeze began.") -> Any:
    """A human takes a grant back."""
    return transact(lambda: decisions.withdraw(human.caller, uuid_of(approval["id"]), reason=reason))


def reopen(human: Human, task_id: str) -> Any:
    """A human begins a new round of a task."""
    return transact(lambda: tasks.reopen(human.caller, uuid_of(task_id)))


def authorize(agent: Agent, claim: Any, action: Any = None, **more: Any) -> Any:
    """An effect that must be authorized."""
    effect = agent.post("/effects", acting.effect(claim, action, **more))
    assert effect["status"] == "authorized"
    return effect


def refused(agent: Agent, code: str, claim: Any, action: Any = None, **more: Any) -> Any:
    """The error of an attempt that must be refused with this code."""
    return agent.refused(code, "/effects", acting.effect(claim, action, **more))


def report(agent: Agent, effect: Any, outcome: str = "succeeded", **more: Any) -> Any:
    """The maker of an effect says what came of it."""
    return agent.post(f"/effects/{effect['id']}/outcome", {"outcome": outcome, **more})


def reconcile(human: Human, effect: Any, outcome: str = "succeeded", note: str = "I looked.") -> Any:
    """A human says what came of an effect."""
    key = uuid_of(effect["id"])
    return transact(lambda: outcomes.reconcile(human.caller, key, outcome=EffectStatus(outcome), note=note))


def counters(claim: Any) -> tuple[int, int]:
    """(open_effects, unreported_effects) of the task of a claim."""
    ((open_effects, unreported),) = sql(
        "SELECT open_effects, unreported_effects FROM coordination_task WHERE id = %s",
        uuid_of(claim["task"]["id"]),
    )
    return open_effects, unreported


def refusals(claim: Any) -> list[str]:
    """The codes of the refused effects under a claim's lease, the oldest first."""
    found = sql(
        "SELECT code FROM approvals_effect WHERE lease_id = %s AND status = 'refused' ORDER BY created_at",
        uuid_of(claim["lease"]["lease_id"]),
    )
    return [code for (code,) in found]


def effect_events(claim: Any) -> list[str]:
    """The kinds of the events about effects and grants of a claim's task, in order."""
    found = sql(
        "SELECT kind FROM coordination_event WHERE task_id = %s"
        " AND (kind LIKE 'effect.%%' OR kind IN ('approval.consumed', 'approval.voided')) ORDER BY seq",
        uuid_of(claim["task"]["id"]),
    )
    return [kind for (kind,) in found]


def age(approval: Any, seconds: float) -> None:
    """The approval was asked for and decided so much earlier."""
    sql(
        "UPDATE approvals_approval SET created_at = created_at - by, expires_at = expires_at - by,"
        " ended_at = ended_at - by FROM make_interval(secs => %s) by WHERE id = %s",
        seconds,
        uuid_of(approval["id"]),
    )


@dataclass
class World:
    """An agent that holds a task, a colleague, and a human who decides."""

    company: Company
    agent: Agent
    other: Agent
    human: Human
    claim: Any

    def run(self, verb: str, **body: Any) -> Any:
        """The holder's verb on its run."""
        epoch = self.claim["lease"]["epoch"]
        return self.agent.post(f"/runs/{self.claim['run']['id']}/{verb}", {"epoch": epoch, **body})

    def take_over(self, to: Principal | None = None) -> None:
        """The human takes the task: to the queue, or to somebody."""
        task, epoch = uuid_of(self.claim["task"]["id"]), self.claim["lease"]["epoch"]
        transact(
            lambda: takeovers.take_over(self.human.caller, task, to=to, reason="It is stuck.", epoch=epoch)
        )
        pass_time(self.claim["task"]["id"], "avoided_until")


def make_world(company: Company, agent: Agent, other: Agent, claim: Any, person: User) -> World:
    """With the tools of `list_tools`; the person decides."""
    list_tools(company)
    return World(company, agent, other, seat(company, person), claim)
