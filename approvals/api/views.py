"""`/v1/approvals`."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from approvals import requests
from approvals.decisions import decide, lift_denial, withdraw
from approvals.models import Approval, ApprovalStatus
from approvals.shapes import approval_json
from coordination.api.bodies import WAIT, NoBody, WaitQuery
from coordination.api.humans import HumanView
from coordination.api.paging import IdFilter, list_parameters, page
from coordination.callers import Caller
from coordination.locks import clock
from coordination.models import Role
from titen.api.doors import transact
from titen.api.ids import field_id, path_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import not_found

from . import bodies
from .sight import seen_by


class ApprovalFilter(django_filters.FilterSet):
    """Exact matches. A status is as it is written down, up to a sweep behind."""

    status = django_filters.ChoiceFilter(choices=ApprovalStatus.choices)
    task = IdFilter("task", field_name="task_id")
    requested_by = IdFilter("agent", field_name="requested_by_id")


def _shape(approval: Any, now: datetime) -> dict[str, Any]:
    """An approval as `seen_by` the caller."""
    return approval_json(approval, expired=approval.expires_at <= now, private=approval.private)


class ApprovalList(ApiView):
    """Ask humans; list what was asked."""

    scopes = {"GET": "approvals:read", "POST": "approvals:request"}

    @extend_schema(
        operation_id="list_approvals",
        responses=ok("ApprovalPage"),
        parameters=list_parameters(ApprovalFilter),
    )
    def get(self, request: Request) -> Response:
        """The approvals of the organization, newest first."""
        now = clock()
        found = seen_by(self.caller(request), Approval.objects.all(), "requested_by")
        return Response(page(request, found, ApprovalFilter, lambda item: _shape(item, now), "approvals"))

    @extend_schema(
        operation_id="request_approval", request=bodies.ApprovalBody, responses=ok("Approval", 201)
    )
    def post(self, request: Request) -> Response:
        """The holder of a run asks; the task is blocked until the approval ends. Keep heartbeating."""
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, bodies.ApprovalBody)
        body["run_id"] = field_id("run", "run_id", body["run_id"])
        return self.act(request, lambda: (201, approval_json(requests.request(caller, **body))))


class ApprovalDetail(ApiView):
    """One approval; who asked waits here."""

    scopes = {"GET": "approvals:read"}

    @extend_schema(operation_id="get_approval", responses=ok("Approval"), parameters=WAIT)
    def get(self, request: Request, approval_id: str) -> Response:
        """The approval; with `?wait=` the answer comes as soon as it ends."""
        self.query(request, WaitQuery)
        known = seen_by(self.caller(request), Approval.objects.all(), "requested_by")
        found = known.filter(pk=path_id("appr", approval_id)).first()
        if found is None:
            raise not_found()
        return Response(_shape(found, clock()))


class ApprovalCancel(ApiView):
    """Take a question back."""

    scopes = {"POST": "approvals:request"}

    @extend_schema(operation_id="cancel_approval", request=NoBody, responses=ok("Approval"))
    def post(self, request: Request, approval_id: str) -> Response:
        """The holder of its task; while nobody holds it, the principal that asked."""
        self.nothing_else(request)
        self.body(request, NoBody)
        caller, approval = self.caller(request), path_id("appr", approval_id)
        return self.act(request, lambda: (200, approval_json(requests.cancel(caller, approval))))


class ApprovalVerb(HumanView):
    """A human's verb on one approval; its organization decides what the human may do."""

    def on(self, request: Request, approval_id: str, work: Callable[[Caller, UUID], Approval]) -> Response:
        """Members; the rule knows the role that it needs."""
        self.nothing_else(request)
        approval = path_id("appr", approval_id)
        organization_id = (
            Approval.objects.filter(pk=approval).values_list("organization_id", flat=True).first()
        )
        caller = self.human(request, organization_id, Role.VIEWER)
        return Response(approval_json(transact(lambda: work(caller, approval), person=caller)))


class ApprovalDecide(ApprovalVerb):
    """A human decides."""

    @extend_schema(operation_id="decide_approval", request=bodies.DecideBody, responses=ok("Approval"))
    def post(self, request: Request, approval_id: str) -> Response:
        """Exactly one of the options, once, before the deadline. Needs a browser session; keys get 403."""
        body = self.body(request, bodies.DecideBody)
        return self.on(request, approval_id, lambda caller, approval: decide(caller, approval, **body))


class ApprovalLift(ApprovalVerb):
    """A human takes a denial back."""

    @extend_schema(operation_id="lift_denial", request=NoBody, responses=ok("Approval"))
    def post(self, request: Request, approval_id: str) -> Response:
        """The action may be asked about again. Needs a browser session; keys get 403."""
        self.body(request, NoBody)
        return self.on(request, approval_id, lift_denial)


class ApprovalWithdraw(ApprovalVerb):
    """A human takes a grant back."""

    @extend_schema(operation_id="withdraw_grant", request=bodies.WithdrawGrantBody, responses=ok("Approval"))
    def post(self, request: Request, approval_id: str) -> Response:
        """With a reason, before it is used. Needs a browser session; keys get 403."""
        body = self.body(request, bodies.WithdrawGrantBody)
        return self.on(request, approval_id, lambda caller, approval: withdraw(caller, approval, **body))
