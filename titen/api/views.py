"""The base of every `/v1` view."""

from collections.abc import Callable
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from coordination.callers import Caller, Credential, by_key
from titen.errors import Refused

from .authentication import caller_by_digest, key_digest
from .doors import Answer, attempt, idempotent, transact
from .fields import StrictSerializer, read
from .grants import granted_leases
from .queries import single_values


class ApiView(APIView):
    """Reads bodies and queries strictly; `scopes` says what each method needs."""

    scopes: ClassVar[dict[str, str]] = {}
    # Whether a POST's answer is kept for a repeat with the same Idempotency-Key.
    stores_answers: ClassVar[bool] = True
    # Whether a POST's answer holds a secret: such an answer is stored sealed.
    answers_with_secret: ClassVar[bool] = False
    # Whether a POST can grant a lease, whose caller should be there when it does.
    grants: ClassVar[bool] = False

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Name the leases that the answer grants."""
        if self.grants and request.method == "POST" and response.status_code in (200, 201):
            response.granted = granted_leases(response.data)
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
            caller = self.caller(request)
            secret_for = caller.key_id if self.answers_with_secret else None
            status, content = idempotent(caller.principal_id, key, request, work, secret_for=secret_for)
        return Response(content, status=status)


class HotView(ApiView):
    """A verb whose one statement finds its caller itself, so that it costs one round trip."""

    authentication_classes = []
    permission_classes = []
    scope: ClassVar[str]
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
