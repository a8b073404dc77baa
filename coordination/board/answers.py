"""What a click gets: a sentence about what it did, and the page as it now stands."""

from collections.abc import Callable
from uuid import UUID

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from titen.api.doors import transact
from titen.api.envelope import as_refusal
from titen.api.ids import read_id
from titen.errors import Refused

from . import errors, fragments, state, task_fragments, task_state
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
    """Do one rule in its own transaction. `work` parses, calls it, and returns what to say.

    A refusal is said too, by `explain`. With htmx the answer carries the fragments of the page that
    the click came from; without, it leads back to the page `back`.
    """
    try:
        said = transact(work)
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
    """The fragments of the page that an htmx request came from, read after the click."""
    path = here(request).partition("?")[0]
    if path == reverse("board"):
        shown = fragments.render(state.read(seat.organization.pk), seat.role)
        return fragments.as_message(shown)
    task_id = _task_of(path)
    found = task_state.read(seat.organization.pk, task_id) if task_id else None
    return fragments.as_message(task_fragments.render(found, seat.role)) if found else ""


def _task_of(path: str) -> UUID | None:
    head, _, text = path.rpartition("/")
    return read_id("task", text) if head == "/tasks" else None
