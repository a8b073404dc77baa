"""The timeline of a task: its events as sentences. Events hold no text of people, so names are looked up."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from coordination.models import Event, Principal, Task
from titen.api.ids import read_id

SHOWN = 200


@dataclass(frozen=True)
class Entry:
    """One event: who, what they did, and a state for its drawing."""

    at: datetime
    kind: str
    who: str
    words: str
    state: str
    epoch: int | None


# kind -> (the state whose drawing stands before it, the sentence after the actor's name)
SENTENCES: dict[str, tuple[str, str]] = {
    "task.created": ("ready", "put the task into the queue"),
    "task.claimed": ("running", "began run {run}, {because}"),
    "task.completed": ("done", "completed run {run}"),
    "task.failed": ("failed", "gave up run {run} with an error"),
    "task.released": ("cancelled", "gave run {run} back"),
    "task.abandoned": ("failed", "run {run} was abandoned: its lease ran out"),
    "task.parked": ("waiting", "run {run} was parked: its lease ran out while it waited"),
    "task.blocked": ("blocked", "blocked: {blocker}"),
    "task.unblocked": ("ready", "unblocked: {closed}"),
    "task.taken_over": ("needs", "took the task over, {target}"),
    "task.superseded": ("cancelled", "ended run {run} in favour of another"),
    "task.handed_off": ("handed_off", "ended run {run} by accepting its handoff"),
    "task.cancelled": ("cancelled", "cancelled the task"),
    "task.run_cancelled": ("cancelled", "ended run {run}: the task was cancelled"),
    "task.reopened": ("ready", "reopened the task with new attempts"),
    "task.reservation_ended": ("ready", "ended the reservation: who it was for cannot claim any more"),
    "task.priority_set": ("ready", "set the priority from {was} to {priority}"),
    "approval.requested": ("approval", "asked for an approval"),
    "approval.decided": ("done", "decided the approval"),
    "approval.expired": ("failed", "the approval expired before anybody decided"),
    "approval.cancelled": ("cancelled", "took the approval back"),
    "approval.consumed": ("done", "used the approval"),
    "approval.voided": ("cancelled", "made a grant void that nobody had used"),
    "approval.denial_lifted": ("ready", "lifted the denial: it may be asked about again"),
    "effect.authorized": ("authorized", "was allowed to act on the world ({action_kind})"),
    "effect.refused": ("refused", "was refused to act on the world: {code}"),
    "effect.succeeded": ("succeeded", "reports that the effect succeeded"),
    "effect.failed": ("failed", "reports that the effect failed"),
    "effect.unknown": ("unknown", "the outcome of an effect is not known"),
    "effect.compensated": ("compensated", "reports that the effect was undone"),
    "handoff.created": ("handoff", "offered it to {to}"),
    "handoff.accepted": ("accepted", "accepted the handoff"),
    "handoff.rejected": ("rejected", "rejected the handoff"),
    "handoff.withdrawn": ("withdrawn", "withdrew the handoff to {to}"),
    "handoff.expired": ("expired", "the handoff to {to} ran out"),
    "lease.jeopardy_declared": ("jeopardy", "declared its lease in jeopardy"),
    "comment.posted": ("question", "commented"),
    "comment.asked": ("question", "asked a question and waits"),
    "comment.answered": ("done", "answered the question"),
    "checkpoint.written": ("done", "saved a checkpoint"),
    "context.created": ("done", "put a pack together for it"),
    "run.refused": ("failed", "was refused to {verb}: {code}"),
}
BECAUSE = {
    "claim": "by claiming it",
    "reacquire": "again",
    "after_expiry": "after the last one was abandoned",
    "after_failure": "after the last one failed",
    "takeover": "by taking over",
    "handoff": "by a handoff",
}
BLOCKERS = {
    "approval": "it waits for an approval",
    "question": "it waits for an answer",
    "attempts": "its attempts are used up",
    "dependency": "a task that it waits for was cancelled",
    "manual": "by hand",
}


def read(task: Task, page: int = 1) -> tuple[tuple[Entry, ...], int]:
    """A page of the events of a task, newest first, numbered or not; and how many are older."""
    found = Event.objects.filter(task_id=task.pk, organization_id=task.organization_id)
    before = SHOWN * (page - 1)
    events = list(found.order_by("-seq")[before : before + SHOWN + 1])
    earlier = found.count() - before - SHOWN if len(events) > SHOWN else 0
    named = {pk for event in events for pk in (event.actor_id, event.subject_id, _target(event))}
    names = _names(named)
    return tuple(_entry(event, names) for event in events[:SHOWN]), earlier


def _names(ids: Iterable[UUID | None]) -> dict[UUID, str]:
    return dict(Principal.objects.filter(pk__in=[pk for pk in ids if pk]).values_list("pk", "name"))


def _target(event: Event) -> UUID | None:
    """Whom a handoff is for."""
    return read_id("agent", str(event.data.get("to", "")))


def _entry(event: Event, names: dict[UUID, str]) -> Entry:
    state, words = SENTENCES.get(event.kind, ("ready", event.kind.replace(".", " ").replace("_", " ")))
    return Entry(
        at=event.created_at,
        kind=event.kind,
        who=names.get(event.actor_id, "") if event.actor_id else "",
        words=words.format_map(_Words(event, names)),
        state=state,
        epoch=event.epoch,
    )


class _Words(dict[str, Any]):
    """What a sentence may name, said in words; what an event lacks becomes a dash."""

    def __init__(self, event: Event, names: dict[UUID, str]) -> None:
        super().__init__(event.data)
        data = event.data
        self["because"] = BECAUSE.get(str(data.get("because")), "")
        self["blocker"] = BLOCKERS.get(str(data.get("blocker")), str(data.get("blocker", "")))
        self["closed"] = ", ".join(str(kind) for kind in data.get("closed", []))
        offered_to = _target(event)
        self["to"] = names.get(offered_to, "another") if offered_to else "another"
        target = event.subject_id
        if target is None:
            self["target"] = "back to the queue"
        elif target == event.actor_id:
            self["target"] = "to work on it"
        else:
            self["target"] = f"for {names.get(target, 'another')}"

    def __missing__(self, key: str) -> str:
        return "–"
