"""`/v1/fencing/verify`: the question of a recipient of effects."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import fencing
from titen.api.schema import ok
from titen.api.views import HotView

from . import bodies


class FencingVerify(HotView):
    """Whether a holder's epoch still has standing."""

    scope = "fencing:verify"
    # It changes nothing, and an old answer would be a wrong one.
    stores_answers = False

    @extend_schema(operation_id="verify_epoch", request=bodies.VerifyBody, responses=ok("Verification"))
    def post(self, request: Request) -> Response:
        """Whether the lease of this epoch on this resource is live now, by the database's clock.

        A task is the resource (`task`, its id), a section (`section`, `<slug>/<section id>`).
        """
        self.nothing_else(request)
        body = self.body(request, bodies.VerifyBody)

        def work(credential: Any) -> tuple[int, Any]:
            return 200, fencing.verify(credential, **body)

        return self.move(request, work)
