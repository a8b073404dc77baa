"""What only a human in a browser session does to a task: any API key gets 403."""

from collections.abc import Callable
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import digests, takeovers, tasks
from coordination.callers import Caller
from coordination.identity import name_key
from coordination.locks import current_epoch
from coordination.models import Principal, Role, Task
from coordination.shapes import task_json
from titen.api.authentication import HumanAuthentication, human
from titen.api.doors import transact
from titen.api.ids import path_id, read_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import Refused, invalid, not_found

from . import bodies


class HumanView(ApiView):
    """The object's organization decides what a human may do, not a current one."""

    authentication_classes = [HumanAuthentication]
    permission_classes = []
    stores_answers = False

    def human(self, request: Request, organization_id: UUID | None, role: Role) -> Caller:
        """The user as a caller of that organization; 404 without a membership, 403 below the role."""
        caller = human(request.user, organization_id) if organization_id else None
        if caller is None:
            raise not_found()
        require_role(caller, role)
        return caller


def require_role(caller: Caller, role: Role) -> None:
    """Refuse with the role that is needed."""
    if caller.role is None or not Role(caller.role).includes(role):
        raise Refused(
            "FORBIDDEN", f"This needs the role {role}; you are {caller.role}.", details={"role": role}
        )


def organization_of_task(task_id: UUID) -> UUID | None:
    """The organization that a task belongs to."""
    return Task.objects.filter(pk=task_id).values_list("organization_id", flat=True).first()


def find_target(caller: Caller, text: str) -> Principal | None:
    """`me`, `queue`, or a principal by id or name. None for the queue."""
    if text == "queue":
        return None
    if text == "me":
        return Principal.objects.get(pk=caller.principal_id)
    found = Principal.objects.filter(organization_id=caller.organization_id, disabled_at=None)
    known = read_id("agent", text)
    principal = found.filter(pk=known).first() if known else found.filter(name_key=name_key(text)).first()
    if principal is None or principal.kind == "human":
        raise invalid("to", "must be me, queue, or an agent of this organization by id or name.")
    return principal


class TaskVerb(HumanView):
    """A human's verb on one task."""

    def verb(self, request: Request, task_id: str, work: Callable[[Caller, UUID], Task]) -> Response:
        """Operators and above. The answer holds what the next verb has to carry."""
        self.nothing_else(request)
        key = path_id("task", task_id)
        caller = self.human(request, organization_of_task(key), Role.OPERATOR)
        task = transact(lambda: work(caller, key), person=caller)
        return Response(
            {**task_json(task, private=True), "epoch": current_epoch(task), "digest": digests.of_task(task)}
        )


class TaskTakeover(TaskVerb):
    """Take the task from its holder."""

    @extend_schema(operation_id="take_over_task", request=bodies.TakeoverBody, responses=ok("MovedTask"))
    def post(self, request: Request, task_id: str) -> Response:
        """To oneself, to an agent, or back to the queue."""
        body = self.body(request, bodies.TakeoverBody)
        to, shown = body.pop("to"), body.pop("shown_digest")
        return self.verb(
            request,
            task_id,
            lambda caller, task: takeovers.take_over(
                caller, task, to=find_target(caller, to), shown=shown, **body
            ),
        )


class TaskReopen(TaskVerb):
    """New attempts."""

    @extend_schema(operation_id="reopen_task", request=bodies.ShownBody, responses=ok("MovedTask"))
    def post(self, request: Request, task_id: str) -> Response:
        """Out of its attempts blocker, or back from its end."""
        shown = self.body(request, bodies.ShownBody)["shown_digest"]
        return self.verb(request, task_id, lambda caller, task: tasks.reopen(caller, task, shown=shown))


class TaskBlock(TaskVerb):
    """Stop the task."""

    @extend_schema(operation_id="block_task", request=bodies.BlockBody, responses=ok("MovedTask"))
    def post(self, request: Request, task_id: str) -> Response:
        """With a sentence that says why."""
        body = self.body(request, bodies.BlockBody)
        shown = body.pop("shown_digest")
        return self.verb(
            request, task_id, lambda caller, task: tasks.block(caller, task, shown=shown, **body)
        )


class TaskUnblock(TaskVerb):
    """Let the task go on."""

    @extend_schema(operation_id="unblock_task", request=bodies.ShownBody, responses=ok("MovedTask"))
    def post(self, request: Request, task_id: str) -> Response:
        """Closes a manual blocker, and waives cancelled dependencies."""
        shown = self.body(request, bodies.ShownBody)["shown_digest"]
        return self.verb(request, task_id, lambda caller, task: tasks.unblock(caller, task, shown=shown))


class TaskPriority(TaskVerb):
    """Move the task in the queue."""

    @extend_schema(operation_id="set_task_priority", request=bodies.PriorityBody, responses=ok("MovedTask"))
    def post(self, request: Request, task_id: str) -> Response:
        """-100 to 100."""
        body = self.body(request, bodies.PriorityBody)
        shown, priority = body["shown_digest"], body["priority"]
        return self.verb(
            request,
            task_id,
            lambda caller, task: tasks.set_priority(caller, task, priority=priority, shown=shown),
        )
