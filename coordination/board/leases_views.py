"""The page of leases, and what operators do there: release one by force, write to its holder."""

from collections.abc import Callable
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from coordination import leasing, messages
from coordination.callers import Caller
from coordination.locks import clock
from coordination.models import Lease, Role
from titen.api.ids import path_id
from titen.errors import Refused, not_found

from . import forms, leases_fragments, leases_state, seats
from .answers import act
from .doors import View, door
from .pages import page_of

Verb = Callable[[Caller, Lease, HttpRequest], str]


@door("GET", "HEAD")
def page(request: HttpRequest) -> HttpResponse:
    """The leases of one organization."""
    seat = seats.take(request)
    if seat is None:
        raise not_found()
    number = page_of(request.GET.dict())
    shown = leases_state.read(seat.organization.pk, number)
    words = {
        "seat": seat,
        "state": shown,
        "sections": leases_fragments.render(shown, seat.role).values(),
        "stream": f"/live/leases?org={seat.slug}" if number == 1 else "",
        "number": number,
        "now": clock(),
        "here": "leases",
    }
    return render(request, "leases/index.html", words)


def on_lease(verb: Verb) -> View:
    """A view for a verb on a lease, for operators and above. A task's lease has no verbs here, but the task has."""

    @door("POST")
    def view(request: HttpRequest, lease_id: str) -> HttpResponse:
        found = Lease.objects.filter(pk=path_id("lease", lease_id)).exclude(
            resource__resource_type=leasing.TASK
        )
        lease = found.select_related("resource").first()
        seat = seats.at(request, lease.organization_id if lease else None, Role.OPERATOR)
        if lease is None:
            raise not_found()
        back = f"{reverse('leases')}?org={seat.slug}"
        return act(request, seat, lambda: verb(seat.caller, lease, request), back=back)

    return view


def revoke(caller: Caller, lease: Lease, request: HttpRequest) -> str:
    """Take the lease from its holder. It is the one that the page showed, or nothing happens."""
    values = forms.read(forms.ForceRelease, request)
    if values["epoch"] != lease.epoch:
        raise Refused("STALE_EPOCH")
    try:
        ended = leasing.revoke(caller, lease.pk, reason=values["reason"])
    except Refused as refused:
        if "reason" not in refused.details:
            raise
        raise Refused("CONFLICT", _too_late(caller, lease.pk)) from None
    return f"Released by force. {ended.principal.name} has lost {ended.resource}."


def _too_late(caller: Caller, lease_id: UUID) -> str:
    return f"{leases_state.how_it_ended(lease_id, caller.principal_id)} Your click changed nothing."


def ask_holder(caller: Caller, lease: Lease, request: HttpRequest) -> str:
    """Write to whoever holds the resource now."""
    sent = messages.ask_holder(
        caller,
        resource_type=lease.resource.resource_type,
        resource_id=lease.resource.resource_id,
        **forms.read(forms.Words, request),
    )
    return f"Sent to {sent.recipient.name}, who holds {lease.resource}."
