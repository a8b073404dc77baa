"""`/v1/tasks/:id/comments`: notes and blocking questions."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import comments
from coordination.models import Comment
from coordination.shapes import answered_json, comment_json
from titen.api.ids import field_id, path_id
from titen.api.schema import ok
from titen.api.views import ApiView
from titen.errors import invalid, not_found

from . import bodies
from .tasks import find_task

COMMENTS_SHOWN = 200


class CommentList(ApiView):
    """The comments of a task."""

    scopes = {"GET": "tasks:read", "POST": "comments:write"}

    @extend_schema(operation_id="list_comments", responses=ok("Comments"))
    def get(self, request: Request, task_id: str) -> Response:
        """The latest comments, oldest first."""
        self.nothing_else(request)
        task = find_task(self.caller(request), task_id)
        latest = (
            Comment.objects.filter(task=task)
            .select_related("author", "answered_by")
            .order_by("-created_at")[:COMMENTS_SHOWN]
        )
        return Response({"comments": [comment_json(comment) for comment in reversed(latest)]})

    @extend_schema(operation_id="post_comment", request=bodies.CommentBody, responses=ok("Comment", 201))
    def post(self, request: Request, task_id: str) -> Response:
        """Comment, or ask: a blocking comment blocks the task until somebody else answers it."""
        self.nothing_else(request)
        caller, task = self.caller(request), path_id("task", task_id)
        body = self.body(request, bodies.CommentBody)
        blocking = body.pop("blocking", False)
        if blocking or "run_id" in body or "epoch" in body:
            for name in ("run_id", "epoch"):
                if name not in body:
                    raise invalid(name, "is needed where a run speaks: send run_id and epoch, both or none.")
            body["run_id"] = field_id("run", "run_id", body["run_id"])
        rule = comments.ask if blocking else comments.post
        return self.act(request, lambda: (201, comment_json(rule(caller, task, **body))))


class CommentDetail(ApiView):
    """One comment; the asker waits here for its answer."""

    scopes = {"GET": "tasks:read"}

    @extend_schema(operation_id="get_comment", responses=ok("Comment"), parameters=bodies.WAIT)
    def get(self, request: Request, task_id: str, comment_id: str) -> Response:
        """The comment; with `?wait=` the answer comes as soon as the question is answered."""
        self.query(request, bodies.WaitQuery)
        task = find_task(self.caller(request), task_id)
        found = (
            Comment.objects.filter(task=task, pk=path_id("cmt", comment_id))
            .select_related("author", "answered_by")
            .first()
        )
        if found is None:
            raise not_found()
        return Response(comment_json(found))


class CommentAnswer(ApiView):
    """Answer a question."""

    scopes = {"POST": "comments:answer"}

    @extend_schema(operation_id="answer_comment", request=bodies.AnswerBody, responses=ok("AnsweredComment"))
    def post(self, request: Request, task_id: str, comment_id: str) -> Response:
        """Another agent with `comments:answer` answers; the asker cannot."""
        self.nothing_else(request)
        caller, task, comment = self.caller(request), path_id("task", task_id), path_id("cmt", comment_id)
        body = self.body(request, bodies.AnswerBody)
        shown = comment_json if caller.has("tasks:read") else answered_json
        return self.act(
            request, lambda: (200, shown(comments.answer(caller, task, comment, body=body["body"])))
        )
