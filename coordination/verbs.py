"""The moves that the admin offers: each is a form and a rule, and a page of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from titen.api.authentication import human
from titen.api.constraints import refusal_for
from titen.api.doors import transact
from titen.errors import Refused

from .callers import Caller
from .locks import hold_member
from .models import Principal, Role

if TYPE_CHECKING:
    from .audit import AuditAdmin


class VerbForm(forms.Form):
    """What a verb asks for. `request` and `subject` (the row, or None) are known to it."""

    def __init__(self, *args: Any, request: HttpRequest, subject: Any, **kwargs: Any) -> None:
        self.request = request
        self.subject = subject
        super().__init__(*args, **kwargs)


@dataclass(frozen=True)
class Secret:
    """What a rule returns for a verb that shows a secret: once, in that answer only."""

    text: str
    about: str


@dataclass(frozen=True)
class Verb:
    """One move. The rule gets the request, the row (None for one that `makes` a row) and the form's values."""

    name: str
    label: str
    rule: Callable[[HttpRequest, Any, dict[str, Any]], Any]
    form: type[VerbForm] = VerbForm
    explanation: str = ""
    makes: bool = False
    superuser: bool = False
    offered: Callable[[Any], bool] = lambda row: True


def acting(request: HttpRequest, organization_id: UUID) -> dict[str, UUID | None]:
    """Who acts, as rules take it: the user's principal in the organization, else the user.

    Who is no superuser is an admin of the organization, and stays so until the transaction is over.
    """
    user: Any = request.user
    if not user.is_superuser:
        member(request, organization_id, Role.ADMIN)
    principal = Principal.objects.filter(organization_id=organization_id, user=user).values_list(
        "pk", flat=True
    )
    known = principal.first()
    return {"actor_id": known, "user_id": None if known else user.pk}


def member(request: HttpRequest, organization_id: UUID, role: Role) -> Caller:
    """The user as a caller of the organization. `FORBIDDEN` without a membership with that role."""
    caller = human(request.user, organization_id)
    if caller is None or caller.role is None or not Role(caller.role).includes(role):
        raise Refused("FORBIDDEN", f"Only a member of the organization with the role {role} can do this.")
    hold_member(caller)
    return caller


STALE = "What this page showed is not what stands now. Look at it again, then decide."


def refuse_stale(page: "AuditAdmin", row: Any, shown: str) -> Any:
    """Lock the row, and refuse what comes from a page that showed something else. The row as it stands."""
    held = page.hold(row)
    if page.digest(held) != shown:
        raise Refused("DIGEST_MISMATCH", STALE)
    return held


def do(page: "AuditAdmin", request: HttpRequest, name: str, object_id: UUID | None) -> HttpResponse:
    """Show a verb's form; when it is sent, call the rule in a transaction. A refusal is shown on the page.

    A form on a row carries the digest of what its page showed (`AuditAdmin.shown`). When something else stands by
    now, nothing is done, and the form comes back with what stands.
    """
    verb = next(
        (item for item in page.verbs if item.name == name and item.makes == (object_id is None)), None
    )
    user: Any = request.user
    if not page.has_view_permission(request) or (
        verb is not None and verb.superuser and not user.is_superuser
    ):
        raise PermissionDenied
    if verb is None:
        raise Http404
    row = None if object_id is None else page.get_object(request, str(object_id))
    if object_id is not None and row is None:
        return page._get_obj_does_not_exist_redirect(request, page.opts, str(object_id))  # type: ignore[attr-defined,no-any-return]
    form = verb.form(request.POST if request.method == "POST" else None, request=request, subject=row)
    shown = "" if row is None else page.digest(row)
    if request.method == "POST":
        shown = request.POST.get("shown", "")
    status = 200
    if request.method == "POST" and form.is_valid():
        try:
            done = transact(lambda: _act(page, verb, request, row, form.cleaned_data, shown))
        except Refused as refused:
            status = refused.kind.status
            if row is not None and refused.code == "DIGEST_MISMATCH":
                row.refresh_from_db()
                form, shown = _anew(verb, request, row), page.digest(row)
            form.add_error(None, refused.message)
        else:
            return _done(page, request, verb, row, done)
    context = {
        **page.admin_site.each_context(request),
        "title": verb.label if row is None else f"{verb.label}: {row}",
        "verb": verb,
        "form": form,
        "shown": shown,
        "opts": page.opts,
        "original": row,
    }
    return TemplateResponse(request, "admin/audit/verb.html", context, status=status)


def _anew(verb: Verb, request: HttpRequest, row: Any) -> VerbForm:
    """The form with what stands by now; of what was typed only that which no column is the start of."""
    begins = verb.form(request=request, subject=row)
    values = {name: begins.get_initial_for_field(field, name) for name, field in begins.fields.items()}
    typed = {
        name: begins.fields[name].widget.value_from_datadict(request.POST, request.FILES, name)
        for name, value in values.items()
        if value is None
    }
    return verb.form({**values, **typed}, request=request, subject=row)


def _act(
    page: "AuditAdmin", verb: Verb, request: HttpRequest, row: Any, values: dict[str, Any], shown: str
) -> Any:
    try:
        if row is not None:
            organization_id = page.organization_of(row)
            caller = human(request.user, organization_id) if organization_id else None
            if caller is not None:
                hold_member(caller)
            row = refuse_stale(page, row, shown)
        return verb.rule(request, row, values)
    except IntegrityError as problem:
        raise refusal_for(problem) or problem from None


def _done(page: "AuditAdmin", request: HttpRequest, verb: Verb, row: Any, done: Any) -> HttpResponse:
    if isinstance(done, Secret):
        context = {
            **page.admin_site.each_context(request),
            "title": verb.label,
            "secret": done,
            "opts": page.opts,
            "original": row,
        }
        response = TemplateResponse(request, "admin/audit/secret.html", context)
        response["Cache-Control"] = "no-store"
        return response
    messages.success(request, f"{verb.label}: done.")
    made = done if verb.makes and isinstance(done, page.model) else row
    name = f"admin:{page.opts.app_label}_{page.opts.model_name}"
    if made is not None and page.model.objects.filter(pk=made.pk).exists():
        return HttpResponseRedirect(reverse(f"{name}_change", args=[made.pk]))
    return HttpResponseRedirect(reverse(f"{name}_changelist"))
