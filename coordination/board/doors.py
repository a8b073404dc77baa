"""The frame of every board view: its methods, a logged-in user, and refusals that are seen."""

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from titen.api.envelope import as_refusal
from titen.api.queries import single_values
from titen.errors import Refused

from . import errors

View = Callable[..., HttpResponse]


def door(*methods: str) -> Callable[[View], View]:
    """Make a function a board view for logged-in users. Its `Refused` becomes a page or a message."""

    def wrap(view: View) -> View:
        @functools.wraps(view)
        def answer(request: HttpRequest, *args: Any, **words: Any) -> HttpResponse:
            if request.method not in methods:
                return errors.not_allowed(request, methods)
            if not request.user.is_authenticated:
                return to_login(request)
            try:
                single_values(request)
                response = view(request, *args, **words)
            except (Refused, DatabaseError) as problem:
                response = errors.refuse(request, as_refusal(problem, request))
            response["Cache-Control"] = "no-store"
            return response

        return answer

    return wrap


def to_login(request: HttpRequest) -> HttpResponse:
    """To the login and back. An htmx request is told to leave the page: no login form in a fragment."""
    if getattr(request, "htmx", False):
        response = HttpResponse(status=401)
        response["HX-Redirect"] = login_url(here(request) or "/")
        response["Cache-Control"] = "no-store"
        return response
    back = request.get_full_path() if request.method in ("GET", "HEAD") else "/"
    return HttpResponseRedirect(login_url(back))


def here(request: HttpRequest) -> str:
    """The path of the page that an htmx request came from, if it is one of ours; else nothing."""
    try:
        return request.htmx.current_url_abs_path or ""  # type: ignore[attr-defined]
    except ValueError:
        return ""


def login_url(back: str) -> str:
    """The login page, which returns to `back`."""
    return f"{reverse('login')}?{urlencode({'next': back}, safe='/')}"
