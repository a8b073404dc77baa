"""Every method of every route names the scope that a key needs, or says that it needs none."""

from typing import Any

import pytest
from django.urls import URLPattern
from rest_framework.test import APIRequestFactory

from coordination.callers import SCOPES
from titen.api.authentication import NO_SCOPE, HasScope, HumanAuthentication
from titen.api.views import ApiView, HotView
from titen.urls import documents, v1

from .cast import Agent

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Whoever has a key may ask who they are.
FOR_EVERY_KEY = {("GET", "principal")}


@pytest.mark.parametrize("route", [*v1, *documents], ids=lambda route: str(route.pattern))
def test_each_method_names_its_scope(route: URLPattern) -> None:
    view: Any = route.callback.view_class  # type: ignore[attr-defined]
    offered = [method for method in METHODS if hasattr(view, method.lower())]
    assert offered
    if issubclass(view, HotView):
        assert (view.scope in SCOPES, view.permission_classes) == (True, [])
        return
    if view.authentication_classes == [HumanAuthentication]:
        assert (view.scopes, view.permission_classes) == ({}, [])
        return
    assert view.permission_classes == [HasScope]
    for method in offered:
        scope = view.scopes.get(method)
        assert scope in SCOPES or (method, str(route.pattern)) in FOR_EVERY_KEY, method
        assert (scope == NO_SCOPE) == ((method, str(route.pattern)) in FOR_EVERY_KEY)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_view_that_names_no_scope_is_refused_even_with_every_scope(method: str, agent: Agent) -> None:
    class Forgetful(ApiView):
        """Offers methods and names no scope for them."""

        def get(self, request: Any) -> Any:
            raise AssertionError("it ran")

        post = get

    request = APIRequestFactory().generic(method, "/", HTTP_AUTHORIZATION=f"Bearer {agent.secret}")
    answer = Forgetful.as_view()(request)
    assert (answer.status_code, answer.data["code"]) == (403, "FORBIDDEN")
