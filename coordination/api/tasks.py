"""`/v1/tasks`: the queue, its tasks, and the claim."""

from typing import Any

import django_filters
from django.conf import settings
from django.core.validators import RegexValidator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import claims, context, digests, sequencers, tasks
from coordination.admission import CAPABILITY
from coordination.callers import Caller
from coordination.database import Row
from coordination.locks import clock, current_epoch
from coordination.models import LONG_COLUMNS, Run, Task, TaskDependency, TaskStatus
from coordination.reading import holds_task, may_read_task, readable_results
from coordination.shapes import certainty, claim_json, ended_task_json, task_json
from coordination.times import stamp
from titen.api.ids import field_id, path_id, public_id
from titen.api.schema import ok
from titen.api.views import ApiView, HotView
from titen.errors import not_found

from . import bodies
from .paging import IdFilter, LineFilter, list_parameters, page


class TaskFilter(django_filters.FilterSet):
    """Exact matches."""

    status = django_filters.ChoiceFilter(choices=TaskStatus.choices)
    created_by = IdFilter("agent", field_name="created_by_id")
    capability = LineFilter(
        method="with_capability",
        max_length=80,
        validators=[RegexValidator(rf"\A(?:{CAPABILITY.pattern})\Z", "must be a capability.")],
    )

    def with_capability(self, queryset: Any, name: str, value: str) -> Any:
        """Tasks that need this capability."""
        return queryset.filter(profile__capabilities__contains=[value])


class TaskList(ApiView):
    """Create a task; list tasks, newest first."""

    scopes = {"GET": "tasks:read", "POST": "tasks:write"}

    @extend_schema(
        operation_id="list_tasks", responses=ok("TaskPage"), parameters=list_parameters(TaskFilter)
    )
    def get(self, request: Request) -> Response:
        """The tasks of the organization."""
        caller = self.caller(request)
        tasks_of_it = Task.objects.defer(*LONG_COLUMNS).select_related("profile")
        found = tasks_of_it.filter(organization_id=caller.organization_id)
        return Response(
            page(request, found, TaskFilter, lambda task: task_json(task, private=False), "tasks")
        )

    @extend_schema(operation_id="create_task", request=bodies.TaskBody, responses=ok("Task", 201))
    def post(self, request: Request) -> Response:
        """Put a task into the queue."""
        self.nothing_else(request)
        body = self.body(request, bodies.TaskBody)
        body["depends_on"] = [field_id("task", "depends_on", text) for text in body.get("depends_on", [])]
        caller = self.caller(request)
        return self.act(request, lambda: (201, task_json(tasks.create(caller, **body), private=True)))


def claim_answer(row: Row | None) -> dict[str, Any] | None:
    """A claim with its context and sequencer, or None. Only a task with a past has more context than itself."""
    if row is None:
        return None
    gathered = {}
    if row["has_context"]:
        gathered = context.gather(Task.objects.defer(*LONG_COLUMNS).get(pk=row["task_id"]))
    return claim_json(row, gathered, sequencer=sequencers.of_task(row))


class TaskClaim(HotView):
    """Claim the best ready task; 204 when nothing is ready."""

    scope = "tasks:claim"
    grants = True

    @extend_schema(
        operation_id="claim_task",
        request=bodies.ClaimBody,
        responses={**ok("Claim"), 204: None},
        parameters=bodies.WAIT,
    )
    def post(self, request: Request) -> Response:
        """Get a run and a lease on a task, with all that the work needs."""
        self.query(request, bodies.WaitQuery)
        body = self.body(request, bodies.ClaimBody)
        task_id = body.pop("task_id", None)
        if task_id is not None:
            task_id = field_id("task", "task_id", task_id)

        def work(credential: Any) -> tuple[int, Any]:
            sequencers.ready()
            found = claim_answer(claims.claim(credential, task_id=task_id, **body))
            return (204, None) if found is None else (200, found)

        return self.move(request, work)


def find_task(caller: Caller, text: str) -> Task:
    """A task of the caller's organization by its printed id."""
    found = (
        Task.objects.filter(pk=path_id("task", text), organization_id=caller.organization_id)
        .select_related("profile")
        .first()
    )
    if found is None:
        raise not_found()
    return found


def standing(task: Task) -> dict[str, Any] | None:
    """Who has standing to advance the task now, and why; None for nobody."""
    run = Run.objects.filter(task=task, ended_at=None).select_related("lease", "principal").first()
    if run is None:
        return None
    return {
        "holder": run.principal.name,
        "run_id": public_id("run", run.pk),
        "epoch": run.epoch,
        "until": stamp(run.lease.expires_at),
        "certainty": certainty(run.lease, clock(), settings.JEOPARDY_SHARE),
        "because": run.lease.granted_because,
    }


class TaskDetail(ApiView):
    """One task."""

    scopes = {"GET": "tasks:read"}

    @extend_schema(operation_id="get_task", responses=ok("TaskDetail"))
    def get(self, request: Request, task_id: str) -> Response:
        """The task, who holds it, and what it waits for."""
        self.nothing_else(request)
        caller = self.caller(request)
        task = find_task(caller, task_id)
        private = may_read_task(caller, task)
        result = private or readable_results(caller).filter(pk=task.pk).exists()
        depends_on = TaskDependency.objects.filter(task=task).order_by("pk")
        return Response(
            {
                **task_json(task, private=private, result=result),
                "depends_on": [
                    public_id("task", other) for other in depends_on.values_list("depends_on_id", flat=True)
                ],
                "epoch": current_epoch(task),
                "digest": digests.of_task(task),
                "standing": standing(task),
                "waits_for": claims.waits_for(task),
            }
        )


class TaskContext(ApiView):
    """What the next attempt should know."""

    scopes = {"GET": "tasks:claim"}

    @extend_schema(operation_id="get_task_context", responses=ok("Context"))
    def get(self, request: Request, task_id: str) -> Response:
        """Payload, dependencies' results, earlier attempts, effects and decided approvals, at most 256 KiB."""
        self.nothing_else(request)
        caller = self.caller(request)
        task = find_task(caller, task_id)
        if not may_read_task(caller, task):
            raise not_found()
        reader = None if caller.is_human or holds_task(caller, task) else caller
        return Response(context.gather_with_input(task, reader=reader))


class TaskCancel(ApiView):
    """Cancel a task."""

    scopes = {"POST": "tasks:write"}

    @extend_schema(operation_id="cancel_task", request=bodies.CancelBody, responses=ok("CancelledTask"))
    def post(self, request: Request, task_id: str) -> Response:
        """End the task for good; its run ends, its approvals are cancelled, its dependents are blocked."""
        self.nothing_else(request)
        caller, task = self.caller(request), path_id("task", task_id)
        body = self.body(request, bodies.CancelBody)
        shown = body.pop("shown_digest", None)
        return self.act(
            request, lambda: (200, _cancelled(caller, tasks.cancel(caller, task, shown=shown, **body)))
        )


def _cancelled(caller: Caller, task: Task) -> dict[str, Any]:
    """As much of it as GET shows this key."""
    if not caller.has("tasks:read"):
        return ended_task_json(task)
    return task_json(task, private=may_read_task(caller, task))
