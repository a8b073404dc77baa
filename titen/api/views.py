"""The base of every `/v1` view."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from django.http import UnreadablePostError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from coordination.callers import Caller, Credential, by_key
from titen.errors import Refused

from .authentication import caller_by_digest, key_digest
from .doors import Answer, attempt, idempotent, transact
from .fields import StrictSerializer, read
from .queries import single_values

CHUNK = 65_536
DRAINED_CHUNKS = 256


class ApiView(APIView):
    """Reads bodies and queries strictly; `scopes` says what each method needs."""

    scopes: ClassVar[dict[str, str]] = {}
    # Whether a POST's answer is kept for a repeat with the same Idempotency-Key.
    stores_answers: ClassVar[bool] = True

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Take in what nobody has read: a server that closes on unread bytes loses the answer with them."""
        with suppress(UnreadablePostError):
            for _ in range(DRAINED_CHUNKS):
                if not request._request.read(CHUNK):
                    break
        return super().finalize_response(request, response, *args, **kwargs)

    def caller(self, request: Request) -> Caller:
        """Who sent the request."""
        caller: Caller = request.user  # type: ignore[assignment]
        return caller

    def body(self, request: Request, serializer: type[StrictSerializer]) -> dict[str, Any]:
        """The validated body."""
        return read(serializer, request.data)

    def query(self, request: Request, serializer: type[StrictSerializer]) -> dict[str, Any]:
        """The validated query; a parameter that stands twice is refused."""
        return read(serializer, single_values(request))

    def nothing_else(self, request: Request) -> None:
        """Refuse any query parameter."""
        self.query(request, StrictSerializer)

    def act(self, request: Request, work: Callable[[], Answer]) -> Response:
        """Do a changing rule in a transaction, once per `Idempotency-Key`."""
        key = request.META.get("HTTP_IDEMPOTENCY_KEY")
        if key is None:
            status, content = transact(work)
        else:
            status, content = idempotent(self.caller(request).principal_id, key, request, work)
        return Response(content, status=status)


class HotView(ApiView):
    """A verb whose one statement finds its caller itself, so that it costs one round trip."""

    authentication_classes = []
    permission_classes = []
    scope = "tasks:claim"
    # True once the rule has been asked, which finds the caller itself.
    asked = False

    def move(self, request: Request, work: Callable[[Credential], Answer]) -> Response:
        """Do `work` with the caller's credential. Who cannot be found there gets the full explanation."""
        digest = key_digest(request._request)
        self.asked = True
        credential = by_key(digest, self.scope)
        key = request.META.get("HTTP_IDEMPOTENCY_KEY") if self.stores_answers else None
        try:
            if key is None:
                status, content = attempt(lambda: work(credential))
            else:
                caller = caller_by_digest(digest)
                caller.require(self.scope)
                status, content = idempotent(caller.principal_id, key, request, lambda: work(credential))
        except LookupError:
            caller_by_digest(digest).require(self.scope)
            raise Refused("UNAUTHENTICATED") from None
        return Response(content, status=status)

    def handle_exception(self, exc: Exception) -> Response:
        """Whoever is not known learns that first, not what is wrong with the body."""
        if not self.asked:
            try:
                caller_by_digest(key_digest(self.request._request)).require(self.scope)
            except Exception as unknown:
                exc = unknown
        return super().handle_exception(exc)
