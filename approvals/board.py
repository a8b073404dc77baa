"""Approvals on the board: the list, the page of one, and the clicks on them."""

from typing import Any
from uuid import UUID

from django import forms as django_forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils.text import Truncator

from coordination.board import errors, forms, seats
from coordination.board.answers import act
from coordination.board.doors import door
from coordination.locks import clock
from coordination.models import Role
from titen.api.ids import path_id, public_id
from titen.errors import Refused, not_found

from . import outcomes, pages_fragments, pages_many, pages_one
from .decisions import MAX_REASON, decide, lift_denial, withdraw
from .models import Approval, ApprovalStatus, Effect, EffectStatus, Risk

# Characters of a question in a message.
QUESTION_SHOWN = 120


class Reconcile(django_forms.Form):
    """What came of an effect, and how one knows."""

    outcome = django_forms.ChoiceField(choices=[(each.value, each.label) for each in outcomes.FOUND_OUT])
    note = forms.Text(max_length=4000)


class Withdraw(django_forms.Form):
    """Why a grant is taken back."""

    reason = forms.Text(max_length=MAX_REASON)


@door("GET", "HEAD")
def list_page(request: HttpRequest) -> HttpResponse:
    """The approvals of one organization."""
    seat = seats.take(request)
    if seat is None:
        raise not_found()
    wanted = pages_many.wanted(seat.organization.pk, request.GET.dict())
    shown = pages_many.read(wanted)
    query = request.GET.copy()
    query["org"] = seat.slug
    words = {
        "seat": seat,
        "state": shown,
        "statuses": ApprovalStatus.values,
        "risks": list(reversed(Risk.values)),
        "sections": pages_fragments.render_list(shown, seat.role).values(),
        "stream": f"/live/approvals?{query.urlencode()}",
        "now": clock(),
        "here": "approvals",
    }
    return render(request, "approvals/index.html", words)


@door("GET", "HEAD")
def page(request: HttpRequest, approval_id: str) -> HttpResponse:
    """Everything that one needs to decide one approval."""
    key = path_id("appr", approval_id)
    seat = seats.at(request, _known(key)["organization_id"])
    shown = pages_one.read(seat.organization.pk, key)
    if shown is None:
        raise not_found()
    parts = pages_fragments.render_page(shown, seat.role)
    words = {
        **shown.words,
        "seat": seat,
        "state": shown,
        "fixed": pages_one.read_fixed(key),
        "parts": {name.replace("-", "_"): html for name, html in parts.items()},
        "stream": f"/live/approval?id={public_id('appr', key)}",
        "now": clock(),
        "here": "approvals",
    }
    return render(request, "approvals/page.html", words)


def _known(approval_id: UUID) -> dict[str, Any]:
    """Where an approval belongs; nowhere when there is none."""
    known = Approval.objects.filter(pk=approval_id).values("organization_id", "task_id").first()
    return dict(known or {"organization_id": None, "task_id": None})


def _back(task_id: UUID | None) -> str:
    return reverse("task", args=[public_id("task", task_id)]) if task_id else reverse("board")


@door("POST")
def decide_view(request: HttpRequest, approval_id: str) -> HttpResponse:
    """A human's click on one of the options."""
    approval = path_id("appr", approval_id)
    seat = seats.at(request, _known(approval)["organization_id"])

    def work() -> str:
        decided = decide(seat.caller, approval, **forms.read(forms.Decide, request))
        return f"You decided “{decided.decision}”. {which(decided)}"

    back = reverse("approval", args=[approval_id])
    return act(request, seat, work, back=back, explain=lambda refused: explain(refused, approval))


@door("POST")
def lift_view(request: HttpRequest, approval_id: str) -> HttpResponse:
    """A human takes a denial back."""
    approval = path_id("appr", approval_id)
    seat = seats.at(request, _known(approval)["organization_id"], Role.OPERATOR)

    def work() -> str:
        lifted = lift_denial(seat.caller, approval)
        return f"Lifted. It may be asked about again; nothing is granted. {which(lifted)}"

    return act(request, seat, work, back=reverse("approval", args=[approval_id]))


@door("POST")
def withdraw_view(request: HttpRequest, approval_id: str) -> HttpResponse:
    """A human takes a grant back before it is used."""
    approval = path_id("appr", approval_id)
    seat = seats.at(request, _known(approval)["organization_id"], Role.OPERATOR)

    def work() -> str:
        withdraw(seat.caller, approval, **forms.read(Withdraw, request))
        return "Withdrawn. Nothing runs by this approval; it may be asked about again."

    return act(request, seat, work, back=reverse("approval", args=[approval_id]))


@door("POST")
def reconcile_view(request: HttpRequest, effect_id: str) -> HttpResponse:
    """A human says what came of an effect."""
    effect = path_id("eff", effect_id)
    known = Effect.objects.filter(pk=effect).values("organization_id", "task_id").first()
    seat = seats.at(request, known["organization_id"] if known else None, Role.OPERATOR)

    def work() -> str:
        values = forms.read(Reconcile, request)
        outcomes.reconcile(seat.caller, effect, outcome=EffectStatus(values["outcome"]), note=values["note"])
        return "Recorded."

    return act(request, seat, work, back=_back(known["task_id"] if known else None))


def which(approval: Approval) -> str:
    """A sentence that tells an approval from others like it."""
    question = Truncator(" ".join(approval.question.split())).chars(QUESTION_SHOWN)
    task = f" for “{approval.task.title}”" if approval.task else ""
    asked = f"asked by {approval.requested_by.name}{task}"
    return f"It was “{question}”, {asked} ({public_id('appr', approval.pk)})."


def explain(refused: Refused, approval_id: UUID) -> str:
    """Why a click did not decide: who decided what before and when, or how it ended; and which approval it was."""
    known = Approval.objects.select_related("decided_by_user", "requested_by", "task")
    approval = known.filter(pk=approval_id).first()
    if approval is None or refused.code not in ("CONFLICT", "APPROVAL_EXPIRED"):
        return errors.sentence(refused)
    return f"{_how_it_ended(refused, approval)} Your click changed nothing. {which(approval)}"


def _how_it_ended(refused: Refused, approval: Approval) -> str:
    ended = f"{approval.ended_at or approval.expires_at:%H:%M:%S} UTC"
    if approval.decided_by_user is not None:
        return f"{approval.decided_by_user.email} decided “{approval.decision}” at {ended}."
    if refused.code == "APPROVAL_EXPIRED":
        return f"It expired at {approval.expires_at:%H:%M:%S} UTC before anybody decided."
    return f"It was {approval.status} at {ended}."


urlpatterns = [
    path("approvals", list_page, name="approvals"),
    path("approvals/<str:approval_id>", page, name="approval"),
    path("approvals/<str:approval_id>/decide", decide_view, name="decide"),
    path("approvals/<str:approval_id>/lift", lift_view, name="lift-denial"),
    path("approvals/<str:approval_id>/withdraw", withdraw_view, name="withdraw-grant"),
    path("effects/<str:effect_id>/reconcile", reconcile_view, name="reconcile-effect"),
]
