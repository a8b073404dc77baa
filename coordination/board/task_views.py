"""The task page, and the human verbs on it: each parses, calls one rule, and shows what came of it."""

from collections.abc import Callable
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from coordination import checkpoints, comments, runs, takeovers, tasks
from coordination.api.humans import find_target, organization_of_task
from coordination.callers import Caller, by_principal
from coordination.locks import clock
from coordination.models import Role, Run
from titen.api.ids import path_id, public_id
from titen.errors import not_found

from . import forms, seats, task_fragments, task_state
from .answers import act
from .doors import View, door
from .pages import page_of

Verb = Callable[[Caller, UUID, HttpRequest], str]


@door("GET", "HEAD")
def page(request: HttpRequest, task_id: str) -> HttpResponse:
    """Everything about one task."""
    task = path_id("task", task_id)
    seat = seats.at(request, organization_of_task(task))
    number = page_of(request.GET.dict())
    shown = task_state.read(seat.organization.pk, task, number)
    if shown is None:
        raise not_found()
    words = {
        "seat": seat,
        "state": shown,
        "parts": {
            name.replace("-", "_"): html for name, html in task_fragments.render(shown, seat.role).items()
        },
        "stream": f"/live/task?id={shown.task_id}" if number == 1 else "",
        "number": number,
        "now": clock(),
    }
    return render(request, "task/index.html", words)


def on_task(verb: Verb) -> View:
    """A view for a verb on a task, for operators and above."""

    @door("POST")
    def view(request: HttpRequest, task_id: str) -> HttpResponse:
        task = path_id("task", task_id)
        seat = seats.at(request, organization_of_task(task), Role.OPERATOR)
        return act(
            request, seat, lambda: verb(seat.caller, task, request), back=reverse("task", args=[task_id])
        )

    return view


def on_run(verb: Verb) -> View:
    """A view for a verb on a run that the user holds."""

    @door("POST")
    def view(request: HttpRequest, run_id: str) -> HttpResponse:
        run = Run.objects.filter(pk=path_id("run", run_id)).first()
        if run is None:
            raise not_found()
        seat = seats.at(request, run.organization_id, Role.OPERATOR)
        back = reverse("task", args=[public_id("task", run.task_id)])
        return act(request, seat, lambda: verb(seat.caller, run.pk, request), back=back)

    return view


def take_over(caller: Caller, task_id: UUID, request: HttpRequest) -> str:
    """From whoever holds it: to oneself, an agent or the queue."""
    values = forms.read(forms.TakeOver, request)
    target = find_target(caller, values["to"])
    taken = takeovers.take_over(
        caller,
        task_id,
        to=target,
        reason=values["reason"],
        epoch=values["epoch"],
        shown=values["shown_digest"],
    )
    if target is None:
        return "Back in the queue."
    if target.pk == caller.principal_id:
        return "You hold the task now."
    if taken.reserved_for_id is None:
        return f"Back in the queue: {target.name} has no key that can claim."
    return f"Kept for {target.name} for 15 minutes."


def block(caller: Caller, task_id: UUID, request: HttpRequest) -> str:
    """Stop the task."""
    values = forms.read(forms.Block, request)
    tasks.block(
        caller,
        task_id,
        sentence=values["sentence"],
        epoch=values["epoch"],
        shown=values["shown_digest"],
    )
    return "Blocked. Its holder, if any, pauses with the next heartbeat."


def unblock(caller: Caller, task_id: UUID, request: HttpRequest) -> str:
    """Let it go on."""
    tasks.unblock(caller, task_id, shown=forms.read(forms.Shown, request)["shown_digest"])
    return "Unblocked."


def reopen(caller: Caller, task_id: UUID, request: HttpRequest) -> str:
    """New attempts."""
    tasks.reopen(caller, task_id, shown=forms.read(forms.Shown, request)["shown_digest"])
    return "Reopened, with new attempts."


def priority(caller: Caller, task_id: UUID, request: HttpRequest) -> str:
    """Up or down in the queue."""
    values = forms.read(forms.Priority, request)
    tasks.set_priority(caller, task_id, priority=values["priority"], shown=values["shown_digest"])
    return f"Priority is {values['priority']} now."


def cancel(caller: Caller, task_id: UUID, request: HttpRequest) -> str:
    """End it for good."""
    values = forms.read(forms.Cancel, request)
    tasks.cancel(caller, task_id, reason=values["reason"], shown=values["shown_digest"])
    return "Cancelled."


def comment(caller: Caller, task_id: UUID, request: HttpRequest) -> str:
    """Say something."""
    comments.post(caller, task_id, **forms.read(forms.Words, request))
    return "Comment posted."


@door("POST")
def answer(request: HttpRequest, task_id: str, comment_id: str) -> HttpResponse:
    """Answer a blocking question."""
    task, question = path_id("task", task_id), path_id("cmt", comment_id)
    seat = seats.at(request, organization_of_task(task), Role.OPERATOR)

    def work() -> str:
        asked = comments.answer(seat.caller, task, question, **forms.read(forms.Words, request))
        return f"Answered. {asked.author.name} reads it with the next heartbeat."

    return act(request, seat, work, back=reverse("task", args=[task_id]))


def complete(caller: Caller, run_id: UUID, request: HttpRequest) -> str:
    """End one's own run with success."""
    runs.complete(
        by_principal(caller.principal_id), run_id, by_human=True, **forms.read(forms.Complete, request)
    )
    return "Completed."


def fail(caller: Caller, run_id: UUID, request: HttpRequest) -> str:
    """End one's own run without."""
    values = forms.read(forms.Fail, request)
    runs.fail(
        by_principal(caller.principal_id),
        run_id,
        epoch=values["epoch"],
        error=values["error"],
        retryable=not values["final"],
    )
    return "Failed. The task is blocked." if values["final"] else "Failed. The task comes back after a pause."


def release(caller: Caller, run_id: UUID, request: HttpRequest) -> str:
    """Give it back."""
    runs.release(by_principal(caller.principal_id), run_id, **forms.read(forms.Release, request))
    return "Released. The task is back in the queue."


def checkpoint(caller: Caller, run_id: UUID, request: HttpRequest) -> str:
    """Leave word for the next attempt."""
    values = forms.read(forms.Checkpoint, request)
    value = forms.as_json(values["checkpoint"])
    checkpoints.write(caller, state=value, run_id=run_id, epoch=values["epoch"], field="checkpoint")
    return "Checkpoint saved."
