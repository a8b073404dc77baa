"""The page of an organization's policy: everybody reads and tries it, admins edit it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from uuid import UUID

from django import forms
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path, reverse

from coordination.board import errors, fragments, seats
from coordination.board.answers import act, as_it_stands
from coordination.board.doors import View, door, here
from coordination.board.forms import one_value_each, read
from coordination.board.seats import Seat
from coordination.locks import clock
from coordination.models import Role
from titen.api.doors import transact
from titen.api.envelope import as_refusal
from titen.api.ids import path_id, public_id
from titen.errors import Refused, not_found

from . import policy_edits, policy_forms, policy_state
from .actions import Action
from .board import explain, which
from .models import Approval, ApprovalStatus, Kind, PolicyRule, ToolEntry
from .models.policy import on_server
from .policy_state import RuleRow, ToolRow
from .policy_terms import find_agent, row_digest

# DOM ids, in the order of the page; the template of each is policy/<id>.html.
MAIN = ("policy-flags", "policy-rules", "policy-tools")
BESIDE = ("policy-try",)
_EDITS: dict[type[PolicyRule | ToolEntry], Any] = {
    PolicyRule: policy_forms.ChangeRule,
    ToolEntry: policy_forms.ChangeTool,
}


@dataclass(frozen=True)
class Sent:
    """A form that came in and was refused; `key` is its DOM id."""

    key: str
    form: forms.Form


@door("GET", "HEAD")
def page(request: HttpRequest) -> HttpResponse:
    """Flags, rules, tool list; `?change=` unfolds the form of a row, `?tool=` asks what would happen."""
    return _show(request, _seat(request, Role.VIEWER))


def _seat(request: HttpRequest, role: Role) -> Seat:
    seat = seats.take(request, role)
    if seat is None:
        raise not_found()
    return seat


def _back(seat: Seat) -> str:
    return f"{reverse('policy')}?org={seat.slug}"


def _show(
    request: HttpRequest, seat: Seat, *, sent: Sent | None = None, problem: str = "", status: int = 200
) -> HttpResponse:
    tried = _try(request.GET, seat)
    parts = _render(request, seat, tried, sent=sent, change=request.GET.get("change", ""))
    words = {
        "seat": seat,
        "problem": problem,
        "main": [parts[name] for name in MAIN],
        "beside": [parts[name] for name in BESIDE],
        "agents": policy_state.agents(seat.organization.pk),
        "now": clock(),
        "here": "policy",
    }
    wrong = tried["form"].is_bound and not tried["form"].is_valid()
    return render(request, "policy/index.html", words, status=400 if wrong else status)


def _try(query: QueryDict, seat: Seat) -> dict[str, Any]:
    """The form that asks what would happen to an action, and the answer."""
    form = policy_forms.Question(query if "tool" in query else None, auto_id="try-%s")
    if not (form.is_bound and form.is_valid()):
        return {"form": form}
    values = form.cleaned_data
    try:
        agent = find_agent(seat.organization.pk, values["agent"])
    except Refused as refused:
        policy_forms.mark(form, refused)
        return {"form": form}
    claimed = Kind(values["kind"]) if values["kind"] else None
    action = Action(values["tool"], values["server"] or None, claimed=claimed)
    return {"form": form, "answer": policy_state.answer(agent, action)}


def _render(
    request: HttpRequest, seat: Seat, tried: dict[str, Any], *, sent: Sent | None, change: str = ""
) -> dict[str, str]:
    """DOM id -> the complete outer HTML of that element."""
    state = policy_state.read(seat.organization.pk)
    may = fragments.allows(seat.role, Role.ADMIN)

    def form(kind: Any, key: str, initial: dict[str, Any] | None = None) -> forms.Form:
        if sent is not None and sent.key == key:
            return sent.form
        made: forms.Form = kind(initial=initial, auto_id=f"{key}-%s")
        return made

    opened = {change, sent.key.removeprefix("end-") if sent else ""}
    rows: list[RuleRow | ToolRow] = [*state.rules, *state.tools]
    unfolded = next((each for each in rows if may and each.id in opened), None)
    words = {
        "seat": seat,
        "state": state,
        "may": may,
        "tried": tried,
        "opened": opened,
        "new_rule": form(policy_forms.Rule, "new-rule"),
        "new_tool": form(policy_forms.Tool, "new-tool"),
    }
    if unfolded is not None:
        shown = {**policy_forms.values_of(unfolded.row), "shown": unfolded.digest}
        words["change"] = form(_EDITS[type(unfolded.row)], unfolded.id, shown)
    return {
        name: render_to_string(f"policy/{name}.html", words, request).strip() for name in (*MAIN, *BESIDE)
    }


def _edit(
    request: HttpRequest,
    seat: Seat,
    form: Callable[..., forms.Form],
    work: Callable[[Any], str],
    *,
    key: str,
    row: Any = None,
) -> HttpResponse:
    """Read a form and do one rule with it. A refused one comes back as it was typed, with what is wrong beside
    the field; the digest in it is that of the row as it stands, and so is what the person did not change."""
    filled = form(request.POST, auto_id=f"{key}-%s")
    try:
        one_value_each(filled.fields, request.POST)
        policy_forms.refuse_unless_valid(filled)
        said = transact(lambda: work(filled), person=seat.caller)
    except (Refused, DatabaseError) as raised:
        refused = as_refusal(raised, request)
    else:
        if not getattr(request, "htmx", False):
            return HttpResponseRedirect(_back(seat), status=303)
        return HttpResponse(errors.toast("good", said, "") + _as_it_stands(request, seat, done=key))
    typed = request.POST.copy()
    if row is not None:
        row.refresh_from_db()
        typed["shown"] = row_digest(row)
        if isinstance(filled, policy_forms.Change) and refused.code == "DIGEST_MISMATCH":
            policy_forms.keep_changes(typed, filled, row)
    again = form(typed, auto_id=f"{key}-%s")
    policy_forms.mark(again, refused)
    status, sent = refused.kind.status, Sent(key, again)
    text = errors.sentence(refused)
    if not getattr(request, "htmx", False):
        return _show(request, seat, sent=sent, problem=text, status=status)
    title = errors.TITLES.get(status, "That did not work")
    return HttpResponse(
        errors.toast("bad", title, text) + _as_it_stands(request, seat, sent=sent), status=status
    )


def _as_it_stands(request: HttpRequest, seat: Seat, *, sent: Sent | None = None, done: str = "") -> str:
    """The page that an htmx request came from: with what was tried on it, and the row that was unfolded, unless
    its form is the one that is `done`."""
    tried = _try(QueryDict(here(request).partition("?")[2]), seat)
    unfolded = request.POST.get("unfolded", "")
    change = "" if done.removeprefix("end-") == unfolded else unfolded
    parts = _render(request, seat, tried, sent=sent, change=change)
    return f"{fragments.as_message(parts)}\n{as_it_stands(request, seat)}"


@door("POST")
def set_flags(request: HttpRequest) -> HttpResponse:
    """The organization's flags."""
    seat = _seat(request, Role.ADMIN)

    def work(form: Any) -> str:
        policy_edits.set_flags(seat.caller, form.flags(), shown=form.cleaned_data["shown"])
        return "Saved."

    return _edit(request, seat, policy_forms.Flags, work, key="flags", row=seat.organization)


