"""The page of handoffs and messages, and what a person does with those that are theirs."""

from collections.abc import Callable
from datetime import UTC
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from coordination import accepting, handoffs, messages
from coordination.callers import Caller
from coordination.locks import clock
from coordination.models import Handoff, Message, Role
from titen.api.ids import path_id, public_id
from titen.errors import Refused, not_found

from . import errors, forms, passing_fragments, passing_state, seats
from .answers import act
from .doors import View, door
from .pages import page_of
from .seats import Seat

Verb = Callable[[Caller, UUID, HttpRequest], str]


@door("GET", "HEAD")
def page(request: HttpRequest) -> HttpResponse:
    """The handoffs and messages of one organization, and a form to write one."""
    seat = _seat(request, Role.VIEWER)
    number = page_of(request.GET.dict())
    shown = passing_state.read(seat.organization.pk, number)
    agents, humans = passing_state.people(seat.organization.pk, besides=seat.caller.principal_id)
    words = {
        "seat": seat,
        "state": shown,
        "sections": passing_fragments.render(shown, seat.role).values(),
        "may": Role(seat.role).includes(Role.OPERATOR),
        "agents": agents,
        "humans": humans,
        "stream": f"/live/messages?org={seat.slug}" if number == 1 else "",
        "number": number,
        "now": clock(),
        "here": "messages",
    }
    return render(request, "passing/index.html", words)


def _seat(request: HttpRequest, role: Role) -> Seat:
    seat = seats.take(request, role)
    if seat is None:
        raise not_found()
    return seat


def _page_of(seat: Seat) -> str:
    return f"{reverse('messages')}?org={seat.slug}"


@door("POST")
def send(request: HttpRequest) -> HttpResponse:
    """Write to a principal."""
    seat = _seat(request, Role.OPERATOR)

    def work() -> str:
        sent = messages.send(seat.caller, **forms.read(forms.Letter, request))
        return f"Sent to {sent.recipient.name}."

    return act(request, seat, work, back=_page_of(seat))


@door("POST")
def mark_read(request: HttpRequest, message_id: str) -> HttpResponse:
    """Its recipient has read it."""
    message = path_id("msg", message_id)
    known = Message.objects.filter(pk=message).values_list("organization_id", flat=True).first()
    seat = seats.at(request, known)

    def work() -> str:
        messages.mark_read(seat.caller, message)
        return "Marked as read."

    return act(request, seat, work, back=_page_of(seat))


def on_handoff(verb: Verb, role: Role = Role.VIEWER) -> View:
    """A view for a verb on a handoff; the rule knows whose it is."""

    @door("POST")
    def view(request: HttpRequest, handoff_id: str) -> HttpResponse:
        handoff = _find(path_id("hoff", handoff_id))
        seat = seats.at(request, handoff.organization_id, role)
        return act(
            request,
            seat,
            lambda: verb(seat.caller, handoff.pk, request),
            back=_page_of(seat),
            explain=lambda refused: explain(refused, handoff.pk),
        )

    return view


def _find(handoff_id: UUID) -> Handoff:
    handoff = Handoff.objects.filter(pk=handoff_id).first()
    if handoff is None:
        raise not_found()
    return handoff


@door("POST")
def accept(request: HttpRequest, handoff_id: str) -> HttpResponse:
    """The target takes it. A task that comes with it is what they want to see next."""
    handoff = _find(path_id("hoff", handoff_id))
    seat = seats.at(request, handoff.organization_id, Role.OPERATOR)
    task = reverse("task", args=[public_id("task", handoff.task_id)]) if handoff.task_id else ""

    def work() -> str:
        accepting.accept(seat.caller, handoff.pk)
        return "You hold the task now." if task else "Accepted."

    answer = act(
        request,
        seat,
        work,
        back=task or _page_of(seat),
        explain=lambda refused: explain(refused, handoff.pk),
    )
    if task and answer.status_code == 200:
        answer["HX-Redirect"] = task
    return answer


def reject(caller: Caller, handoff_id: UUID, request: HttpRequest) -> str:
    """The target does not want it."""
    rejected = handoffs.reject(caller, handoff_id, **forms.read(forms.Reason, request))
    return f"Rejected. {rejected.from_principal.name} keeps what is theirs."


def withdraw(caller: Caller, handoff_id: UUID, request: HttpRequest) -> str:
    """The sender takes it back."""
    handoffs.withdraw(caller, handoff_id)
    return "Withdrawn."


def explain(refused: Refused, handoff_id: UUID) -> str:
    """Why a click did nothing: what became of the handoff before."""
    handoff = Handoff.objects.filter(pk=handoff_id).select_related("to_principal", "from_principal").first()
    if handoff is None or "state" not in refused.details or refused.code != "NOT_FOUND":
        return errors.sentence(refused)
    state = str(refused.details["state"])
    ended = f"{(handoff.ended_at or handoff.expires_at).astimezone(UTC):%H:%M:%S} UTC"
    match state:
        case "accepted" | "rejected":
            done = f"{handoff.to_principal.name} {state} it"
        case "withdrawn":
            done = "It was withdrawn"
        case _:
            done = "It ran out"
    return f"{done} at {ended}. Your click changed nothing."
