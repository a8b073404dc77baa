"""What a click gets: a sentence about what it did, and the page as it now stands."""

from collections.abc import Callable
from urllib.parse import parse_qsl
from uuid import UUID

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from coordination import participants
from titen.api.doors import transact
from titen.api.envelope import as_refusal
from titen.api.ids import read_id
from titen.errors import Refused

from . import (
    errors,
    fragments,
    leases_fragments,
    leases_state,
    pages,
    passing_fragments,
    passing_state,
    state,
    task_fragments,
    task_state,
)
from .doors import here
from .seats import Seat

Explain = Callable[[Refused], str]


def act(
    request: HttpRequest,
    seat: Seat,
    work: Callable[[], str],
    *,
    back: str,
    explain: Explain = errors.sentence,
) -> HttpResponse:
    """Do one rule in its own transaction, as a member with the seat's role. `work` parses, calls it, and
    returns what to say.

    A refusal is said too, by `explain`. With htmx the answer carries the fragments of the page that
    the click came from; without, it leads back to the page `back`.
    """
    try:
        said = transact(work, person=seat.caller)
    except (Refused, DatabaseError) as raised:
        refused = as_refusal(raised, request)
        text = explain(refused)
        if not getattr(request, "htmx", False):
            return errors.problem(request, refused.kind.status, text, retry_after=refused.retry_after)
        title = errors.TITLES.get(refused.kind.status, "That did not work")
        return HttpResponse(
            errors.toast("bad", title, text) + as_it_stands(request, seat), status=refused.kind.status
        )
    if not getattr(request, "htmx", False):
        return HttpResponseRedirect(back, status=303)
    return HttpResponse(errors.toast("good", said, "") + as_it_stands(request, seat))


def as_it_stands(request: HttpRequest, seat: Seat) -> str:
    """The fragments of the page that an htmx request came from, and what waits for its person, after the click."""
    waits = f'<hx-partial hx-target="#waiting" hx-swap="outerMorph">{waiting(seat)}</hx-partial>'
    return f"{fragments.as_message(_page(request, seat))}\n{waits}"


def waiting(seat: Seat) -> str:
    """How much waits for this person, beside the link to it. It is nobody else's, so no stream sends it."""
    return fragments.element("waiting.html", {"seat": seat})


def _page(request: HttpRequest, seat: Seat) -> dict[str, str]:
    address, organization = here(request), seat.organization.pk
    for participant in participants.everyone():
        if (parts := participant.page(address, organization, seat.role)) is not None:
            return parts
    path, _, text = address.partition("?")
    query = dict(parse_qsl(text, keep_blank_values=True))
    page = pages.page_of(query)
    if path == reverse("board"):
        part = pages.part_of(query)
        shown = state.read_part(organization, part, page) if part else state.read(organization)
        return fragments.render(shown, seat.role, part)
    if path == reverse("leases"):
        return leases_fragments.render(leases_state.read(organization, page), seat.role)
    if path == reverse("messages"):
        return passing_fragments.render(passing_state.read(organization, page), seat.role)
    task_id = _task_of(path)
    found = task_state.read(organization, task_id, page) if task_id else None
    return task_fragments.render(found, seat.role) if found else {}


def _task_of(path: str) -> UUID | None:
    head, _, text = path.rpartition("/")
    return read_id("task", text) if head == "/tasks" else None
