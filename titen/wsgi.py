"""The request and response doors: Django under WSGI, with persistent threads and connections."""

import os
from typing import Any

import django
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIHandler

from titen.api import request_bodies
from titen.api.grants import GrantedResponse

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "titen.settings")


class Handler(WSGIHandler):
    """Requests that carry an API key skip the browser's middleware: no session, no CSRF, no pages."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Keep the path as it came: Django writes bytes that are no UTF-8 as `%FF`, which could be text as well.

        Bodies are read here on behalf of all paths: before the views what came in chunks, after them the rest.
        """
        environ["titen.path"] = environ.get("PATH_INFO", "")
        request_bodies.give_length(environ)
        response = super().__call__(environ, start_response)
        request_bodies.drain(environ)
        leases = getattr(response, "granted", None)
        return GrantedResponse(response, leases) if leases else response

    def load_middleware(self, is_async: bool = False) -> None:
        """Build the whole chain and the short one."""
        super().load_middleware(is_async)
        whole: Any = self._middleware_chain  # type: ignore[has-type]
        handle = convert_exception_to_response(self._get_response)  # type: ignore[attr-defined]

        def short(request: Any) -> Any:
            response: Any = handle(request)
            # Else the server sends the answer in chunks; in the whole chain a middleware does this.
            if not response.streaming:
                response["Content-Length"] = str(len(response.content))
            return response

        def choose(request: Any) -> Any:
            by_key = request.path.startswith(("/v1/", "/api/v1/")) and "HTTP_AUTHORIZATION" in request.META
            return (short if by_key else whole)(request)

        self._middleware_chain = choose


def make_application() -> Handler:
    """Django, set up once per process."""
    django.setup(set_prefix=False)
    return Handler()


application = make_application()
