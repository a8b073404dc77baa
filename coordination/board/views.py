"""Logging in and out, and the board."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth import authenticate
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from coordination.locks import clock
from coordination.passwords import gate
from titen.api.envelope import as_refusal
from titen.errors import Refused

from . import fragments, pages, seats, state
from .addresses import client_address
from .doors import door
from .errors import not_allowed, refuse
from .forms import one_value_each


class LogInForm(AuthenticationForm):
    """An address and a password. The throttle counts by the credential `email`, in lower case as stored."""

    def clean(self) -> dict[str, Any]:
        """The fields; the user whose they are is kept for the view."""
        values = self.cleaned_data
        if values.get("username") and values.get("password"):
            assert self.request is not None
            email, password = values["username"].lower(), values["password"]
            self.user_cache = gate.attempt(
                client_address(self.request),
                lambda: authenticate(self.request, email=email, password=password),
            )
            if self.user_cache is None:
                raise self.get_invalid_login_error()
        return values


class LogIn(LoginView):
    """E-mail address and password; back to `next` when it is a page of this site."""

    template_name = "pages/login.html"
    authentication_form = LogInForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Log in. A refusal before the password is looked at is a page as well."""
        try:
            one_value_each(LogInForm.base_fields, request.POST)
            return super().post(request, *args, **kwargs)
        except (Refused, DatabaseError) as problem:
            return refuse(request, as_refusal(problem, request))

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        """`next`, unless it leads elsewhere or back to the login."""
        target = super().get_redirect_url(request)
        return "" if urlsplit(target).path == reverse("login") else target

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """405 as a page."""
        return not_allowed(request, ("GET", "POST"))


class LogOut(LogoutView):
    """POST only: a link cannot log anybody out."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Log out."""
        try:
            return super().post(request, *args, **kwargs)
        except DatabaseError as problem:
            return refuse(request, as_refusal(problem, request))

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """405 as a page."""
        return not_allowed(request, ("POST",))


@door("GET", "HEAD")
def board(request: HttpRequest) -> HttpResponse:
    """The board of one organization, painted with the fragments that the stream will change."""
    seat = seats.take(request)
    if seat is None:
        return render(request, "pages/no-membership.html", status=403)
    part, number = pages.part_of(request.GET.dict()), pages.page_of(request.GET.dict())
    shown = state.read_part(seat.organization.pk, part, number) if part else state.read(seat.organization.pk)
    parts = fragments.render(shown, seat.role, part)
    rail = parts.pop("rail", "")
    return render(
        request,
        "board/index.html",
        {
            "seat": seat,
            "state": shown,
            "rail": rail,
            "sections": parts.values(),
            "stream": "" if part else f"/live/board?org={seat.slug}",
            "number": number,
            "now": clock(),
            "here": "board",
        },
    )
