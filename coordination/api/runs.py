"""`/v1/runs`: what the holder of a run does."""

from typing import Any, ClassVar

import django_filters
from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import checkpoints, runs, sequencers
from coordination.locks import clock
from coordination.models import Renewal, Run, RunStatus
from coordination.reading import may_read_task
from coordination.shapes import ended_json, lease_json, renewal_json, run_json
from coordination.times import stamp
from titen.api.ids import path_id, public_id
from titen.api.schema import ok
from titen.api.views import ApiView, HotView
from titen.errors import not_found

from . import bodies
from .paging import IdFilter, list_parameters, page
from .tasks import claim_answer

RENEWALS_SHOWN = 200


class RunHeartbeat(HotView):
    """Renew the lease of a run."""

    scope = "tasks:claim"
    stores_answers = False

    @extend_schema(operation_id="heartbeat", request=bodies.HeartbeatBody, responses=ok("Heartbeat"))
    def post(self, request: Request, run_id: str) -> Response:
        """Say that the work goes on, how far it is, and learn what was decided since the last heartbeat.

        When its answer was lost, send `since`: the `server_time` of the last answer that was received.
        """
        self.nothing_else(request)
        body, run = self.body(request, bodies.HeartbeatBody), path_id("run", run_id)
        signed = body.pop("sequencer", False)

        def work(credential: Any) -> tuple[int, Any]:
            if signed:
                sequencers.ready()
            row = runs.heartbeat(credential, run, **body)
            lease = lease_json(row)
            if signed:
                lease["sequencer"] = sequencers.of_task(row)
            return 200, {
                "run": {
                    "id": public_id("run", row["run_id"]),
                    "task_id": public_id("task", row["task_id"]),
                    "status": row["run_status"],
                    "progress": row["progress"],
                    "status_line": row["status_line"],
                },
                "lease": lease,
                "server_time": stamp(row["server_time"]),
                "directives": row["directives"],
                **{name: row[name] for name in ("resolved_approvals", "answers", "truncated", "more")},
            }

        return self.move(request, work)


class RunEnd(HotView):
    """What complete, fail and release share."""

    scope = "tasks:claim"
    grants = True
    rule: ClassVar[Any]
    serializer: ClassVar[type[bodies.EndBody]]

    def end(self, request: Request, run_id: str) -> Response:
        """End the run; with `claim_next` answer the next claim too."""
        self.nothing_else(request)
        body, run = self.body(request, self.serializer), path_id("run", run_id)

        def work(credential: Any) -> tuple[int, Any]:
            if body.get("claim_next"):
                sequencers.ready()
            row = type(self).rule(credential, run, **body)
            answer = ended_json(row)
            if body.get("claim_next"):
                answer["next"] = claim_answer(row["next"])
            return 200, answer

        return self.move(request, work)


class RunComplete(RunEnd):
    """The work is done."""

    rule = staticmethod(runs.complete)
    serializer = bodies.CompleteBody

    @extend_schema(operation_id="complete_run", request=bodies.CompleteBody, responses=ok("Ended"))
    def post(self, request: Request, run_id: str) -> Response:
        """End the run with success; refused in jeopardy."""
        return self.end(request, run_id)


class RunFail(RunEnd):
    """The work failed."""

    rule = staticmethod(runs.fail)
    serializer = bodies.FailBody

    @extend_schema(operation_id="fail_run", request=bodies.FailBody, responses=ok("Ended"))
    def post(self, request: Request, run_id: str) -> Response:
        """End the run without success; the task comes back after a pause, or is blocked."""
        return self.end(request, run_id)


class RunRelease(RunEnd):
    """The work goes back."""

    rule = staticmethod(runs.release)
    serializer = bodies.ReleaseBody

    @extend_schema(operation_id="release_run", request=bodies.ReleaseBody, responses=ok("Ended"))
    def post(self, request: Request, run_id: str) -> Response:
        """Give the task back; that counts as no attempt."""
        return self.end(request, run_id)


class RunFilter(django_filters.FilterSet):
    """Exact matches."""

    status = django_filters.ChoiceFilter(choices=RunStatus.choices)
    task = IdFilter("task", field_name="task_id")
    agent = IdFilter("agent", field_name="principal_id")


class RunList(ApiView):
    """The runs of the organization, newest first."""

    scopes = {"GET": "tasks:read"}

    @extend_schema(operation_id="list_runs", responses=ok("RunPage"), parameters=list_parameters(RunFilter))
    def get(self, request: Request) -> Response:
        """Filter by status, task or agent."""
        caller, now = self.caller(request), clock()
        found = Run.objects.filter(organization_id=caller.organization_id).select_related(
            "lease", "principal"
        )
        return Response(
            page(
                request,
                found,
                RunFilter,
                lambda run: run_json(run, now=now, jeopardy_share=settings.JEOPARDY_SHARE, private=False),
                "runs",
            )
        )


class RunDetail(ApiView):
    """One run."""

    scopes = {"GET": "tasks:read"}

    @extend_schema(operation_id="get_run", responses=ok("RunDetail"))
    def get(self, request: Request, run_id: str) -> Response:
        """The run with its lease and its latest renewals."""
        self.nothing_else(request)
        caller = self.caller(request)
        run = (
            Run.objects.filter(pk=path_id("run", run_id), organization_id=caller.organization_id)
            .select_related("lease", "principal", "task")
            .first()
        )
        if run is None:
            raise not_found()
        private = run.principal_id == caller.principal_id or may_read_task(caller, run.task)
        shown = run_json(
            run,
            now=clock(),
            jeopardy_share=settings.JEOPARDY_SHARE,
            private=private,
            checkpoint=checkpoints.left_by([run.pk]).get(run.pk) if private else None,
        )
        renewals = Renewal.objects.filter(lease_id=run.lease_id).order_by("-renewed_at")[:RENEWALS_SHOWN]
        shown["renewals"] = [renewal_json(item) for item in renewals]
        return Response(shown)
