"""`/v1/effects`."""

from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from approvals import effects, outcomes
from approvals.models import Effect, EffectStatus
from approvals.shapes import effect_json, with_reports
from coordination.api.humans import HumanView
from coordination.api.paging import IdFilter, list_parameters, page
from coordination.models import Role
from titen.api.doors import transact
from titen.api.ids import field_id, path_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import not_found

from . import bodies
from .sight import seen_by

IDS = {"run_id": "run", "lease_id": "lease", "approval_id": "appr"}


class EffectFilter(django_filters.FilterSet):
    """Exact matches."""

    status = django_filters.ChoiceFilter(choices=EffectStatus.choices)
    task = IdFilter("task", field_name="task_id")
    run = IdFilter("run", field_name="run_id")
    principal = IdFilter("agent", field_name="principal_id")


def _shape(effect: Any) -> dict[str, Any]:
    """An effect as `seen_by` the caller."""
    return effect_json(effect, private=effect.private)


class EffectList(ApiView):
    """Authorize an effect; list what was attempted."""

    scopes = {"GET": "tasks:read", "POST": "effects:write"}

    @extend_schema(
        operation_id="list_effects", responses=ok("EffectPage"), parameters=list_parameters(EffectFilter)
    )
    def get(self, request: Request) -> Response:
        """The effects of the organization, newest first. Arguments only where the caller may read the task."""
        found = seen_by(self.caller(request), with_reports(Effect.objects.all()), "principal")
        return Response(page(request, found, EffectFilter, _shape, "effects"))

    @extend_schema(
        operation_id="authorize_effect",
        request=bodies.EffectBody,
        responses={**ok("Effect", 201), **ok("Effect")},
        description="201 with an `authorized` effect, or a refusal that says why. Act only after 201, then report"
        " the outcome. 200: exactly this action has `succeeded` under this `effect_key` already. Do not act again.",
    )
    def post(self, request: Request) -> Response:
        """Authorize one effect, right before it happens."""
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, bodies.EffectBody)
        for name, prefix in IDS.items():
            if name in body:
                body[name] = field_id(prefix, name, body[name])

        def work() -> tuple[int, Any]:
            effect = effects.authorize(caller, **body)
            done_already = effect.status != EffectStatus.AUTHORIZED
            return 200 if done_already else 201, effect_json(effect, private=True)

        return self.act(request, work)


class EffectDetail(ApiView):
    """One effect."""

    scopes = {"GET": "tasks:read"}

    @extend_schema(operation_id="get_effect", responses=ok("Effect"))
    def get(self, request: Request, effect_id: str) -> Response:
        """The effect and what came of it."""
        self.nothing_else(request)
        found = seen_by(self.caller(request), Effect.objects.all(), "principal")
        effect = found.filter(pk=path_id("eff", effect_id)).first()
        if effect is None:
            raise not_found()
        return Response(_shape(effect))


class EffectOutcome(ApiView):
    """Say what came of it."""

    scopes = {"POST": "effects:write"}

    @extend_schema(operation_id="report_effect", request=bodies.OutcomeBody, responses=ok("Effect"))
    def post(self, request: Request, effect_id: str) -> Response:
        """Only its maker; also after the lease was lost, then it is marked `late`."""
        self.nothing_else(request)
        caller, body = self.caller(request), self.body(request, bodies.OutcomeBody)
        effect, outcome = path_id("eff", effect_id), EffectStatus(body.pop("outcome"))
        return self.act(
            request,
            lambda: (
                200,
                effect_json(outcomes.report(caller, effect, outcome=outcome, **body), private=True),
            ),
        )


class EffectReconcile(HumanView):
    """A human says what came of it."""

    @extend_schema(operation_id="reconcile_effect", request=bodies.ReconcileBody, responses=ok("Effect"))
    def post(self, request: Request, effect_id: str) -> Response:
        """With a note. Needs a browser session; keys get 403."""
        self.nothing_else(request)
        body, effect = self.body(request, bodies.ReconcileBody), path_id("eff", effect_id)
        organization_id = Effect.objects.filter(pk=effect).values_list("organization_id", flat=True).first()
        caller = self.human(request, organization_id, Role.OPERATOR)
        outcome = EffectStatus(body.pop("outcome"))
        done = transact(lambda: outcomes.reconcile(caller, effect, outcome=outcome, **body), person=caller)
        return Response(effect_json(done, private=True))