@door("POST")
def add_rule(request: HttpRequest) -> HttpResponse:
    """A new rule."""
    seat = _seat(request, Role.ADMIN)

    def work(form: Any) -> str:
        rule = policy_edits.add_rule(seat.caller, form.terms(seat.organization.pk))
        return f"Added: {rule}, rank {rule.rank}."

    return _edit(request, seat, policy_forms.Rule, work, key="new-rule")


@door("POST")
def add_tool(request: HttpRequest) -> HttpResponse:
    """A new line of the tool list."""
    seat = _seat(request, Role.ADMIN)

    def work(form: Any) -> str:
        entry = policy_edits.add_tool(seat.caller, form.terms(seat.organization.pk))
        return f"Added: {entry}."

    return _edit(request, seat, policy_forms.Tool, work, key="new-tool")


def on_row(
    model: type[PolicyRule | ToolEntry],
    form: Callable[..., forms.Form],
    work: Callable[[Seat, UUID, Any], str],
) -> View:
    """A view for an edit of one row, for admins of its organization."""

    @door("POST")
    def view(request: HttpRequest, row_id: str) -> HttpResponse:
        row = model._default_manager.filter(pk=path_id(model.PREFIX, row_id)).first()
        seat = seats.at(request, row.organization_id if row else None, Role.ADMIN)
        if row is None:
            raise not_found()
        key = f"end-{row_id}" if form is policy_forms.Shown else row_id
        return _edit(request, seat, form, lambda filled: work(seat, row.pk, filled), key=key, row=row)

    return view


