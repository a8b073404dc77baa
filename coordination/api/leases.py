"""`/v1/leases`: leases on anything that has a name."""

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

import django_filters
from django.conf import settings
from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import leasing, sequencers
from coordination.callers import Caller
from coordination.database import Row
from coordination.locks import clock
from coordination.models import Lease, Membership, Renewal, Role
from coordination.shapes import held_lease_json, renewal_json
from coordination.times import stamp
from titen.api.authentication import HumanAuthentication, KeyAuthentication, human
from titen.api.doors import transact
from titen.api.ids import path_id, public_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import not_found

from . import bodies
from .humans import require_role
from .paging import IdFilter, LineFilter, list_parameters, page
from .runs import RENEWALS_SHOWN


def granted_json(caller: Caller, row: Row) -> dict[str, Any]:
    """A lease that was just granted, with its sequencer."""
    return {
        **_standing(row),
        "resource_type": row["resource_type"],
        "resource_id": row["resource_id"],
        "granted_because": row["granted_because"],
        "sequencer": sequencer(caller, row),
    }


def _standing(row: Row, certainty: str = "held") -> dict[str, Any]:
    return {
        "lease_id": public_id("lease", row["lease_id"]),
        "expires_at": stamp(row["expires_at"]),
        "epoch": row["epoch"],
        "ttl_seconds": row["ttl_seconds"],
        "certainty": certainty,
    }


def sequencer(caller: Caller, row: Row) -> str:
    """What the holder shows to whoever receives its effects."""
    return sequencers.issue(
        organization_id=caller.organization_id,
        resource_type=row["resource_type"],
        resource_id=row["resource_id"],
        epoch=row["epoch"],
        holder_id=caller.principal_id,
        expires_at=row["expires_at"],
    )


class LeaseFilter(django_filters.FilterSet):
    """Exact matches. `live` is judged by the database's clock."""

    resource_type = LineFilter(field_name="resource__resource_type", max_length=80)
    resource_id = LineFilter(field_name="resource__resource_id", max_length=400)
    holder = IdFilter("agent", field_name="principal_id")
    live = django_filters.ChoiceFilter(choices=[("true", "true"), ("false", "false")], method="by_life")

    def by_life(self, queryset: Any, name: str, value: str) -> Any:
        """Those that live now, or those that are over."""
        live = Q(ended_at=None, expires_at__gt=clock())
        return queryset.filter(live if value == "true" else ~live)


class HolderOrOperatorView(ApiView):
    """For a key with the scope, and for an operator with a browser session where `for_humans`."""

    for_humans: ClassVar[tuple[str, ...]] = ()

    def get_authenticators(self) -> list[Any]:
        """A browser's session where that may come; else a key, and who has neither learns of keys."""
        request: Any = self.request
        if request is None:
            return []  # the API's description is being made; it asks again, with a request
        if request.method not in self.for_humans:
            return [KeyAuthentication()]
        if getattr(self, "swagger_fake_view", False):
            return [KeyAuthentication(), HumanAuthentication()]
        browser = settings.SESSION_COOKIE_NAME in request.COOKIES
        by_key = "HTTP_AUTHORIZATION" in request.META or not browser
        return [KeyAuthentication() if by_key else HumanAuthentication()]

    def judge(self, request: Request, organization_id: UUID) -> Caller:
        """The caller in the object's organization: a key with `leases:admin`, or an operator there."""
        user: Any = request.user
        caller = user if isinstance(user, Caller) else human(user, organization_id)
        if caller is None or caller.organization_id != organization_id:
            raise not_found()
        if caller.is_human:
            require_role(caller, Role.OPERATOR)
        else:
            caller.require("leases:admin")
        return caller


def visible(user: Any) -> Q:
    """The leases that somebody may look at: an agent its own, an admin's key and operators all."""
    if not isinstance(user, Caller):
        mine = Membership.objects.filter(user=user, ended_at=None).exclude(role=Role.VIEWER)
        return Q(organization_id__in=mine.values("organization_id"))
    if user.has("leases:admin"):
        return Q(organization_id=user.organization_id)
    return Q(organization_id=user.organization_id, principal_id=user.principal_id)


class LeaseList(HolderOrOperatorView):
    """Acquire a lease; list leases."""

    grants = True
    scopes = {"GET": "leases:read", "POST": "leases:write"}
    for_humans = ("GET", "HEAD")

    @extend_schema(
        operation_id="list_leases", responses=ok("HeldLeasePage"), parameters=list_parameters(LeaseFilter)
    )
    def get(self, request: Request) -> Response:
        """One's own leases, the live and the ended; with `leases:admin`, and for operators, all of them."""
        now = clock()
        found = Lease.objects.filter(visible(request.user)).select_related("resource", "principal")
        return Response(
            page(
                request,
                found,
                LeaseFilter,
                lambda lease: held_lease_json(lease, now=now, jeopardy_share=settings.JEOPARDY_SHARE),
                "leases",
            )
        )

    @extend_schema(
        operation_id="acquire_lease",
        request=bodies.LeaseBody,
        responses=ok("GrantedLease", 201),
        parameters=bodies.WAIT,
    )
    def post(self, request: Request) -> Response:
        """Lease a resource. Acquiring again is no renewal: it gives a new id, and the old one is dead."""
        self.query(request, bodies.WaitQuery)
        caller, body = self.caller(request), self.body(request, bodies.LeaseBody)
        name = (body.pop("resource_type"), body.pop("resource_id"))

        def work() -> tuple[int, Any]:
            (row,) = leasing.acquire(caller, [name], **body)
            return 201, granted_json(caller, row)

        return self.act(request, work)


