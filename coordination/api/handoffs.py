"""`/v1/handoffs`: offering work to somebody else, and what becomes of it."""

from typing import Any

import django_filters
from django.conf import settings
from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import accepting, handoffs, offering, sequencers
from coordination.locks import clock
from coordination.models import Handoff, HandoffStatus
from coordination.models.fields import ClockNow
from coordination.passing import handoff_json
from titen.api.fields import Integer, Line, Moment, StrictSerializer, Text
from titen.api.ids import field_id, path_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import invalid

from .bodies import EPOCH_MAX, ttl
from .paging import list_parameters, page
from .tasks import claim_answer

IDS = {"context_id": "ctx", "checkpoint_id": "ckpt", "task_id": "task", "run_id": "run"}


class HandoffBody(StrictSerializer):
    """`POST /v1/handoffs`; a task is offered by its holder."""

    to_principal = Line(max_length=120)
    subject_id = Line(required=False, max_length=200)
    context_id = Text(required=False, max_length=60)
    checkpoint_id = Text(required=False, max_length=60)
    message = Text(required=False, allow_blank=True, max_length=8000)
    task_id = Text(required=False, max_length=60)
    run_id = Text(required=False, max_length=60)
    epoch = Integer(required=False, min_value=1, max_value=EPOCH_MAX)
    expires_at = Moment(required=False)
    expires_in_seconds = Integer(required=False, min_value=1, max_value=settings.HANDOFF_MAXIMUM_SECONDS)


class ResolveBody(StrictSerializer):
    """`POST /v1/handoffs/:id/resolve`; a reason is for a rejection, a TTL for a task that is accepted."""

    status = serializers.ChoiceField(choices=[HandoffStatus.ACCEPTED.value, HandoffStatus.REJECTED.value])
    reason = Text(required=False, allow_blank=True, max_length=2000)
    ttl_seconds = ttl()


class WithdrawBody(StrictSerializer):
    """`POST /v1/handoffs/:id/withdraw`."""

    reason = Text(required=False, allow_blank=True, max_length=2000)


class HandoffFilter(django_filters.FilterSet):
    """`box` is `inbox` or `sent`; the inbox shows the pending ones unless a status is asked for."""

    box = django_filters.ChoiceFilter(choices=[("inbox", "inbox"), ("sent", "sent")], method="as_it_is")
    status = django_filters.ChoiceFilter(choices=HandoffStatus.choices, method="by_status")

    def as_it_is(self, queryset: Any, name: str, value: str) -> Any:
        """The view has chosen already."""
        return queryset

    def by_status(self, queryset: Any, name: str, value: str) -> Any:
        """By the clock: one whose time is over has expired, whether or not that was written down."""
        due = Q(status=HandoffStatus.PENDING, expires_at__lte=ClockNow())
        if value == HandoffStatus.EXPIRED:
            return queryset.filter(Q(status=value) | due)
        return queryset.filter(~due, status=value)


class HandoffList(ApiView):
    """The caller's handoffs."""

    scopes = {"GET": "handoffs:read", "POST": "handoffs:write"}

    @extend_schema(
        operation_id="list_handoffs", responses=ok("HandoffPage"), parameters=list_parameters(HandoffFilter)
    )
    def get(self, request: Request) -> Response:
        """The pending ones that are addressed to the caller; with `box=sent` all that it has sent."""
        caller, now = self.caller(request), clock()
        found = Handoff.objects.filter(organization_id=caller.organization_id).select_related(
            "from_principal", "to_principal"
        )
        if request.GET.get("box") == "sent":
            found = found.filter(from_principal_id=caller.principal_id)
        else:
            found = found.filter(to_principal_id=caller.principal_id)
            if "status" not in request.GET:
                found = found.filter(status=HandoffStatus.PENDING, expires_at__gt=ClockNow())
        return Response(
            page(request, found, HandoffFilter, lambda handoff: handoff_json(handoff, now=now), "handoffs")
        )

    @extend_schema(operation_id="offer_handoff", request=HandoffBody, responses=ok("Handoff", 201))
    def post(self, request: Request) -> Response:
        """Offer a subject, with what the target should read. Offering a task leaves its lease as it is."""
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, HandoffBody)
        for name, prefix in IDS.items():
            if name in body:
                body[name] = field_id(prefix, name, body[name])

        def work() -> tuple[int, Any]:
            handoff = offering.offer(caller, **body)
            return 201, handoff_json(handoff, now=handoff.created_at)

        return self.act(request, work)


class HandoffDetail(ApiView):
    """One handoff."""

    scopes = {"GET": "handoffs:read"}

    @extend_schema(operation_id="get_handoff", responses=ok("Handoff"))
    def get(self, request: Request, handoff_id: str) -> Response:
        """For its sender and its target."""
        self.nothing_else(request)
        found = handoffs.find(self.caller(request), path_id("hoff", handoff_id))
        return Response(handoff_json(found, now=clock()))


class HandoffResolve(ApiView):
    """Accept or reject."""

    grants = True
    scopes = {"POST": "handoffs:write"}

    @extend_schema(operation_id="resolve_handoff", request=ResolveBody, responses=ok("Resolved"))
    def post(self, request: Request, handoff_id: str) -> Response:
        """The target answers, once. Accepting a task gives a run and a lease on it, and needs `tasks:claim`."""
        self.nothing_else(request)
        caller, handoff = self.caller(request), path_id("hoff", handoff_id)
        body = self.body(request, ResolveBody)
        status = body.pop("status")
        accepted = status == HandoffStatus.ACCEPTED
        wrong = "reason" if accepted else "ttl_seconds"
        if wrong in body:
            raise invalid(wrong, f"does not go with the status {status}.")

        def work() -> tuple[int, Any]:
            if not accepted:
                rejected = handoffs.reject(caller, handoff, **body)
                return 200, {**handoff_json(rejected, now=rejected.created_at), "claim": None}
            sequencers.ready()
            taken, row = accepting.accept(caller, handoff, **body)
            return 200, {**handoff_json(taken, now=taken.created_at), "claim": claim_answer(row)}

        return self.act(request, work)


class HandoffWithdraw(ApiView):
    """Take an offer back."""

    scopes = {"POST": "handoffs:write"}

    @extend_schema(operation_id="withdraw_handoff", request=WithdrawBody, responses=ok("Handoff"))
    def post(self, request: Request, handoff_id: str) -> Response:
        """For its sender, while it is pending."""
        self.nothing_else(request)
        caller, handoff = self.caller(request), path_id("hoff", handoff_id)
        body = self.body(request, WithdrawBody)

        def work() -> tuple[int, Any]:
            withdrawn = handoffs.withdraw(caller, handoff, **body)
            return 200, handoff_json(withdrawn, now=withdrawn.created_at)

        return self.act(request, work)
