"""Agents and their keys, for admins of an organization. A secret is shown once, in the answer that made it."""

from collections.abc import Callable
from datetime import timedelta

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from coordination import identity
from coordination.api.humans import as_member
from coordination.callers import EVERYTHING, SCOPES
from coordination.locks import clock
from coordination.models import ApiKey, Principal, PrincipalKind, Role, User
from titen.api.doors import transact
from titen.api.envelope import as_refusal
from titen.api.ids import path_id, public_id
from titen.errors import Refused, not_found

from . import errors, forms, seats
from .doors import door
from .seats import Seat

AGENTS_SHOWN = 500
USUAL = ("tasks:read", "tasks:claim", "approvals:request", "approvals:read", "comments:write")


@door("GET", "HEAD")
def page(request: HttpRequest) -> HttpResponse:
    """The organization's agents with their keys."""
    return show(request, seat_of(request))


def seat_of(request: HttpRequest) -> Seat:
    """The admin's seat."""
    seat = seats.take(request, Role.ADMIN)
    if seat is None:
        raise not_found()
    return seat


def show(request: HttpRequest, seat: Seat, *, status: int = 200, **more: object) -> HttpResponse:
    """The page; `more` is what one answer adds: a secret, a problem, or what was done."""
    found = Principal.objects.filter(organization=seat.organization).exclude(kind=PrincipalKind.HUMAN)
    agents = list(found.select_related("owner").order_by("name_key")[:AGENTS_SHOWN])
    keys: dict[object, list[dict[str, object]]] = {}
    now = clock()
    for key in ApiKey.objects.filter(principal__in=agents).order_by("-created_at", "-pk"):
        state = (
            "revoked"
            if key.revoked_at
            else "expired"
            if key.expires_at and key.expires_at <= now
            else "works"
        )
        keys.setdefault(key.principal_id, []).append(
            {"id": public_id("key", key.pk), "row": key, "state": state}
        )
    rows = [
        {"id": public_id("agent", each.pk), "row": each, "keys": keys.get(each.pk, [])} for each in agents
    ]
    words = {
        "seat": seat,
        "agents": rows,
        "scopes": [*SCOPES, EVERYTHING],
        "chosen": request.POST.getlist("scopes") if "problem" in more else USUAL,
        "now": now,
        "here": "keys",
        **more,
    }
    return render(request, "pages/keys.html", words, status=status)


def _try(request: HttpRequest, seat: Seat, work: Callable[[], HttpResponse]) -> HttpResponse:
    try:
        return work()
    except (Refused, DatabaseError) as raised:
        refused = as_refusal(raised, request)
        return show(request, seat, status=refused.kind.status, problem=errors.sentence(refused))


def _back(seat: Seat) -> HttpResponse:
    return HttpResponseRedirect(f"{reverse('keys')}?org={seat.slug}", status=303)


@door("POST")
def make_agent(request: HttpRequest) -> HttpResponse:
    """A new agent, owned by who made it."""
    seat = seat_of(request)

    def work() -> HttpResponse:
        values = forms.read(forms.Agent, request)
        owner = request.user if isinstance(request.user, User) else None
        actor = seat.caller.principal_id
        transact(
            as_member(
                seat.caller,
                lambda: identity.make_principal(seat.organization, owner=owner, actor_id=actor, **values),
            )
        )
        return _back(seat)

    return _try(request, seat, work)


@door("POST")
def make_key(request: HttpRequest) -> HttpResponse:
    """A new key. Its secret stands in this answer and nowhere else, so the answer is no redirect."""
    seat = seat_of(request)

    def work() -> HttpResponse:
        values = forms.read(forms.Key, request)
        agent = Principal.objects.filter(
            pk=values["agent"], organization=seat.organization, disabled_at=None
        ).first()
        if agent is None:
            raise not_found()
        days = values["days"]
        key, secret = transact(
            as_member(
                seat.caller,
                lambda: identity.issue_key(
                    agent,
                    scopes=values["scopes"],
                    label=values["label"],
                    expires_at=clock() + timedelta(days=days) if days else None,
                    maker=seat.caller,
                ),
            )
        )
        return show(request, seat, secret=secret, made=key, made_for=agent.name)

    return _try(request, seat, work)


@door("POST")
def revoke_key(request: HttpRequest, key_id: str) -> HttpResponse:
    """End a key at once; leases that were taken with it run out by themselves."""
    seat = seat_of(request)

    def work() -> HttpResponse:
        key = path_id("key", key_id)
        actor = seat.caller.principal_id
        transact(
            as_member(seat.caller, lambda: identity.revoke_key(seat.organization.pk, key, actor_id=actor))
        )
        return _back(seat)

    return _try(request, seat, work)