class LeaseBatch(ApiView):
    """Several resources at once."""

    grants = True
    scopes = {"POST": "leases:write"}

    @extend_schema(
        operation_id="acquire_leases",
        request=bodies.LeaseBatchBody,
        responses=ok("GrantedLeases", 201),
        parameters=bodies.WAIT,
    )
    def post(self, request: Request) -> Response:
        """Lease all of the resources, or none."""
        self.query(request, bodies.WaitQuery)
        caller, body = self.caller(request), self.body(request, bodies.LeaseBatchBody)
        names = [(item["resource_type"], item["resource_id"]) for item in body.pop("resources")]

        def work() -> tuple[int, Any]:
            return 201, {
                "leases": [granted_json(caller, row) for row in leasing.acquire(caller, names, **body)]
            }

        return self.act(request, work)


class LeaseDetail(HolderOrOperatorView):
    """One lease: look at it, renew it, release it."""

    scopes = {"GET": "leases:read", "PATCH": "leases:write", "DELETE": "leases:write"}
    for_humans = ("GET", "HEAD")

    @extend_schema(operation_id="get_lease", responses=ok("HeldLeaseDetail"))
    def get(self, request: Request, lease_id: str) -> Response:
        """The lease with its latest renewals, also after its end."""
        self.nothing_else(request)
        found = Lease.objects.filter(visible(request.user), pk=path_id("lease", lease_id))
        lease = found.select_related("resource", "principal").first()
        if lease is None:
            raise not_found()
        renewals = Renewal.objects.filter(lease_id=lease.pk).order_by("-renewed_at")[:RENEWALS_SHOWN]
        shown = held_lease_json(lease, now=clock(), jeopardy_share=settings.JEOPARDY_SHARE)
        return Response({**shown, "renewals": [renewal_json(item) for item in renewals]})

    @extend_schema(operation_id="renew_lease", request=bodies.RenewBody, responses=ok("RenewedLease"))
    def patch(self, request: Request, lease_id: str) -> Response:
        """Renew the lease: same id, same epoch. Refused once it has run out, even if nobody took over."""
        self.nothing_else(request)
        caller, lease = self.caller(request), path_id("lease", lease_id)
        body = self.body(request, bodies.RenewBody)
        row = transact(lambda: leasing.renew(caller, lease, ttl_seconds=body.get("ttl_seconds")))
        shown = _standing(row)
        if body.get("sequencer"):
            shown["sequencer"] = sequencer(caller, row)
        return Response(shown)

    @extend_schema(operation_id="release_lease", request=None, responses=ok("ReleasedLease"))
    def delete(self, request: Request, lease_id: str) -> Response:
        """Give the resource back."""
        self.nothing_else(request)
        caller, lease = self.caller(request), path_id("lease", lease_id)
        self.body(request, bodies.NoBody)
        row = transact(lambda: leasing.release(caller, lease))
        return Response(
            {"lease_id": public_id("lease", row["lease_id"]), "released_at": stamp(row["ended_at"])}
        )


class LeaseJeopardy(ApiView):
    """The holder is not sure any more."""

    scopes = {"POST": "leases:write"}

    @extend_schema(operation_id="declare_jeopardy", request=bodies.NoBody, responses=ok("RenewedLease"))
    def post(self, request: Request, lease_id: str) -> Response:
        """Put the lease in jeopardy until its next renewal."""
        self.nothing_else(request)
        self.body(request, bodies.NoBody)
        caller, lease = self.caller(request), path_id("lease", lease_id)
        return self.act(
            request, lambda: (200, _standing(leasing.declare_jeopardy(caller, lease), "jeopardy"))
        )


class RunJeopardy(ApiView):
    """The same for the lease of a run."""

    scopes = {"POST": "tasks:claim"}

    @extend_schema(
        operation_id="declare_jeopardy_of_run", request=bodies.EpochBody, responses=ok("RenewedLease")
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Until the next heartbeat the run cannot be completed and authorizes nothing."""
        self.nothing_else(request)
        caller, run = self.caller(request), path_id("run", run_id)
        body = self.body(request, bodies.EpochBody)

        def work() -> tuple[int, Any]:
            lease = leasing.declare_jeopardy_of_run(caller, run, **body)
            return 200, _standing({**vars(lease), "lease_id": lease.pk}, "jeopardy")

        return self.act(request, work)


class LeaseRevoke(HolderOrOperatorView):
    """Take a lease from its holder."""

    scopes = {"POST": "leases:admin"}
    for_humans = ("POST",)

    @extend_schema(operation_id="revoke_lease", request=bodies.RevokeBody, responses=ok("HeldLease"))
    def post(self, request: Request, lease_id: str) -> Response:
        """Needs `leases:admin`, or an operator's session. A task goes back to the queue."""
        self.nothing_else(request)
        lease = path_id("lease", lease_id)
        owner = Lease.objects.filter(pk=lease).values_list("organization_id", flat=True).first()
        if owner is None:
            raise not_found()
        caller = self.judge(request, owner)
        body = self.body(request, bodies.RevokeBody)
        return self._answer(request, caller, lambda: leasing.revoke(caller, lease, **body))

    def _answer(self, request: Request, caller: Caller, work: Callable[[], Lease]) -> Response:
        def shown() -> tuple[int, Any]:
            return 200, held_lease_json(work(), now=clock(), jeopardy_share=settings.JEOPARDY_SHARE)

        if isinstance(request.user, Caller):
            return self.act(request, shown)
        status, content = transact(shown, person=caller)
        return Response(content, status=status)