def change_rule(seat: Seat, rule_id: UUID, form: Any) -> str:
    """Other terms for a rule."""
    shown = form.cleaned_data["shown"]
    rule = policy_edits.change_rule(seat.caller, rule_id, form.terms(seat.organization.pk), shown=shown)
    return f"Changed: {rule}, rank {rule.rank}."


def end_rule(seat: Seat, rule_id: UUID, form: Any) -> str:
    """The rule holds no more."""
    return f"Ended: {policy_edits.end_rule(seat.caller, rule_id, **form.cleaned_data)}."


def change_tool(seat: Seat, entry_id: UUID, form: Any) -> str:
    """Other terms for a line of the tool list."""
    shown = form.cleaned_data["shown"]
    entry = policy_edits.change_tool(seat.caller, entry_id, form.terms(seat.organization.pk), shown=shown)
    return f"Changed: {entry}."


def end_tool(seat: Seat, entry_id: UUID, form: Any) -> str:
    """The line holds no more."""
    return f"Ended: {policy_edits.end_tool(seat.caller, entry_id, **form.cleaned_data)}."


@door("POST")
def always_allow(request: HttpRequest, approval_id: str) -> HttpResponse:
    """Grant an approval, and allow what it asks for a while."""
    key = path_id("appr", approval_id)
    known = Approval.objects.filter(pk=key).first()
    seat = seats.at(request, known.organization_id if known else None, Role.ADMIN)

    def work() -> str:
        values = read(policy_forms.AlwaysAllow, request)
        values["expires_in_seconds"] = values.pop("seconds")
        rule = policy_edits.always_allow(seat.caller, key, **values)
        agent = rule.agent.name if rule.agent else ""
        granted = Approval.objects.select_related("requested_by", "task").get(pk=key)
        until = "" if rule.expires_at is None else f"{rule.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return f"Approved. Until {until}, {agent} need not ask for {rule.tool}{on_server(rule.server)}. {which(granted)}"

    task_id = known.task_id if known else None
    back = reverse("task", args=[public_id("task", task_id)]) if task_id else reverse("board")
    return act(request, seat, work, back=back, explain=lambda refused: _why_not(refused, key))


def _why_not(refused: Refused, approval_id: UUID) -> str:
    """What became of the approval before; while it is pending, what the rule says."""
    pending = Approval.objects.filter(pk=approval_id, status=ApprovalStatus.PENDING).exists()
    ran_out = refused.code == "APPROVAL_EXPIRED"
    return errors.sentence(refused) if pending and not ran_out else explain(refused, approval_id)


urlpatterns = [
    path("policy", page, name="policy"),
    path("policy/flags", set_flags, name="policy-flags"),
    path("policy/rules/new", add_rule, name="new-rule"),
    path(
        "policy/rules/<str:row_id>",
        on_row(PolicyRule, policy_forms.ChangeRule, change_rule),
        name="change-rule",
    ),
    path("policy/rules/<str:row_id>/end", on_row(PolicyRule, policy_forms.Shown, end_rule), name="end-rule"),
    path("policy/tools/new", add_tool, name="new-tool"),
    path(
        "policy/tools/<str:row_id>",
        on_row(ToolEntry, policy_forms.ChangeTool, change_tool),
        name="change-tool",
    ),
    path("policy/tools/<str:row_id>/end", on_row(ToolEntry, policy_forms.Shown, end_tool), name="end-tool"),
    path("approvals/<str:approval_id>/always-allow", always_allow, name="always-allow"),
]
